"""Runs slow work in a few threads, fairly: waiting addresses take turns, however many requests one of them has.

Invariant: an address without a waiting request can always add one, unless as many addresses wait as there are places.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mqttlite.security.authenticator import TooBusy

T = TypeVar("T")


class FairQueue:
    """Used in one event loop. `threads` run at once, and `places` wait for one of them.

    An address may use at most as many places as it leaves free: one alone gets half, two get a third each.
    """

    def __init__(self, threads: int, places: int, name: str) -> None:
        self._threads: Final = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._at_once: Final = threads
        self._places: Final = places
        self._running = 0
        self._waiting = 0
        self._lanes: Final[OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()
        """The waiting requests by address. The first address has the next turn."""

    async def run(self, address: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result. Raises `TooBusy`, and what `work` raises."""
        if self._running < self._at_once:
            self._running += 1
        else:
            await self._turn(address)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pass_on()

    async def _turn(self, address: str) -> None:
        lane = self._lanes.get(address)
        if (0 if lane is None else len(lane)) >= self._places - self._waiting:
            raise TooBusy(f"{self._waiting} clients wait for their passwords to be checked")
        if lane is None:
            lane = self._lanes[address] = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(address, turn)
            else:
                self._pass_on()  # it got its turn at the same moment
            raise

    def _leave(self, address: str, turn: asyncio.Future[None]) -> None:
        lane = self._lanes.get(address)
        if lane is None or turn not in lane:
            return  # a thread has taken and skipped it already
        lane.remove(turn)
        self._waiting -= 1
        if not lane:
            del self._lanes[address]

    def _pass_on(self) -> None:
        """A thread is free: give the next address its turn, and move it to the end."""
        while self._lanes:
            address, lane = self._lanes.popitem(last=False)
            turn = lane.popleft()
            self._waiting -= 1
            if lane:
                self._lanes[address] = lane
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
