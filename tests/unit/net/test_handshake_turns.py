"""Handshakes begin one by one, however many wait, and no connection is accepted while too many wait."""

import asyncio
import itertools
import socket
from typing import ClassVar

import pytest

from mqttlite.net.acceptor import Acceptor
from mqttlite.net.handshake_turns import MAX_WAITING, HandshakeTurns, readable


async def test_handshakes_begin_one_by_one_with_an_iteration_between() -> None:
    turns = HandshakeTurns()
    waiting = [asyncio.ensure_future(turns.turn()) for _ in range(5)]
    begun = []
    for _ in range(20):
        await asyncio.sleep(0)
        begun.append(sum(each.done() for each in waiting))
    steps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert begun[-1] == 5
    assert max(steps) == 1
    assert all(pair != (1, 1) for pair in itertools.pairwise(steps))


async def test_handshakes_that_were_given_up_take_nobodys_turn() -> None:
    turns = HandshakeTurns()
    gone, last = (asyncio.ensure_future(turns.turn()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await last
    assert len(turns) == 0


async def test_there_is_no_room_while_as_many_as_may_wait_do() -> None:
    turns = HandshakeTurns()
    waiting = [asyncio.ensure_future(turns.turn()) for _ in range(MAX_WAITING)]
    room = asyncio.ensure_future(turns.has_room())
    await asyncio.sleep(0)
    assert not room.done()
    await room
    assert len(turns) == MAX_WAITING - 1
    await asyncio.gather(*waiting)


async def test_a_socket_is_readable_when_something_came_or_the_client_left() -> None:
    for leave in (False, True):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        waiting = asyncio.ensure_future(readable(ours))
        await asyncio.sleep(0)
        assert not waiting.done()
        if leave:
            theirs.close()
        else:
            theirs.send(b"x")
        await waiting
        theirs.close()
        ours.close()


async def test_no_connection_is_accepted_while_handshakes_wait() -> None:
    turns = HandshakeTurns()
    accepted: list[socket.socket] = []
    acceptor = Acceptor(turns, lambda each, _address: accepted.append(each))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    waiting = [asyncio.ensure_future(turns.turn()) for _ in range(MAX_WAITING + 20)]
    await asyncio.sleep(0)
    acceptor.start("door", [listening])
    with socket.create_connection(listening.getsockname()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not accepted
        await asyncio.gather(*waiting)
        while not accepted:
            await asyncio.sleep(0)
    acceptor.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert listening.fileno() == -1
    accepted[0].close()


class Troubled(socket.socket):
    """Fails to accept once, in each of the two ways."""

    errors: ClassVar[list[OSError]] = [OSError(24, "Too many open files"), ConnectionAbortedError("gone")]

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            raise self.errors.pop()
        return super().accept()


async def test_a_failure_to_accept_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mqttlite.net.acceptor.RETRY_S", 0.01)
    came = asyncio.Event()

    def take(accepted: socket.socket, _address: object) -> None:
        accepted.close()
        came.set()

    acceptor = Acceptor(HandshakeTurns(), take)
    listening = Troubled()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    acceptor.start("door", [listening])
    with socket.create_connection(listening.getsockname()):
        await came.wait()
    acceptor.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert caplog.messages == ["door: no connection is accepted for 0.01 s: [Errno 24] Too many open files"]
