"""When a loop naps between two passes, for how long, and when it polls instead."""

import asyncio
from typing import cast

import pytest

from mqttlite.net.pauses import (
    GATHER_BYTES,
    GATHER_FROM,
    GATHER_FROM_AMONG_WORKERS,
    GATHER_S,
    GATHER_TO,
    MODERATE_BYTES,
    MODERATE_S,
    Pauses,
)
from mqttlite.net.polling import ASK_S, POLL_S, REST_S


class World:
    """What a loop pauses by, and a clock that stands still but for naps. Others need the processor."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.now = 100.0
        self.is_idle: bool | None = False
        self.slack = 0.0
        self.asked = 0
        self.naps: list[float] = []
        self.polls = 0
        self.pauses = Pauses(cast("asyncio.AbstractEventLoop", self), self._has_idle_processor if is_known else None)
        self.pauses.clock = lambda: self.now
        self.pauses.nap = self._nap
        if self.pauses.poller is not None:
            self.pauses.poller.clock = lambda: self.now

    def call_soon(self, _callback: object) -> None:
        self.polls += 1

    def _has_idle_processor(self) -> bool | None:
        self.asked += 1
        return self.is_idle

    def _nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds + self.slack

    def passes(
        self,
        count: int,
        *,
        every: float = MODERATE_S / 2,
        reads: int = 2,
        writes: int = 1,
        size: int = MODERATE_BYTES,
        talker: int = 0,
        among_workers: bool = True,
    ) -> list[float]:
        """The naps after so many passes."""
        self.naps.clear()
        for _ in range(count):
            self.now += every
            self.pauses.after(reads, writes, size, talker, among_workers)
        return self.naps


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize(
    ("reads", "size"),
    [
        (1, MODERATE_BYTES),
        (0, GATHER_BYTES - 1),
        (GATHER_FROM_AMONG_WORKERS, 1),
        (GATHER_FROM_AMONG_WORKERS, GATHER_BYTES),
        (GATHER_TO + 1, 1),
    ],
)
def test_workers_that_have_no_processor_of_their_own_have_passes_that_are_far_apart(
    world: World, reads: int, size: int, writes: int
) -> None:
    world.passes(1)
    begun = world.now
    assert world.passes(4, reads=reads, writes=writes, size=size) == pytest.approx([MODERATE_S / 2] * 4)
    assert world.now == pytest.approx(begun + 4 * MODERATE_S)


def test_from_the_end_of_a_nap_whenever_that_is(world: World) -> None:
    world.slack = MODERATE_S
    world.passes(1)
    assert world.passes(4) == pytest.approx([MODERATE_S / 2] * 4)


def test_the_first_of_them_is_not_delayed(world: World) -> None:
    assert world.passes(1) == []


def test_the_time_that_a_pass_takes_is_no_nap(world: World) -> None:
    world.passes(1)
    assert world.passes(5, every=MODERATE_S * 1.01) == []
    assert world.passes(2, every=MODERATE_S * 0.9) == pytest.approx([MODERATE_S * 0.1] * 2)


def test_a_word_that_somebody_waits_for_delays_nobody(world: World) -> None:
    world.passes(1)
    assert world.passes(5, reads=GATHER_FROM_AMONG_WORKERS - 1, size=MODERATE_BYTES - 1) == []


def test_of_few_streams_that_have_much_no_more_need_gather(world: World) -> None:
    world.passes(1)
    assert world.passes(5, reads=GATHER_FROM_AMONG_WORKERS - 1, size=GATHER_BYTES) == []


def test_one_process_has_its_processor(world: World) -> None:
    world.passes(1)
    assert world.passes(5, among_workers=False) == []
    assert world.asked == 0


def test_nobody_is_delayed_while_a_processor_is_idle(world: World) -> None:
    world.is_idle = True
    world.passes(1)
    assert world.passes(10, every=ASK_S * 0.19) == []
    assert world.asked == 2
    world.passes(3, every=REST_S)
    world.is_idle = False
    world.passes(1, every=REST_S)
    assert world.passes(1) == pytest.approx([MODERATE_S / 2])


def test_a_pass_counts_whether_or_not_a_processor_was_idle(world: World) -> None:
    world.is_idle = True
    every = MODERATE_S * 0.9
    world.passes(2 + int(ASK_S / every), every=every)
    assert world.asked == 1
    world.is_idle = False
    assert world.passes(1, every=every) == pytest.approx([MODERATE_S * 0.1])
    assert world.asked == 2


def test_nobody_is_delayed_where_it_is_not_known_this_time(world: World) -> None:
    world.is_idle = None
    world.passes(1)
    assert world.passes(10) == []
    assert world.asked == 1


def test_when_none_was_idle_nobody_asks_for_a_while(world: World) -> None:
    world.passes(2)
    world.is_idle = True
    assert len(world.passes(round(0.9 * REST_S / MODERATE_S))) == round(0.9 * REST_S / MODERATE_S)
    assert world.asked == 1
    world.passes(round(0.2 * REST_S / MODERATE_S))
    assert world.asked == 2
    assert world.passes(5, every=MODERATE_S / 10) == []


def test_where_that_is_never_known_nobody_waits_for_others() -> None:
    world = World(is_known=False)
    assert world.passes(5) == []
    assert world.pauses.poller is None


@pytest.mark.parametrize(("among_workers", "reads"), [(False, GATHER_FROM), (True, GATHER_FROM_AMONG_WORKERS)])
@pytest.mark.parametrize("is_known", [False, True])
def test_single_messages_gather_whoever_needs_the_processor(among_workers: bool, reads: int, is_known: bool) -> None:
    world = World(is_known=is_known)
    world.is_idle = True
    assert world.passes(3, among_workers=among_workers, reads=reads, size=1) == [GATHER_S] * 3


def test_who_talks_is_polled_for(world: World) -> None:
    world.is_idle = True
    world.passes(2, reads=1, talker=7, every=POLL_S / 2)
    assert (world.polls, world.naps, world.asked) == (1, [], 1)


def test_who_talks_while_processors_are_short_is_let_work(world: World) -> None:
    world.passes(1, reads=1, talker=7)
    assert world.pauses.poller is not None
    world.pauses.poller.clock = world.pauses.clock = lambda: next(times)
    times = iter([world.now, world.now])  # nothing else asks for the time
    world.naps.clear()
    world.pauses.after(1, 1, MODERATE_BYTES, 7, True)
    assert world.naps == pytest.approx([MODERATE_S])
    assert list(times) == []
