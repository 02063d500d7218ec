"""A client with several servers, of which one serves: each attempt tries them in turn."""

import asyncio
import socket

import pytest

from mqttlite.client import Client, ConnectError, ConnectRefused, ReasonCode
from mqttlite.client.options import MAX_SERVERS, split_server
from mqttlite.wire.packets import Connack, Connect, Disconnect

from .fake_broker import Peer, broker


def deaf_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("server", "host", "port"),
    [
        ("a.example", "a.example", 7),
        ("a.example:1884", "a.example", 1884),
        ("::1", "::1", 7),
        ("[::1]", "::1", 7),
        ("[::1]:1884", "::1", 1884),
    ],
)
def test_a_server_is_a_host_with_or_without_a_port(server: str, host: str, port: int) -> None:
    assert split_server(server, 7) == (host, port)


def test_wrong_servers_are_refused_with_the_right_form() -> None:
    with pytest.raises(ValueError, match=r"'a:b' has the port 'b': write it like 'broker\.example:1883'"):
        split_server("a:b", 7)
    with pytest.raises(ValueError, match="hostname is empty"):
        Client([])
    with pytest.raises(ValueError, match=f"there are {MAX_SERVERS + 1} servers: {MAX_SERVERS} at most"):
        Client(["a"] * (MAX_SERVERS + 1))


async def test_the_first_server_that_answers_is_used() -> None:
    async def serve(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    async with broker(serve) as port, Client([f"127.0.0.1:{deaf_port()}", f"127.0.0.1:{port}"]):
        pass


async def test_where_no_server_answers_the_last_one_is_named() -> None:
    last = deaf_port()
    with pytest.raises(ConnectError, match=f"Nobody listens on 127.0.0.1:{last}"):
        await Client([f"127.0.0.1:{deaf_port()}", f"127.0.0.1:{last}"]).__aenter__()


async def test_a_refusal_that_every_server_would_repeat_ends_the_attempt() -> None:
    async def refuse(peer: Peer) -> None:
        assert isinstance(await peer.next(), Connect)
        peer.send(Connack(session_present=False, reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD))

    async with broker(refuse) as port:
        with pytest.raises(ConnectRefused):
            await Client([f"127.0.0.1:{port}", f"127.0.0.1:{deaf_port()}"]).__aenter__()


async def test_a_client_that_is_sent_to_another_server_goes_there() -> None:
    async def leave(peer: Peer) -> None:
        await peer.welcome()
        peer.send(Disconnect(ReasonCode.USE_ANOTHER_SERVER))

    async def refuse(peer: Peer) -> None:
        await peer.next()
        peer.send(Connack(session_present=False, reason_code=ReasonCode.USE_ANOTHER_SERVER))

    async def serve(peer: Peer) -> None:
        await peer.welcome()
        await peer.goodbye()

    again = asyncio.Event()
    async with broker(leave, refuse) as first, broker(serve) as second:
        servers = [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
        async with Client(servers, min_reconnect_delay=0.001, on_reconnected=lambda _present: again.set()):
            await again.wait()
