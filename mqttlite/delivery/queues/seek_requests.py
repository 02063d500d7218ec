"""What requests to seek a queue have in common: a time as they write it, and waiting until the queue is there.

Invariant: when `seek_time` and `seek_snapshot` return, what they did is committed, and nothing older is delivered.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from mqttlite.delivery.queues.errors import NoSuchQueue
from mqttlite.delivery.queues.service import Queues

SEEK_TIMEOUT_S: Final = 30.0
"""How long a request waits. A search reads some dozens of messages: this is a store that does not answer."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class SeekTimedOut(Exception):
    """The store does not answer; the queue is sought when it does."""


def parse_time(text: str) -> int:
    """A time as RFC 3339 writes it, in microseconds of Unix time. Raises `ValueError`."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError
        return max(0, (at - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time: write it as 2026-11-24T08:30:00Z") from None


def time_text_of(seconds: float) -> str:
    """The opposite, of seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def seek_time(queues: Queues, name: str, number: int, commit: Callable[[], Awaitable[None]]) -> None:
    """Seek a queue to a time. Raises `NoSuchQueue`, `SeekUnderWay` and `SeekTimedOut`."""
    done = asyncio.Event()
    queues.seek(name, number, done.set)
    if not done.is_set():
        await commit()  # so that the question is asked
        try:
            await asyncio.wait_for(done.wait(), SEEK_TIMEOUT_S)
        except TimeoutError:
            raise SeekTimedOut("the store did not answer in time; the queue is sought when it does") from None
    await commit()
    if name not in queues.names:
        raise NoSuchQueue(f"the queue {name} was deleted")


async def seek_snapshot(queues: Queues, name: str, snapshot: str, commit: Callable[[], Awaitable[None]]) -> None:
    """Seek a queue to a snapshot. Raises `NoSuchQueue`, `NoSuchSnapshot` and `SnapshotRefused`."""
    queues.seek_snapshot(name, snapshot)
    await commit()
