"""Where a broker listens, and what it says about it."""

import asyncio
import logging
import socket

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.net import endpoints
from mqttlite.net.endpoints import ACCEPTS_PER_ITERATION
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.support.inside import core_of


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop resolves for itself
needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


async def test_port_0_is_said_as_what_it_became(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker()
    assert f"listening for MQTT over TCP on 127.0.0.1:{broker.port} (tcp-0)" in caplog.messages
    await rig.device(broker.port, "device")


@needs_ipv6
async def test_an_ipv6_address_stands_in_brackets(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker(Config(listeners=(ListenerOptions(host="::1", port=0),)))
    device = await rig.device(broker.port, "device", host="::1")
    assert f"listening for MQTT over TCP on [::1]:{broker.port} (tcp-0)" in caplog.messages
    assert any(line.startswith(f"{device.address} client 'device' connected") for line in caplog.messages)


@needs_ipv6
@asyncio_only
async def test_a_host_with_two_addresses_has_one_port(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _resolve(monkeypatch, "127.0.0.1", "::1", "127.0.0.1")
    broker = await rig.broker(Config(listeners=(ListenerOptions(host="both.example", port=0),), allow_anonymous=True))
    (listener,) = broker.listeners
    assert listener.addresses == [f"127.0.0.1:{broker.port}", f"[::1]:{broker.port}"]
    assert len([line for line in caplog.messages if line.startswith("listening")]) == 2
    await rig.device(broker.port, "device-4")
    await rig.device(broker.port, "device-6", host="::1")


@needs_ipv6
@asyncio_only
async def test_a_chosen_port_that_is_taken_on_the_other_address_is_chosen_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _resolve(monkeypatch, "127.0.0.1", "::1")
    taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    rig.close_at_end(taken)
    port = taken.getsockname()[1]
    listen, asked = endpoints._listen, []

    def first_choose_the_taken_one(listening: socket.socket, address: tuple[str, int], reuses: bool) -> None:
        asked.append(address)
        listen(listening, (address[0], port) if len(asked) == 1 else address, reuses)

    monkeypatch.setattr(endpoints, "_listen", first_choose_the_taken_one)
    broker = await rig.broker(Config(listeners=(ListenerOptions(host="both.example", port=0),), allow_anonymous=True))
    assert broker.port != port
    assert len(asked) == 4
    assert len(broker.listeners[0].addresses) == 2


@asyncio_only
async def test_written_bytes_leave_at_once() -> None:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    endpoint = endpoints.TcpEndpoint("127.0.0.1", 0)
    await endpoint.listen("tcp", Accepted)
    _, client = await asyncio.open_connection("127.0.0.1", endpoint.port)
    transport = await accepted
    assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    for each in (client, transport, endpoint):
        each.close()


async def test_several_listeners_are_one_broker(rig: Rig) -> None:
    config = Config(listeners=tuple(ListenerOptions(port=0, name=name) for name in ("a", "b", "c")))
    broker = await rig.broker(config)
    assert len({listener.port for listener in broker.listeners}) == 3
    devices = [await rig.device(listener.port, listener.name) for listener in broker.listeners]
    await devices[0].subscribe("a")
    await devices[2].ping()
    devices[2].publish("a", b"across")
    assert await devices[0].message() == ("a", b"across")


async def test_no_host_is_every_address(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(host="", port=0),), allow_anonymous=True))
    await rig.device(broker.port, "device")


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("192.0.2.1", 1883, "cannot listen on 192.0.2.1:1883 (tcp-1883): this machine has no such address"),
        ("nowhere.invalid", 1883, "cannot listen on nowhere.invalid:1883 (tcp-1883): the host name cannot be resolved"),
    ],
)
async def test_why_it_cannot_listen_is_a_sentence(host: str, port: int, sentence: str) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the text is what counts
        await Broker(Config(listeners=(ListenerOptions(host=host, port=port),), allow_anonymous=True)).start()
    assert str(caught.value).startswith(sentence)


@asyncio_only
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied"), "not permitted; ports below 1024"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError("strange"), "strange"),
    ],
)
async def test_every_error_of_the_system_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: OSError, sentence: str
) -> None:
    def listen(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(endpoints, "_listen", listen)
    with pytest.raises(OSError) as caught:  # noqa: PT011
        await Broker(host="127.0.0.1", port=883).start()
    assert str(caught.value).startswith(f"cannot listen on 127.0.0.1:883 (tcp-883): {sentence}")


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_connections_that_come_at_once_are_accepted_in_few_passes_of_the_loop(rig: Rig) -> None:
    broker = await rig.broker()
    (listener,) = broker.listeners
    for _ in range(2 * ACCEPTS_PER_ITERATION):
        rig.close_at_end(socket.create_connection(("127.0.0.1", broker.port)))
    for _ in range(3):  # the first may end without looking at its sockets
        await asyncio.sleep(0)
    assert listener.open == 2 * ACCEPTS_PER_ITERATION


def _resolve(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let the name both.example have these addresses."""
    real = socket.getaddrinfo

    def getaddrinfo(host: object, port: object, *args: object, **options: object) -> object:
        if host in ("both.example", b"both.example"):
            return [entry for each in hosts for entry in real(each, port, type=socket.SOCK_STREAM)]  # type: ignore[arg-type]
        return real(host, port, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_a_connection_whose_handshake_ends_just_when_the_broker_stops_is_gone_then(rig: Rig) -> None:
    broker = await rig.enter(Broker(port=0))
    (listener,) = broker.listeners
    ours, theirs = socket.socketpair()
    rig.close_at_end(ours)
    theirs.setblocking(False)
    listener._begin_handshake(theirs, ("10.0.0.1", 1000))  # there is nothing to shake hands about
    await listener.stop_accepting()
    assert listener.open == 0
    assert not core_of(broker).connections
