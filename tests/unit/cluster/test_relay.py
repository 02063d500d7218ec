"""Bytes between a client whose TLS or WebSocket ends here, and its home."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from mqttlite.net.relay import Relay
from tests.support.device import until


class Way:
    """The client's end of a connection, its relay, and the home's end of that; read and written by the test."""

    def __init__(self) -> None:
        self.client, self._accepted = socket.socketpair()
        self._relayed, self.home = socket.socketpair()
        for sock in (self.client, self._accepted, self._relayed, self.home):
            sock.setblocking(False)
        self.lost = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=self._accepted)
        self.relay = Relay(self.transport, self._relayed, self._on_lost)

    def _on_lost(self) -> None:
        self.lost += 1


@pytest.fixture
async def way() -> AsyncIterator[Way]:
    way = Way()
    await way.open()
    yield way
    way.client.close()
    way.home.close()
    await until(lambda: way.lost == 1)
    await asyncio.sleep(0.01)


async def read(sock: socket.socket, size: int | None = None) -> bytes:
    """So many bytes, or all up to the end."""
    loop = asyncio.get_running_loop()
    data = b""
    async with asyncio.timeout(5):
        while size is None or len(data) < size:
            piece = await loop.sock_recv(sock, 65_536)
            if not piece:
                break
            data += piece
    return data


async def test_bytes_pass_both_ways(way: Way) -> None:
    way.client.send(b"early")
    way.home.send(b"hello")
    assert await read(way.home, 5) == b"early"
    assert await read(way.client, 5) == b"hello"


@pytest.mark.parametrize("here", ["client", "home"])
async def test_who_does_not_read_holds_up_the_other_and_loses_nothing(way: Way, here: str) -> None:
    loop = asyncio.get_running_loop()
    sender, reader = (way.client, way.home) if here == "client" else (way.home, way.client)
    data = bytes(range(256)) * 40_000
    sending = loop.create_task(loop.sock_sendall(sender, data))
    done, _ = await asyncio.wait([sending], timeout=0.2)
    assert not done, "it should have been held up by now"
    assert await read(reader, len(data)) == data
    await sending


@pytest.mark.parametrize("here", ["client", "home"])
async def test_what_was_sent_before_an_end_arrives(way: Way, here: str) -> None:
    sender, reader = (way.client, way.home) if here == "client" else (way.home, way.client)
    sender.send(b"last words")
    sender.close()
    assert await read(reader) == b"last words"


async def test_a_client_that_is_gone_before_its_home_is_there_ends_it() -> None:
    way = Way()
    await way.open()
    way.transport.abort()  # the home's side has yet to begin
    assert await read(way.home) == b""
    await until(lambda: way.lost == 1)
    way.client.close()
    way.home.close()


async def test_a_home_that_is_gone_at_once_ends_the_client(way: Way) -> None:
    way.home.close()
    assert await read(way.client) == b""
