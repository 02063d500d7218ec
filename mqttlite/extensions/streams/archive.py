"""Keeps what streams had, as Parquet, after the streams have removed it.

A run is a part of a partition within one hour. It is closed when the hour is over or the run is long, and then it is
written to a file. Invariants: the archive holds no message back, also while its disk fails; what the stream removed
before it was archived is counted and logged.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqttlite.core.message import Message
from mqttlite.extensions.streams.archive_files import HOUR_US, ArchiveFiles
from mqttlite.extensions.streams.archive_options import ArchiveOptions
from mqttlite.extensions.streams.errors import NoSuchStream
from mqttlite.extensions.streams.history import ReadEntries, read
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.service import Streams

CHECK_S: Final = 10.0
"""How often it is looked for closed runs."""

GRACE_US: Final = 5_000_000
"""An hour is over so long after its end: what is published at its end is in the store by then."""

MAX_RUN: Final = 50_000
"""The most messages of a file."""

MAX_RUN_BYTES: Final = 16_777_216
"""About the most bytes of messages of a file, which are in memory while it is written."""

SWEEP_S: Final = 600.0
"""How often old files are removed."""

_log: Final = logging.getLogger("mqttlite.archive")


@dataclass(slots=True)
class _Place:
    """How far a partition is archived."""

    next: int
    """The offset of the first message that is not."""
    hour: int = 0
    """Of that message, in hours of Unix time; 0: it was not read yet."""
    of: Partition | None = None
    """Whose messages they are; None: it was not looked at yet."""
    is_foreign: bool = False
    """Whether the files are of another stream of that name, so that nothing may be added."""


class Archive:
    """`entries` reads the store, and `unix_us` is the wall clock. Only streams that the options name are archived."""

    def __init__(
        self, options: ArchiveOptions, streams: Streams, entries: ReadEntries, unix_us: Callable[[], int]
    ) -> None:
        self._names: Final = frozenset(options.streams)
        self._directory: Final = options.directory
        self._files: Final = ArchiveFiles(options)
        self._streams: Final = streams
        self._entries: Final = entries
        self._unix_us: Final = unix_us
        self._places: dict[tuple[str, int], _Place] | None = None
        """None: the files were not looked at yet."""
        self._swept_us = 0
        self._failing: Final[set[str]] = set()
        """The streams whose archive cannot be written; "" for all."""
        self.archived: Final[Counter[str]] = Counter()
        """Messages in files, by stream, since the start."""
        self.missed: Final[Counter[str]] = Counter()
        """Messages that were removed first."""

    async def run(self) -> None:
        """Archive until it is cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_S)

    async def check(self) -> None:
        """Write all runs that are closed. What fails for one stream costs the others nothing."""
        if not await self._try("", self._prepare) or self._places is None:
            return
        for name in self._streams.names:
            if not self._names or name in self._names:
                await self._try(name, partial(self._stream, name, self._places))

    async def _try(self, stream: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether some work for a stream, or for all of them, is done; the log says when it begins and ends to fail."""
        what = f"the stream {stream}" if stream else "streams"
        try:
            await work()
        except Exception as error:  # whatever the disk, the store or pyarrow raises: it may be better next time
            if stream not in self._failing:
                self._failing.add(stream)
                _log.error("the archive of %s in %s cannot be written: %s", what, self._directory, error)
            return False
        if stream in self._failing:
            self._failing.discard(stream)
            _log.info("the archive of %s in %s is written again", what, self._directory)
        return True

    async def _prepare(self) -> None:
        """Look at the files, and remove old ones: before others are written, for a full disk has no room for these."""
        if self._places is None:
            places: dict[tuple[str, int], _Place] = {}
            for each in await asyncio.to_thread(self._files.find):
                place = places.setdefault((each.stream, each.partition), _Place(0))
                place.next = max(place.next, each.last + 1)
            self._places = places
        if self._unix_us() - self._swept_us > SWEEP_S * 1_000_000:
            await asyncio.to_thread(self._files.remove_old, self._unix_us())
            self._swept_us = self._unix_us()

    async def _stream(self, name: str, places: dict[tuple[str, int], _Place]) -> None:
        number = 0
        while True:
            try:
                partition = self._streams.partition(name, number)
            except NoSuchStream:  # or there is no such partition
                return
            await self._partition(name, partition, places.setdefault((name, number), _Place(0)))
            number += 1

    async def _partition(self, name: str, partition: Partition, place: _Place) -> None:
        if place.of is None:
            place.of = partition
        if place.next and not place.is_foreign and (place.of is not partition or place.next > partition.end):
            place.is_foreign = True
            _log.error(
                "partition %d of the stream %s is not archived: %s has files of another stream of that name, up to "
                "offset %d; move them away, and start the broker again",
                *(partition.number, name, self._directory, place.next - 1),
            )
        if place.is_foreign:
            return
        place.of = partition
        while await self._next_run(name, partition, place):
            pass

    async def _next_run(self, name: str, partition: Partition, place: _Place) -> bool:
        """Write the next run if it is closed; whether it was."""
        if place.next < partition.first:
            missed = partition.first - place.next
            if place.next or self.archived[name]:
                _log.warning(
                    "%d messages of partition %d of the stream %s were removed before they were archived",
                    *(missed, partition.number, name),
                )
                self.missed[name] += missed
            place.next, place.hour = partition.first, 0
        if place.next == partition.end:
            return False
        if not place.hour:
            found, following = await read(partition, place.next, 1, self._entries)
            if not found:  # it is lost
                place.next = following
                return following < partition.end
            place.hour = found[0][1].number // HOUR_US
        is_over = self._unix_us() - GRACE_US >= (place.hour + 1) * HOUR_US
        if not is_over and partition.end - place.next < MAX_RUN:
            return False
        messages, following = await self._run(partition, place.next)
        if messages:
            await asyncio.to_thread(self._files.write, name, partition.number, place.next, following - 1, messages)
            self.archived[name] += len(messages)
        place.next, place.hour = following, 0
        return True

    async def _run(self, partition: Partition, first: int) -> tuple[list[tuple[int, Message]], int]:
        """The messages from an offset on of one hour, as many as a file has, and the offset after them."""
        run: list[tuple[int, Message]] = []
        size = 0
        following = first
        while len(run) < MAX_RUN and size < MAX_RUN_BYTES and following < partition.end:
            found, after = await read(partition, following, MAX_RUN - len(run), self._entries)
            for offset, message in found:
                if run and message.number // HOUR_US != run[0][1].number // HOUR_US:
                    return run, offset
                run.append((offset, message))
                size += message.memory_bytes
            following = after
        return run, following

    # ------------------------------------------------------------------ figures

    def figures(self) -> Mapping[str, Mapping[str, int]]:
        """By the names in the manifest, then by stream."""
        places = self._places or {}
        names = [each for each in self._streams.names if not self._names or each in self._names]
        waiting = Counter[str]()
        for name in names:
            for at in range(len(self._streams.state(name).partitions)):
                partition, place = self._streams.partition(name, at), places.get((name, at))
                waiting[name] += partition.end - max(partition.first, 0 if place is None else place.next)
        return {
            "stream_archived": {name: self.archived[name] for name in names},
            "stream_archive_waiting": {name: max(0, waiting[name]) for name in names},
            "stream_archive_missed": {name: self.missed[name] for name in names},
        }
