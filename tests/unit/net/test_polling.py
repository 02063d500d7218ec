"""When the loop polls, and for how long."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from mqttlite.net.polling import ASK_S, POLL_S, REST_S, TALKERS, Poller, Spare

A_PASS = POLL_S / 10


class Loop(asyncio.AbstractEventLoop):
    """Calls what it is asked to call only when a test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[..., object]] = []

    def call_soon(self, callback: Callable[..., object], *_args: Any, **_kwargs: Any) -> asyncio.Handle:
        self.due.append(callback)
        return cast("asyncio.Handle", None)


class World:
    """A poller, its loop, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.is_idle = True
        self.asked = 0
        self.loop = Loop()
        self.poller = Poller(self.loop, Spare(self._has_idle_processor))
        self.poller.clock = lambda: self.now

    def _has_idle_processor(self) -> bool:
        self.asked += 1
        return self.is_idle

    def hear(self, *talkers: int, pause: float = POLL_S / 2) -> None:
        for talker in talkers:
            self.now += pause
            self.poller.heard(talker)

    def passes(self, at_most: int = 100) -> int:
        """How many passes it takes until the loop may sleep."""
        for count in range(at_most):
            due, self.loop.due = self.loop.due, []
            if not due:
                return count
            assert len(due) == 1
            self.now += A_PASS
            due[0]()
        raise AssertionError("the loop never sleeps")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("talkers", [(1, 1), (1, 2, 1), (1, 2, 3, 4, 1)])
def test_few_that_talk_with_short_pauses_are_polled_for(world: World, talkers: tuple[int, ...]) -> None:
    world.hear(*talkers[:-1])
    assert world.passes() == 0  # who speaks first is no conversation yet
    world.hear(talkers[-1])
    assert world.passes() == pytest.approx(POLL_S / A_PASS, abs=1)


def test_who_comes_between_does_not_push_out_whoever_spoke_just_now(world: World) -> None:
    world.hear(1, 2, 1, *range(10, 9 + TALKERS))
    world.passes()
    world.hear(1)
    assert world.passes() > 0
    world.hear(*range(20, 20 + TALKERS), 1)
    assert world.passes() == 0


def test_many_are_no_conversation(world: World) -> None:
    for _ in range(3):
        world.hear(*range(TALKERS + 1))
    assert world.passes() == 0
    assert world.asked == 0


def test_after_a_long_pause_the_next_short_one_is_waited_for(world: World) -> None:
    world.hear(1)
    world.hear(1, pause=POLL_S * 1.01)
    assert world.passes() == 0
    world.hear(1, pause=POLL_S * 0.99)
    assert world.passes() > 0


def test_polling_in_vain_ends_it(world: World) -> None:
    world.hear(1, 1)
    assert world.passes() > 0
    world.hear(1)  # the passes above were a long pause
    assert world.passes() == 0


def test_whoever_speaks_meanwhile_prolongs_it_and_nothing_is_called_twice(world: World) -> None:
    world.hear(1, 1)
    for _ in range(50):
        world.hear(1)
        assert len(world.loop.due) == 1
    assert world.passes() == pytest.approx(POLL_S / A_PASS, abs=1)


def test_not_while_others_need_the_processor(world: World) -> None:
    world.is_idle = False
    world.hear(1, 1)
    assert world.passes() == 0


def test_whether_one_is_idle_is_asked_now_and_then(world: World) -> None:
    pause = POLL_S / 2
    world.hear(1, *[1] * round(2.5 * ASK_S / pause))
    assert world.asked == 3


def test_it_ends_when_others_come_and_rests_then(world: World) -> None:
    pause = POLL_S / 2
    world.hear(1, 1)
    world.is_idle = False
    world.hear(*[1] * round(1.5 * ASK_S / pause))
    assert world.passes() == 1  # the one that was under way
    world.is_idle = True
    asked = world.asked
    world.hear(1, *[1] * round((REST_S - 2 * ASK_S) / pause))
    assert world.passes() == 0
    assert world.asked == asked
    world.hear(1, *[1] * round(2 * ASK_S / pause))
    assert world.passes() > 0
