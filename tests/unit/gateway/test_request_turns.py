"""Requests begin in turn: few in each iteration of the loop, known callers and strangers alternately."""

import asyncio
from collections.abc import Callable

from mqttlite.gateway.request_turns import MOST_PER_TURN, TURN_S, RequestTurns


class Clock:
    """A clock that runs while requests do: each takes `cost_s`."""

    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s
        self.now = 0.0
        self.begun: list[str] = []
        """The names of requests."""
        self._tasks: list[asyncio.Task[None]] = []

    def __call__(self) -> float:
        return self.now

    def request(self, name: str) -> Callable[[], None]:
        async def run() -> None:
            self.begun.append(name)
            self.now += self.cost_s

        return lambda: self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def until_done(self, requests: int) -> list[int]:
        """Run the loop until all are begun; how many ran in each iteration."""
        sizes: list[int] = []
        while len(self.begun) < requests:
            before = len(self.begun)
            await asyncio.sleep(0)
            sizes.append(len(self.begun) - before)
        return sizes


async def test_slow_requests_begin_one_by_one_and_quick_ones_together() -> None:
    for cost_s, most in ((10 * TURN_S, 1), (TURN_S / 1_000, MOST_PER_TURN)):
        clock = Clock(cost_s)
        turns = RequestTurns(clock)
        for number in range(500):
            turns.start(clock.request(str(number)), is_known=False)
        assert turns.strangers == 496
        sizes = await clock.until_done(500)
        assert clock.begun == [str(number) for number in range(500)]
        assert max(sizes[8:]) == most
        assert turns.strangers == 0


async def test_known_callers_and_strangers_alternate() -> None:
    clock = Clock(10 * TURN_S)
    turns = RequestTurns(clock)
    for _ in range(100):
        turns.start(clock.request("stranger"), is_known=False)
    for _ in range(10):
        turns.start(clock.request("known"), is_known=True)
    assert turns.strangers == 96
    await clock.until_done(110)
    assert clock.begun[4:24].count("known") == 10
    assert clock.begun[24:].count("known") == 0


async def test_a_request_alone_begins_at_once() -> None:
    clock = Clock(TURN_S)
    turns = RequestTurns(clock)
    for number in range(20):
        turns.start(clock.request(str(number)), is_known=False)
        await asyncio.sleep(0)
        assert len(clock.begun) == number + 1
        for _ in range(3):
            await asyncio.sleep(0)
