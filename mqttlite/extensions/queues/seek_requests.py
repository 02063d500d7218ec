"""Common code of seek requests: parsing a time, and waiting until the seek is done.

Invariant: when a request is done, its changes are committed, and no older message is delivered, not even by a push
under way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from mqttlite.extensions.queues.errors import NoSuchQueue
from mqttlite.extensions.queues.service import Queues

SEEK_TIMEOUT_S: Final = 30.0
"""How long a request waits. A search reads some dozens of messages; only a hanging store takes longer."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class SeekTimedOut(Exception):
    """The store does not answer. The seek completes when it does."""


def parse_time(text: str) -> int:
    """Parse an RFC 3339 time to microseconds of Unix time. Raises `ValueError`."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError
        return max(0, (at - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time: write it as 2026-11-24T08:30:00Z") from None


def time_text_of(seconds: float) -> str:
    """Format seconds of Unix time as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Seeks:
    """`commit` carries out changes and waits until they are committed. `end_pushes` waits for push requests whose
    messages the seek took back, and cancels those that take too long."""

    def __init__(
        self, queues: Queues, commit: Callable[[], Awaitable[None]], end_pushes: Callable[[str], Awaitable[None]] | None
    ) -> None:
        self._queues: Final = queues
        self._commit: Final = commit
        self._end_pushes: Final = end_pushes

    async def to_time(self, name: str, number: int) -> None:
        """Seek a queue to a time. Raises `NoSuchQueue`, `SeekUnderWay` and `SeekTimedOut`."""
        done = asyncio.Event()
        self._queues.seek(name, number, done.set)
        if not done.is_set():
            await self._commit()  # sends the question to the store
            try:
                await asyncio.wait_for(done.wait(), SEEK_TIMEOUT_S)
            except TimeoutError:
                raise SeekTimedOut("the store did not answer in time; the queue is sought when it does") from None
        await self.finish(name)
        if name not in self._queues:
            raise NoSuchQueue(f"the queue {name} was deleted")

    async def to_snapshot(self, name: str, snapshot: str) -> None:
        """Seek a queue to a snapshot. Raises `NoSuchQueue`, `NoSuchSnapshot` and `SnapshotRefused`."""
        self._queues.seek_snapshot(name, snapshot)
        await self.finish(name)

    async def finish(self, name: str) -> None:
        """Wait until what was done to a queue is committed, and no push of a message is open that it lost."""
        await self._commit()
        if self._end_pushes is not None:
            await self._end_pushes(name)
