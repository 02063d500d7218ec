"""A function as a receiver: its publisher waits for it."""

import asyncio
import contextlib

import pytest

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.reasons import NACKED, QUEUE_FULL
from mqttlite.core.route.tally import DROPPED, QUEUED, QUOTA_EXCEEDED, SENT, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.extensions import ending
from mqttlite.extensions.handler_sink import FAILED, MAX_WAITING, MAX_WAITING_BYTES, Handler, HandlerSink
from mqttlite.extensions.incoming import Incoming


class Bound:
    """A sink, and what its handler got."""

    def __init__(self, handler: Handler | None = None) -> None:
        self.got: list[bytes] = []
        self.woken = 0
        effects = Effects()
        self.drops = Drops(effects)
        self.sink = HandlerSink("extension test", handler or self._take, effects, self.drops, self._wake)

    def _take(self, message: Incoming) -> None:
        self.got.append(message.payload)

    def _wake(self) -> None:
        self.woken += 1

    def offer(self, payload: bytes = b"x", qos: int = 1, source: Source = THE_PROGRAM) -> Tally:
        tally = Tally()
        self.sink.accept(Message(b"a", payload, qos), source, tally)
        return tally


TURNS = 10 * MAX_WAITING
"""Of the loop: enough for each message that may wait, on whatever machine."""


async def settled(*tallies: Tally) -> None:
    for _ in range(TURNS):
        if not any(each.pending for each in tallies):
            return
        await asyncio.sleep(0)
    raise AssertionError("a publisher waits for ever")


async def test_messages_are_handled_in_order_and_their_publishers_wait() -> None:
    bound = Bound()
    tallies = [bound.offer(b"%d" % number) for number in range(5)]
    assert [each.pending for each in tallies] == [1] * 5
    await settled(*tallies)
    assert bound.got == [b"0", b"1", b"2", b"3", b"4"]
    assert [(each.code, each.queued) for each in tallies] == [(0, 1)] * 5
    assert bound.woken == 5


async def test_publishers_do_not_wait_for_qos_0_messages() -> None:
    bound = Bound()
    tally = bound.offer(qos=0)
    last = bound.offer(b"y")
    assert (tally.pending, tally.queued) == (0, 1)
    await settled(last)
    assert bound.got == [b"x", b"y"]


async def test_a_batch_comes_one_by_one() -> None:
    bound = Bound()
    batch = PublishBatch(b"a", b"\x30\x04\0\x01a1\x30\x04\0\x01a2", 6, 5, 0, 4)
    bound.sink.accept_batch(batch, THE_PROGRAM, Tally())
    await settled(bound.offer())
    assert bound.got == [b"1", b"2", b"x"]


async def test_a_publisher_is_told_that_the_handler_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(message: Incoming) -> None:
        if message.payload != b"good":
            raise OSError("disk")

    bound = Bound(fails)
    first, second, good, again = (bound.offer(each) for each in (b"1", b"2", b"good", b"3"))
    await settled(first, second, good, again)
    assert [each.code for each in (first, second, good, again)] == [FAILED, FAILED, 0, FAILED]
    assert [(each.queued, each.dropped) for each in (first, good)] == [(0, {NACKED: 1}), (1, {})]
    assert bound.drops.by_reason == {NACKED: 3}
    assert [each.levelname for each in caplog.records] == ["ERROR", "ERROR"], "one line until it works again"


async def test_a_message_of_qos_0_that_the_handler_does_not_take_is_counted() -> None:
    def fails(message: Incoming) -> None:
        raise OSError("disk")

    bound = Bound(fails)
    bound.offer(qos=0)
    await settled(bound.offer())
    assert bound.drops.by_reason == {NACKED: 2}


async def test_too_many_waiting_messages_are_refused() -> None:
    bound = Bound()
    kept = [bound.offer() for _ in range(MAX_WAITING)]
    assert not bound.sink.has_room(Message(b"a", b"", 1), 1)
    (planned,) = bound.sink.outlook(Message(b"a", b"", 1), THE_PROGRAM, True)
    assert (planned.outcome, planned.reason) == (DROPPED, QUEUE_FULL)
    refused = bound.offer()
    assert (refused.code, refused.dropped, refused.pending) == (QUOTA_EXCEEDED, {QUEUE_FULL: 1}, 0)
    assert bound.drops.by_reason == {QUEUE_FULL: 1}
    await settled(*kept)
    assert bound.sink.has_room(Message(b"a", b"", 1), 1)


async def test_large_waiting_messages_are_bounded_in_bytes() -> None:
    bound = Bound()
    large = b"x" * (MAX_WAITING_BYTES // 2)
    first, second = bound.offer(b"x" * (2 * MAX_WAITING_BYTES)), bound.offer(large)
    assert (first.pending, second.code) == (1, QUOTA_EXCEEDED)
    await settled(first)
    kept = bound.offer(large)
    await settled(kept)
    assert [len(each) for each in bound.got] == [2 * MAX_WAITING_BYTES, len(large)]


async def test_a_handler_that_is_cancelled_fails_for_its_message_alone() -> None:
    async def cancelled(message: Incoming) -> None:
        if message.payload == b"1":
            raise asyncio.CancelledError

    bound = Bound(cancelled)
    first, second = bound.offer(b"1"), bound.offer(b"2")
    await settled(first, second)
    assert (first.code, second.code) == (FAILED, 0)


async def test_a_plan_says_whether_messages_wait_before() -> None:
    bound = Bound()
    message = Message(b"a", b"", 1)
    assert bound.sink.outlook(message, THE_PROGRAM, True)[0].outcome == SENT
    tally = bound.offer()
    assert bound.sink.outlook(message, THE_PROGRAM, True)[0].outcome == QUEUED
    await settled(tally)


async def never(message: Incoming) -> None:
    await asyncio.Event().wait()


async def test_a_stop_drops_what_is_not_handled() -> None:
    bound = Bound(never)
    tallies = [bound.offer() for _ in range(3)]
    await asyncio.sleep(0)
    await bound.sink.stop()
    assert [(each.code, each.pending) for each in tallies] == [(FAILED, 0)] * 3
    assert [(each.queued, each.dropped) for each in tallies] == [(0, {NACKED: 1})] * 3
    assert bound.drops.by_reason == {NACKED: 3}
    assert bound.woken == 3, "their publishers are answered at once"
    assert bound.offer().code == QUOTA_EXCEEDED, "it takes nothing any more"
    await bound.sink.stop()
    assert bound.drops.by_reason == {NACKED: 3, QUEUE_FULL: 1}


async def test_a_stop_leaves_messages_to_clients_which_send_them_again() -> None:
    bound = Bound(never)
    client = Session("c", 0, Effects(), Limits())
    tallies = [bound.offer(source=client) for _ in range(2)]
    bound.offer(qos=0, source=client)
    await asyncio.sleep(0)
    await bound.sink.stop()
    assert [(each.code, each.pending, each.dropped) for each in tallies] == [(0, 1, {})] * 2
    assert bound.drops.by_reason == {NACKED: 1}, "nobody sends a message of QoS 0 again"


async def test_a_function_that_ends_what_it_has_at_a_stop_gets_no_other_message() -> None:
    finished: list[bytes] = []

    async def finishes(message: Incoming) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        finished.append(message.payload)

    bound = Bound(finishes)
    first, second = bound.offer(b"1"), bound.offer(b"2")
    await asyncio.sleep(0)
    await bound.sink.stop()
    assert finished == [b"1"]
    assert [(each.code, each.queued, each.pending) for each in (first, second)] == [(0, 1, 0), (FAILED, 0, 0)]


async def test_a_function_that_never_ends_holds_a_stop_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "STOP_S", 0.01)
    released = asyncio.Event()

    async def stubborn(message: Incoming) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    bound = Bound(stubborn)
    first, second = bound.offer(b"1"), bound.offer(b"2")
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await bound.sink.stop()
    assert [(each.code, each.queued, each.pending) for each in (first, second)] == [(FAILED, 0, 0)] * 2
    assert "the function of extension test did not end" in caplog.text
    released.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (first.pending, first.code, bound.drops.by_reason) == (0, FAILED, {NACKED: 2}), "it counts once"
