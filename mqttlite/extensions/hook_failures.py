"""Counts and logs what hooks do wrong, and ends those that are late."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

_LOG_S: Final = 1.0
"""The shortest time between two log lines about one hook."""

_log = logging.getLogger("mqttlite.hooks")

T = TypeVar("T")


class HookFailed(Exception):
    """A hook raised, was late or returned something else than it may."""


class HookFailures:
    """One for each broker. `clock` gives the broker's seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self.counts: Final[Counter[str]] = Counter()
        """How often each hook raised or was late, by its name."""
        self._logged_at: Final[dict[str, float]] = {}

    def note(self, hook: str, error: BaseException, outcome: str) -> str:
        """Count and log a failure of a hook, and what becomes of its message or client. Return the sentence for
        operators."""
        self.counts[hook] += 1
        why = str(error) if isinstance(error, HookFailed) else f"raised {error!r}"
        sentence = f"hook {hook} {why}"
        now = self._clock()
        if now - self._logged_at.get(hook, -_LOG_S) >= _LOG_S:
            self._logged_at[hook] = now
            _log.warning("%s: %s", sentence[:500], outcome[:300])
        return sentence


async def in_time(waits: Awaitable[T], deadline_s: float) -> T:
    """The result of a hook's coroutine. Raises `HookFailed` if it takes longer."""
    late = asyncio.timeout(deadline_s)
    try:
        async with late:
            return await waits
    except TimeoutError:
        if late.expired():
            raise HookFailed(f"was not done after {deadline_s:g} s") from None
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise HookFailed("waited for something that was cancelled") from None
