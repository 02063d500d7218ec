"""MQTT over WebSocket at a real broker: the request, the frames, the end of both, and that MQTT notices none of it."""

import asyncio
import contextlib
import gc
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason as Code

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.net.link import LINGER_S
from mqttlite.net.upgrade import HEAD_BYTES, WebSocketOptions
from mqttlite.net.websocket import WebSocket
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V31, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connack, Connect, Disconnect, Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of
from tests.support.packets import raw
from tests.support.web import Web, ask, dial, refusal, request, web_of

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])

WEB = ListenerOptions(name="web", port=0, websocket=True)
CONNECT = encode(Connect("rude", V5), V5)


def web(**options: Any) -> Config:
    """A listener of each kind, WebSocket first; options are the listener's."""
    return Config(
        listeners=(
            ListenerOptions(name="web", port=0, websocket=options.pop("websocket", True), **options),
            ListenerOptions(name="tcp", port=0),
        )
    )


@pytest.fixture
async def broker(rig: Rig) -> Broker:
    return await rig.broker(web())


@pytest.fixture
async def page(broker: Broker) -> AsyncIterator[Web]:
    """The WebSocket of a client that is connected to MQTT."""
    device = await dial(broker.port)
    await device.connect("page")
    yield web_of(device)
    await device.close()


def tcp_port(broker: Broker) -> int:
    return broker.listeners[1].port


def row_in(directory: Path) -> dict[str, Any]:
    """The one row of telemetry."""
    (file,) = directory.glob("table=sessions/**/*.jsonl")
    row: dict[str, Any] = json.loads(file.read_text())
    return row


# ── MQTT through it ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V31, V311, V5])
async def test_messages_pass_between_websocket_and_tcp(rig: Rig, broker: Broker, version: int) -> None:
    page = await dial(broker.port, version)
    await page.connect("page")
    device = await rig.device(tcp_port(broker), "device")
    await page.subscribe("from/device", qos=1)
    await device.subscribe("from/page", qos=1)
    assert await device.published("from/device", b"21.5") == 0
    assert await page.message() == ("from/device", b"21.5")
    assert await page.published("from/page", b"\0\xff") == 0
    assert await device.message() == ("from/page", b"\0\xff")
    await page.disconnect()


async def test_it_works_through_tls_and_names_the_client_by_its_certificate(
    rig: Rig, certs: Path, tmp_path: Path
) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), str(certs / "ca.crt"), True)
    config = Config(
        listeners=(ListenerOptions(port=0, tls=tls, websocket=True),),
        telemetry=TelemetryOptions(directory=str(tmp_path), format="jsonl"),
    )
    broker = await rig.broker(config)
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    context.load_cert_chain(certs / "thermometer.crt", certs / "thermometer.key")
    device = await dial(broker.port, tls=context)
    await device.connect("page")
    await device.subscribe("#")
    device.publish("a", b"x" * 100_000)
    assert await device.message() == ("a", b"x" * 100_000)
    device.send(Disconnect())
    assert (await web_of(device).end()).code == 1000
    await device.close()
    await broker.stop()
    row = row_in(tmp_path)
    assert (row["transport"], row["tls_version"], row["username"]) == ("wss", "TLSv1.3", "thermometer")
    assert (row["bytes_received"], row["bytes_sent"]) == (device.bytes_sent, device.bytes_received)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("mqtt", "mqtt"),
        ("mqttv3.1", "mqttv3.1"),
        ("mqttv3.1, mqtt", "mqtt"),
        ("chat,mqttv3.1", "mqttv3.1"),
        ("MQTT", "mqtt"),
    ],
)
async def test_the_subprotocol_is_chosen_from_those_offered(broker: Broker, offered: str, chosen: str) -> None:
    device = await dial(broker.port, protocols=offered)
    assert web_of(device).subprotocol == chosen
    await device.close()


async def test_the_websockets_library_gets_through_without_compression(broker: Broker) -> None:
    uri = f"ws://127.0.0.1:{broker.port}/mqtt?token=x"
    async with websockets.connect(uri, subprotocols=[websockets.Subprotocol("mqtt")], compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        await client.send(CONNECT)
        assert (await client.recv(decode=False))[:1] == b"\x20"
        await (await client.ping())


# ── a frame is no packet ───────────────────────────────────────────────────────────────────────────────────────────


async def test_one_frame_may_hold_many_packets(broker: Broker) -> None:
    device = await dial(broker.port)
    hello = encode(Connect("burst", V5), V5)
    retained_replay = b"".join(
        encode(Publish(b"a", b"%d" % number, 1, packet_id=number), V5) for number in range(1, 1_001)
    )
    device.send_bytes(hello + retained_replay)
    await device.expect(Connack)
    for _ in range(1_000):
        await device.next()
    await device.close()


async def test_a_frame_may_be_longer_than_the_longest_packet(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(WEB,), limits=Limits(max_packet_bytes=1_000)))
    device = await dial(broker.port)
    await device.connect("burst")
    await device.subscribe("#")
    device.send_bytes(encode(Publish(b"a", b"x" * 900), V5) * 500)
    for _ in range(500):
        assert await device.message() == ("a", b"x" * 900)
    await device.close()


async def test_a_packet_may_come_in_a_frame_for_each_byte(broker: Broker) -> None:
    device = await dial(broker.port)
    for number in range(len(CONNECT)):
        device.send_bytes(CONNECT[number : number + 1])
    await device.expect(Connack)
    await device.close()


async def test_a_flood_of_empty_frames_before_connect_is_ended_and_others_are_served(rig: Rig, broker: Broker) -> None:
    device = await dial(broker.port)
    page = web_of(device)
    neighbour = await rig.device(tcp_port(broker), "neighbour")
    page.writer.write(bytes.fromhex("82 80 00000000") * 17_000)
    await neighbour.ping()
    assert await page.end() == CloseConnection(1008, "more than 1024 frames came before CONNECT")
    await neighbour.ping()
    await device.close()


async def test_each_packet_is_a_frame_of_its_own(rig: Rig, broker: Broker) -> None:
    page = await dial(broker.port)
    await page.connect("page")
    await page.subscribe("#")
    web_of(page).frame_sizes.clear()
    device = await rig.device(tcp_port(broker), "device")
    device.send_bytes(encode(Publish(b"a", b"x"), V5) * 100)
    for _ in range(100):
        await page.message()
    assert web_of(page).frame_sizes == [len(encode(Publish(b"a", b"x"), V5))] * 100
    await page.close()


@pytest.mark.long
async def test_a_client_that_does_not_read_is_held_back_and_gets_what_waited(rig: Rig, broker: Broker) -> None:
    page = await dial(broker.port)
    await page.connect("page")
    await page.subscribe("#", qos=1)
    web_of(page).writer.transport.pause_reading()  # type: ignore[attr-defined]
    device = await rig.device(tcp_port(broker), "device")
    connection = next(each for each in core_of(broker).connections.values() if each.client_id == "page")
    sent = 0
    while not connection.outbox.blocked:
        await device.published("a", b"x" * 100_000)
        sent += 1
    web_of(page).writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(sent):
        assert (await page.message())[1] == b"x" * 100_000
    await until(lambda: not connection.outbox.blocked)
    await page.close()


@pytest.mark.long
async def test_of_the_pings_of_a_client_that_does_not_read_the_last_is_answered(rig: Rig, broker: Broker) -> None:
    page = await dial(broker.port)
    await page.connect("page")
    await page.subscribe("#", qos=1)
    web = web_of(page)
    web.writer.transport.pause_reading()  # type: ignore[attr-defined]
    device = await rig.device(tcp_port(broker), "device")
    connection = next(each for each in core_of(broker).connections.values() if each.client_id == "page")
    sent = 0
    while not connection.outbox.blocked:
        await device.published("a", b"x" * 100_000)
        sent += 1
    received = connection.bytes_received
    for number in range(1_000):
        web.send(Ping(b"%d" % number))
    page.publish("b", b"")  # behind them
    await until(lambda: connection.bytes_received > received)
    web.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(sent + 1):
        await page.message()
    await page.ping()
    assert web.pongs == [b"999"]
    await page.close()


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_ping_is_answered_with_its_payload(page: Web) -> None:
    await page.pong(b"")
    await page.pong(b"x" * 125)


@pytest.mark.parametrize(
    ("what", "sent", "code"),
    [
        ("a text frame", "81 80 00000000", 1003),
        ("the beginning of a text message", "01 82 00000000 'hi'", 1003),
        ("a text frame, and then Close", "81 80 00000000 88 82 00000000 03e8", 1003),
        ("text that is none", "81 81 00000000 ff", 1007),
        ("an unmasked frame", "82 00", 1002),
        ("a reserved bit", "c2 80 00000000", 1002),
        ("an unknown opcode", "83 80 00000000", 1002),
        ("a ping in fragments", "09 80 00000000", 1002),
        ("a ping of 126 bytes", "89 fe 007e 00000000", 1002),
        ("a continuation of nothing", "80 80 00000000", 1002),
        ("a new message in a message", "02 80 00000000 82 80 00000000", 1002),
        ("a length of eight bytes with its highest bit", "82 ff ffffffffffffffff 00000000", 1002),
        ("a Close of one byte", "88 81 00000000 03", 1002),
        ("a malformed packet", "82 82 00000000 3600", 1002),
        ("a second CONNECT", f"82 {0x80 | len(CONNECT):02x} 00000000 {CONNECT.hex()}", 1002),
        ("a packet of 128 megabytes", "82 85 00000000 30ffffff3f", 1009),
        ("a DISCONNECT", "82 82 00000000 e000", 1000),
    ],
)
async def test_the_close_code_names_the_error(page: Web, what: str, sent: str, code: int) -> None:
    page.writer.write(raw(sent))
    assert (await page.end()).code == code


async def test_packets_before_a_bad_frame_count(rig: Rig, broker: Broker, page: Web) -> None:
    device = await rig.device(tcp_port(broker), "device")
    await device.subscribe("#")
    page.send(BytesMessage(encode(Publish(b"before", b""), V5)), TextMessage("hello"))
    page.writer.write(raw("82 86 00000000 3004 0001 'b' 00"))
    assert (await page.end()).code == 1003
    assert await device.message() == ("before", b"")
    await device.ping()
    assert device.waiting() == []


async def test_a_text_frame_is_in_the_log_with_its_address(page: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    host, port = page.get_extra_info("sockname")
    page.send(TextMessage("hello"))
    assert "binary" in ((await page.end()).reason or "")
    await until(lambda: any(f"{host}:{port}" in line and "text frame" in line for line in caplog.messages))


@pytest.mark.parametrize(
    ("event", "answer", "logged"),
    [
        (CloseConnection(1000, "bye"), 1000, "'page' disconnected: connection_lost"),
        (CloseConnection(Code.NO_STATUS_RCVD), 1005, "'page' disconnected: connection_lost"),
        (CloseConnection(1001, "the page is left"), 1001, "closed its WebSocket with 1001: the page is left"),
        (CloseConnection(4000), 4000, "closed its WebSocket with 4000"),
    ],
)
async def test_the_client_s_close_is_answered(
    page: Web, caplog: pytest.LogCaptureFixture, event: CloseConnection, answer: int, logged: str
) -> None:
    caplog.set_level("INFO")
    page.send(event)
    assert (await page.end()).code == answer
    await until(lambda: any(logged in line for line in caplog.messages))


async def test_disconnect_and_close_in_one_piece_are_a_clean_end(page: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    page.send(BytesMessage(raw("e0 00")), CloseConnection(1000))
    assert (await page.end()).code == 1000
    await until(lambda: any("disconnected: client_disconnected" in line for line in caplog.messages))


async def test_a_taken_over_client_gets_1008_and_a_stopping_broker_says_1001(rig: Rig, broker: Broker) -> None:
    first, second = await dial(broker.port), await dial(broker.port)
    await first.connect("twin")
    await second.connect("twin")
    assert (await web_of(first).end()).code == 1008
    (end, _) = await asyncio.gather(web_of(second).end(), broker.stop())
    assert end.code == 1001
    await first.close()
    await second.close()


async def test_a_lost_socket_is_a_lost_connection(rig: Rig, broker: Broker) -> None:
    device = await dial(broker.port)
    await device.connect("page", will=None)
    device.drop()
    await until(lambda: not core_of(broker).connections)


@asyncio_only
async def test_a_peer_that_does_not_answer_our_close_is_cut_off(
    rig: Rig, broker: Broker, jump: Callable[[float], None]
) -> None:
    device = await dial(broker.port)
    await device.connect("page")
    web = web_of(device)
    web.send(TextMessage("hello"))
    data = await web.reader.readexactly(2)
    assert data[0] == 0x88
    assert core_of(broker).connections
    jump(LINGER_S)
    await until(lambda: not core_of(broker).connections)
    await device.close()


# ── the request ────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED = [
    ("a page's address", b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", 426, "Upgrade: websocket"),
    ("another path", request("/other"), 404, "is at /mqtt"),
    ("no subprotocol", request(protocols=None), 400, "does not offer mqtt"),
    ("an unknown subprotocol", request(protocols="mqttv5"), 400, "does not offer mqtt"),
    ("a page from elsewhere", request(origin="http://page.example"), 403, "http://page.example"),
    ("POST", request(method="POST"), 405, "Allow: GET"),
    ("an older version", request(Sec_WebSocket_Version="8"), 426, "Sec-WebSocket-Version: 13"),
    ("no key", request(without="Sec-WebSocket-Key"), 400, "Sec-WebSocket-Key"),
    ("no HTTP", b"hello\r\n\r\n", 400, "not HTTP"),
    ("MQTT", CONNECT, 400, "begins with an HTTP request"),
    ("TLS", raw("16 03 01 02 00 01"), 400, "begins with an HTTP request"),
    ("a long request", request(Cookie="x" * HEAD_BYTES), 431, f"{HEAD_BYTES} bytes"),
    ("an endless request", b"GET /" + b"x" * HEAD_BYTES, 431, f"{HEAD_BYTES} bytes"),
]


@pytest.mark.parametrize(("what", "data", "status", "says"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_request_for_another_protocol_gets_a_status_and_a_sentence(
    broker: Broker, caplog: pytest.LogCaptureFixture, what: str, data: bytes, status: int, says: str
) -> None:
    found, head, body = await refusal(broker.port, data)
    assert found == status
    assert says in head + body
    assert "Connection: close" in head
    assert any("127.0.0.1:" in line and f"refused with {status}" in line for line in caplog.messages)
    await until(lambda: not core_of(broker).connections and broker.listeners[0].open == 0)


async def test_a_refusal_passes_through_tls(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0, tls=tls, websocket=True),)))
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    status, _, body = await refusal(broker.port, request("/"), tls=context)
    assert status == 404
    assert "/mqtt" in body


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        (("https://app.example",), "https://app.example", 101),
        (("https://App.example",), "https://app.EXAMPLE", 101),
        (("https://app.example",), "http://app.example", 403),
        (("https://app.example",), "https://app.example:8443", 403),
        (("https://app.example",), "https://app.example.evil.example", 403),
        (("https://app.example",), "null", 403),
        (("null",), "null", 101),
        (("*",), "https://anything.example", 101),
        (("https://app.example",), None, 101),
        ((), None, 101),
        ((), "http://127.0.0.1", 403),
        ((), "http://localhost", 101),
    ],
)
async def test_only_pages_of_listed_origins_may_connect(
    rig: Rig, allowed: tuple[str, ...], origin: str | None, status: int
) -> None:
    broker = await rig.broker(web(websocket=WebSocketOptions(path="/", origins=allowed)))
    found, _, _, writer = await ask(broker.port, request("/", origin=origin))
    assert found == status
    writer.close()


@asyncio_only
@pytest.mark.parametrize("sent", [b"", b"GET /mqtt HT"])
async def test_a_request_that_does_not_come_is_waited_for_so_long(
    rig: Rig, jump: Callable[[float], None], caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    broker = await rig.broker(web(handshake_timeout_s=7.0))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(sent)
    await until(lambda: [len(each._head) for each in broker.listeners[0]._upgrades] == [len(sent)])
    jump(3.0)
    await asyncio.sleep(0)
    assert broker.listeners[0].open == 1
    jump(4.1)
    await until(lambda: broker.listeners[0].open == 0)
    assert any("no whole request within 7 s" in line for line in caplog.messages) == bool(sent)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_a_websocket_counts_as_a_connection_before_its_request(rig: Rig) -> None:
    broker = await rig.broker(web(max_connections=1))
    first = await asyncio.open_connection("127.0.0.1", broker.port)
    await until(lambda: broker.listeners[0].open == 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    first[1].close()
    await until(lambda: broker.listeners[0].open == 0)


async def test_a_stopping_broker_waits_for_no_request(rig: Rig, broker: Broker) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    await until(lambda: len(broker.listeners[0]._upgrades) == 1)
    began = asyncio.get_running_loop().time()
    await broker.stop()
    assert asyncio.get_running_loop().time() - began < broker.config.stop_timeout_s
    writer.close()


async def test_frames_that_come_with_the_request_are_read(broker: Broker) -> None:
    frame = bytes([0x82, 0x80 | len(CONNECT), 0, 0, 0, 0]) + CONNECT
    _, _, reader, writer = await ask(broker.port, request() + frame)
    assert (await reader.readexactly(3))[2] == 0x20
    writer.close()


async def test_the_broker_says_where_it_speaks_websocket(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    broker = await rig.broker(web())
    assert f"listening for MQTT over WebSocket on 127.0.0.1:{broker.port} (web)" in caplog.messages


async def test_a_device_over_tcp_at_the_websocket_port_learns_of_it(rig: Rig, broker: Broker) -> None:
    device = await Device.dial(broker.port)
    device.hello("lost")
    data = await device._reader.read()
    assert b"speaks MQTT over WebSocket" in data
    await device.close()


@pytest.mark.long
@pytest.mark.parametrize("head", [request(), b"GET / HTTP/1.1\r\n\r\n"])
async def test_one_that_has_ended_is_freed_without_the_garbage_collector(broker: Broker, head: bytes) -> None:
    """`mqttlite serve` has old garbage collected so rarely that it would be a leak."""
    gc.collect()
    gc.disable()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(head)
        await reader.readline()
        assert [each for each in gc.get_objects() if type(each) is WebSocket]
        writer.close()
        await until(lambda: broker.listeners[0].open == 0)
        await until(lambda: not [each for each in gc.get_objects() if type(each) is WebSocket])
    finally:
        gc.enable()
