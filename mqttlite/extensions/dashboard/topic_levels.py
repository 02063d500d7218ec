"""The tree of topics with retained messages, one level at a time.

Invariant: a look at a level holds up the loop for one slice at a time, and looks at `MAX_LOOKED` messages at most.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mqttlite.core.message import Message
from mqttlite.core.retained.retained_store import RetainedStore

SLICE: Final = 500
"""Messages to look at in one loop iteration: less than a millisecond."""

MAX_LOOKED: Final = 100_000
"""Messages that one look at a level counts: a tenth of a second of the loop, in slices."""

MAX_ROWS: Final = 500
"""Levels that a page shows, the first in the order of their names."""


@dataclass(slots=True)
class Row:
    """One topic level below the one that is shown."""

    name: str
    topic: str
    message: Message | None = None
    """The message that is retained on this very topic, if the caller may see it."""
    below: int = 0
    """Topics below it that have a retained message."""


@dataclass(slots=True)
class Level:
    """The next levels below a topic."""

    rows: list[Row] = field(default_factory=list)
    message: Message | None = None
    """The message that is retained on the topic itself."""
    topics: int = 0
    is_complete: bool = True
    """False where there was more than is looked at."""


async def look(retained: RetainedStore, topic: str | None, may_see: Callable[[bytes], bool]) -> Level:
    """The level below a topic; None: the first level. `may_see` says whether the caller may receive a topic."""
    prefix = "" if topic is None else f"{topic}/"
    found = Level()
    rows: dict[str, Row] = {}
    search = retained.search(f"{prefix}#".encode())
    looked = 0
    while len(search):
        if looked >= MAX_LOOKED:
            found.is_complete = False
            break
        looked += SLICE
        for message in search.take(SLICE):
            if not may_see(message.topic):
                continue
            name = message.topic.decode()
            if name == topic:
                found.message = message
                continue
            found.topics += 1
            level, slash, _ = name[len(prefix) :].partition("/")
            row = rows.get(level)
            if row is None:
                row = rows[level] = Row(level, prefix + level)
            if slash:
                row.below += 1
            else:
                row.message = message
        await asyncio.sleep(0)
    ordered = sorted(rows.values(), key=lambda row: row.name)
    if len(ordered) > MAX_ROWS:
        found.is_complete = False
    found.rows = ordered[:MAX_ROWS]
    return found
