"""Runs what takes long in a few threads, fairly: addresses that wait take turns, however much one of them asks.

What is run lives elsewhere. Invariant: there is always a waiting place for an address that has none, unless as many
addresses wait as there are places.
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

    An address may take as many places as it leaves free: one alone has half of them, two have a third each.
    """

    def __init__(self, threads: int, places: int, name: str) -> None:
        self._threads: Final = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._at_once: Final = threads
        self._places: Final = places
        self._running = 0
        self._waiting = 0
        self._lanes: Final[OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()
        """Who waits, by address; the first address is the next to have its turn."""

    async def run(self, address: str, work: Callable[[], T]) -> T:
        """What `work` returns, from a thread. Raises `TooBusy`, and what `work` raises."""
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
                self._pass_on()  # its turn came at the same moment
            raise

    def _leave(self, address: str, turn: asyncio.Future[None]) -> None:
        lane = self._lanes.get(address)
        if lane is None or turn not in lane:
            return  # a thread was free in between, and found it gone
        lane.remove(turn)
        self._waiting -= 1
        if not lane:
            del self._lanes[address]

    def _pass_on(self) -> None:
        """A thread is free: the next address has its turn, then comes last."""
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
