"""What no client should send: each has its answer and its line in the log, and the others carry on."""

import asyncio
import logging
import socket
from collections.abc import Callable

import pytest

from mqttlite.core.limits import Limits
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack, Disconnect, Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of
from tests.support.packets import raw

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])

V5_CONNECT = "10 11 0004 'MQTT' 05 02 0000 00 0004 'rude'"

BEFORE_CONNECT = [
    ("noise", "ff fe fd fc", "first packet"),
    ("zeros", "00 00 00 00", "first packet"),
    ("a TLS client", "16 03 01 0200 01 00", "TLS bytes on a listener without TLS"),
    ("a browser", "'GET / HTTP/1.1' 0d0a 0d0a", "an HTTP request?"),
    ("an endless remaining length", "10 ff ff ff ff ff ff", "more than four bytes"),
    ("a CONNECT of 200 megabytes", "10 80 80 80 64", "at most 1048576"),
    ("a PINGREQ", "c0 00", "not CONNECT"),
]


@pytest.mark.parametrize(("what", "hexdigits", "reason"), BEFORE_CONNECT, ids=[row[0] for row in BEFORE_CONNECT])
async def test_a_first_packet_other_than_connect_is_closed_and_logged_with_its_address(
    rig: Rig, caplog: pytest.LogCaptureFixture, what: str, hexdigits: str, reason: str
) -> None:
    broker = await rig.broker()
    neighbour = await rig.device(broker.port, "neighbour")
    rude = await rig.dial(broker.port)
    rude.send_bytes(raw(hexdigits))
    assert await rude.goodbye() is None
    assert any(rude.address in line and reason in line for line in warnings(caplog)), caplog.text
    await carries_on(neighbour)


async def test_a_client_that_breaks_a_rule_is_told_which_and_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker()
    neighbour = await rig.device(broker.port, "neighbour")
    rude = await rig.device(broker.port, "rude")
    rude.send_bytes(b"\x30\xea\x07\x03\xe7" + b"/" * 999 + b"\0")
    answer = await rude.expect(Disconnect)
    assert answer.reason_code == 0x90
    assert "1000 levels, at most 201" in (answer.properties.reason_string or "")
    assert await rude.goodbye() is None
    assert any(rude.address in line and "'rude' disconnected" in line for line in caplog.messages)
    await carries_on(neighbour)


async def test_the_last_word_reaches_a_client_that_is_still_sending(rig: Rig) -> None:
    broker = await rig.broker()
    rude = await rig.device(broker.port, "rude")
    rude.send_bytes(raw("30 81 80 80 01") + bytes(3_000_000))  # more than socket and kernel hold on the way
    assert await rude.goodbye() == 0x95


@pytest.mark.parametrize("version", [V311, V5])
async def test_the_longest_topic_there_is_works(rig: Rig, version: int) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device", version)
    topic = "x" * 65_535
    assert await device.subscribe(topic) == b"\0"
    device.publish(topic, b"far")
    assert await device.message() == (topic, b"far")


@asyncio_only
async def test_a_client_that_is_silent_from_the_start_is_closed_at_the_connect_timeout(
    rig: Rig, jump: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await rig.broker(limits=Limits(connect_timeout_s=10.0))
    silent, half = await rig.dial(broker.port), await rig.dial(broker.port)
    half.send_bytes(raw(V5_CONNECT)[:9])
    core = core_of(broker)
    await until(lambda: sorted(each.bytes_received for each in core.connections.values()) == [0, 9])
    jump(5.0)
    neighbour = await rig.device(broker.port, "neighbour")
    assert len(core.connections) == 3
    jump(5.1)
    assert await silent.goodbye() is None
    assert await half.goodbye() is None
    assert [line for line in warnings(caplog) if half.address in line and "no CONNECT accepted within 10 s" in line]
    await carries_on(neighbour)


async def test_a_client_that_is_silent_from_the_start_is_closed_by_the_real_clock_too(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(connect_timeout_s=0.05))
    silent = await rig.dial(broker.port)
    assert await silent.goodbye() is None


@asyncio_only
async def test_half_a_packet_and_silence_ends_with_the_keep_alive(rig: Rig, jump: Callable[[float], None]) -> None:
    broker = await rig.broker()
    half = await rig.device(broker.port, "half", keep_alive=20)
    half.send_bytes(raw("30 20 0001"))
    (connection,) = core_of(broker).connections.values()
    await until(lambda: connection.bytes_received == half.bytes_sent)
    jump(20)
    neighbour = await rig.device(broker.port, "neighbour", keep_alive=20)
    jump(11)
    assert await half.goodbye() == 0x8D
    await carries_on(neighbour)


async def test_bytes_one_by_one_are_the_same_packets(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.dial(broker.port)
    for byte in raw(V5_CONNECT + "82 07 0001 00 0001 'a' 00 30 05 0001 'a' 00 'x'"):
        device.send_bytes(bytes([byte]))
        await device.writer.drain()
    await device.expect(Connack)
    await device.next()
    assert (await device.expect(Publish)).payload == b"x"


async def test_a_reason_string_of_a_client_cannot_forge_a_line_of_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker()
    device = await rig.device(broker.port, "forger")
    device.send_bytes(raw("e0 0a 04 08 1f 0005 'a' 0a 'b' 0a 'c'"))
    await device.goodbye()
    (line,) = [line for line in caplog.messages if "'forger' disconnected" in line]
    assert "\n" not in line
    assert r"a\nb\nc" in line


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def carries_on(neighbour: Device) -> None:
    """The neighbour was not disturbed: it publishes and receives."""
    await neighbour.subscribe("still/here", 1)
    neighbour.publish("still/here", b"yes", qos=0)
    assert await neighbour.message() == ("still/here", b"yes")


class HoldsUpTheLoop(asyncio.Protocol):
    """A client that, when it is answered, lets a second one send, and then the loop do nothing for a minute."""

    def __init__(self, second: socket.socket, jump: Callable[[float], None]) -> None:
        self._second = second
        self._jump = jump

    def data_received(self, data: bytes) -> None:
        self._second.sendall(raw(V5_CONNECT))
        self._jump(60)


@asyncio_only
async def test_a_client_is_not_silent_without_listeners(rig: Rig, jump: Callable[[float], None]) -> None:
    broker = await rig.broker(limits=Limits(connect_timeout_s=59))
    with socket.create_connection(("127.0.0.1", broker.port)) as second:
        await until(lambda: len(core_of(broker).connections) == 1)
        loop = asyncio.get_running_loop()
        transport, _protocol = await loop.create_connection(
            lambda: HoldsUpTheLoop(second, jump), "127.0.0.1", broker.port
        )
        transport.write(raw(V5_CONNECT.replace("rude", "held")))
        answer = await asyncio.to_thread(second.recv, 4)
        transport.close()
    assert answer[:1] == b"\x20"
