"""Sockets that go from one worker to another with what was read from them."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from mqttlite.cluster import handoff
from mqttlite.cluster.handoff import Handoff, Origin
from tests.support.device import until


def origin(number: int = 0, **changes: object) -> Origin:
    values = {"listener": number, "address": f"10.0.0.1:{number}", "identity": None, "tls_version": None}
    return Origin(**{**values, "tls_cipher": None, **changes})  # type: ignore[arg-type]


class Ends:
    """Both ends of a way for connections; what arrived at the second."""

    def __init__(self) -> None:
        self.socks = socket.socketpair()
        for sock in self.socks:
            sock.setblocking(False)
        self.arrived: list[tuple[socket.socket, Origin, bytes]] = []
        self.lost: list[Origin] = []
        """Those that arrived without their sockets."""
        self.sender = Handoff(self.socks[0], self._unexpected)
        self.receiver: Handoff | None = None
        self._clients: list[socket.socket] = []

    def listen(self) -> None:
        self.receiver = Handoff(self.socks[1], self._on_arrival)

    def client(self) -> tuple[socket.socket, socket.socket]:
        """Our end of a connection, and the client's."""
        ours, theirs = socket.socketpair()
        theirs.settimeout(0)
        self._clients.append(theirs)
        return ours, theirs

    def send(self, number: int = 0, data: bytes = b"") -> socket.socket:
        ours, theirs = self.client()
        self.sender.send(ours, origin(number), data)
        return theirs

    def close(self) -> None:
        for end in (self.sender, self.receiver):
            if end is not None and end._sock.fileno() >= 0:
                end.close()
        self.socks[1].close()
        for sock in (*self._clients, *[sock for sock, _origin, _data in self.arrived]):
            sock.close()

    def _on_arrival(self, sock: socket.socket | None, said: Origin, data: bytes) -> None:
        if sock is None:
            self.lost.append(said)
        else:
            self.arrived.append((sock, said, data))

    def _unexpected(self, *arrival: object) -> None:
        raise AssertionError(arrival)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()
    await asyncio.sleep(0)


def is_closed(client: socket.socket) -> bool:
    """Whether nobody has the other end any more."""
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


async def test_a_socket_arrives_with_what_was_read_and_what_is_known_of_it(ends: Ends) -> None:
    ends.listen()
    ours, theirs = ends.client()
    known = origin(3, identity="thermometer ✓", tls_version="TLSv1.3", tls_cipher="X")
    ends.sender.send(ours, known, b"\0\xff early")
    assert ours.fileno() == -1, "it is no longer ours"
    await until(lambda: bool(ends.arrived))
    ((arrived, said, data),) = ends.arrived
    assert (said, data) == (known, b"\0\xff early")
    arrived.send(b"hello")
    assert theirs.recv(10) == b"hello"


async def test_many_arrive_in_order_each_with_its_own(ends: Ends) -> None:
    clients = [ends.send(number, b"%d" % number * (number % 50)) for number in range(600)]
    ends.listen()  # more than the kernel holds, or passes at once, wait for it
    await until(lambda: len(ends.arrived) == 600)
    for number, (arrived, said, data) in enumerate(ends.arrived):
        assert (said.listener, data) == (number, b"%d" % number * (number % 50))
        arrived.send(b"%d" % number)
        assert clients[number].recv(10) == b"%d" % number


async def test_more_was_read_than_a_socket_holds(ends: Ends) -> None:
    ends.listen()
    sizes = [3_000_000, 0, 1, 500_000, 262_144]
    for number, size in enumerate(sizes):
        ends.send(number, bytes([number]) * size)
    await until(lambda: len(ends.arrived) == len(sizes))
    assert [data for _sock, _origin, data in ends.arrived] == [bytes([at]) * size for at, size in enumerate(sizes)]


@pytest.mark.parametrize("more", [0, 1])
async def test_so_many_may_wait_and_one_more_is_closed(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    monkeypatch.setattr(handoff, "MAX_WAITING", 5)
    full = [ends.send(1, bytes(3_000_000))]  # of which the rest waits
    waiting = [ends.send(2) for _ in range(4 + more)]
    assert [is_closed(client) for client in full + waiting] == [False] * 5 + [True] * more
    assert ("too many connections wait for another worker" in caplog.text) == bool(more)
    ends.listen()
    await until(lambda: len(ends.arrived) == 5)


async def test_what_waits_for_a_worker_that_is_gone_is_closed(ends: Ends) -> None:
    first, second = ends.send(1, bytes(3_000_000)), ends.send(2)
    ends.socks[1].close()
    await until(lambda: is_closed(second))
    assert is_closed(first)
    assert is_closed(ends.send(3))


@pytest.mark.parametrize("closed", [False, True])
async def test_where_too_many_descriptors_are_under_way_it_is_tried_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    with monkeypatch.context() as patched:

        def fails(*_arguments: object) -> int:
            raise OSError(errno.ETOOMANYREFS, "Too many references")

        patched.setattr(socket, "send_fds", fails)
        ours, theirs = ends.client()
        assert ends.sender.send(ours, origin(1), b"x")
        second, _ = ends.client()
        assert ends.sender.send(second, origin(2), b"y")
    assert not is_closed(theirs)
    if closed:
        ends.sender.close()
        assert is_closed(theirs)
        await asyncio.sleep(2 * handoff.RETRY_S)
        return
    ends.listen()
    await until(lambda: len(ends.arrived) == 2)
    assert [data for _sock, _origin, data in ends.arrived] == [b"x", b"y"]


async def test_who_is_gone_takes_nothing(ends: Ends) -> None:
    ends.socks[1].close()
    ours, theirs = ends.client()
    assert not ends.sender.send(ours, origin(1), b"x")
    assert is_closed(theirs)


async def test_a_close_closes_what_waits(ends: Ends) -> None:
    first, second = ends.send(1, bytes(3_000_000)), ends.send(2)
    ends.sender.close()
    assert is_closed(second)
    assert not is_closed(first), "it is on its way"
    ends.socks[1].close()
    assert is_closed(first)


async def test_a_close_closes_what_has_half_arrived(ends: Ends) -> None:
    client = ends.send(1, bytes(3_000_000))
    ends.listen()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not is_closed(client)
    assert ends.receiver is not None
    ends.receiver.close()
    ends.sender.close()
    assert not ends.arrived
    assert is_closed(client)


async def test_an_end_is_heard_of_once(ends: Ends) -> None:
    ends.listen()
    client = ends.send(1, b"x")
    ends.sender.close()
    await until(lambda: bool(ends.arrived))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not is_closed(client), "it arrived before"


@pytest.fixture
def few_files() -> Iterator[None]:
    """No more files than there are now, and those of the fixture."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_socket_that_there_is_no_room_for_is_lost_alone(
    ends: Ends, few_files: None, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [ends.send(number, b"%d" % number) for number in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ends.listen()
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    for _ in range(10):
        await asyncio.sleep(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not ends.arrived
    assert [said.listener for said in ends.lost] == [0, 1, 2]
    assert [is_closed(client) for client in clients] == [True] * 3
    assert "may open no more files" in caplog.text
    ends.send(9, b"later")
    await until(lambda: bool(ends.arrived))
    assert [(said.listener, data) for _sock, said, data in ends.arrived] == [(9, b"later")]
