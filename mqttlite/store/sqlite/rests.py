"""The store's thread yields Python's lock here, so that the event loop never waits long for it.

Compiled code does not yield by itself: a commit of a hundred thousand messages would hold the lock for a tenth of a
second. Invariant: at most `MESSAGES_BETWEEN_RESTS` messages are handled between two rests, plus those of one call.
"""

import time
from collections.abc import Callable
from typing import Final, final

MESSAGES_BETWEEN_RESTS: Final = 256
"""How many messages a job handles between two rests: some tenths of a millisecond."""


def yield_lock() -> None:
    """Let another thread that waits for Python's lock have it."""
    time.sleep(0)


@final
class Rests:
    """One for each writer and reader. `rest` yields the lock."""

    __slots__ = ("_handled", "_rest")

    def __init__(self, rest: Callable[[], None] = yield_lock) -> None:
        self._rest: Final = rest
        self._handled = 0

    def after(self, messages: int) -> None:
        """Count handled messages, and rest if it is time."""
        self._handled += messages
        if self._handled >= MESSAGES_BETWEEN_RESTS:
            self._handled = 0
            self._rest()
