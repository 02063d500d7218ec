"""Begins requests in turn, so that very many at once hold up no client of MQTT.

A task of asyncio runs in the next iteration of the loop: a thousand requests that came together would run in one, for
some tenths of a second. Here an iteration begins as many as take `TURN_S`. Callers that are known and strangers
alternate. Invariant: between two turns the loop reads every socket.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

TURN_S: Final = 0.002
"""The time for the requests of one iteration. One alone may take longer."""

MOST_PER_TURN: Final = 32

Begin = Callable[[], None]


class RequestTurns:
    """One for each gateway."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now: Final = now
        self._known: Final[deque[Begin]] = deque()
        self._strangers: Final[deque[Begin]] = deque()
        self._is_strangers_turn = False
        self._most = 4
        """How many an iteration begins: more while they are short, fewer while they are long."""
        self._left = self._most
        """How many this one may still begin."""
        self._is_open = False
        self._opened_at = 0.0

    @property
    def strangers(self) -> int:
        """How many requests of strangers wait."""
        return len(self._strangers)

    def start(self, begin: Begin, is_known: bool) -> None:
        """Call `begin`, which makes a task, now or when its turn comes."""
        if self._left:
            self._left -= 1
            self._open()
            begin()
        else:
            (self._known if is_known else self._strangers).append(begin)

    def _open(self) -> None:
        """Begin a turn: requests that begin from now on belong to it."""
        if not self._is_open:
            self._is_open = True
            self._opened_at = self._now()
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The tasks of the turn have run, and the loop has read every socket."""
        self._is_open = False
        if self._now() - self._opened_at > TURN_S:
            self._most = max(1, self._most // 2)
        elif not self._left:
            self._most = min(MOST_PER_TURN, self._most * 2)
        self._left = self._most
        while self._left and (self._known or self._strangers):
            self._left -= 1
            self._open()
            self._is_strangers_turn = not self._is_strangers_turn
            first, others = self._known, self._strangers
            if self._is_strangers_turn:
                first, others = others, first
            (first or others).popleft()()
