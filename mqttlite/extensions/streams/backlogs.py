"""How far the readers and groups of all streams are behind, measured in rounds: what figures show of them.

Invariant: a call looks at `MAX_MEASURED` places, and those of one more step, at most.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mqttlite.extensions.streams.limits import MAX_MEASURED, MEASURED_AT_ONCE
from mqttlite.extensions.streams.service import Streams
from mqttlite.extensions.streams.states import (
    GroupState,
    KeptStream,
    cursors_of,
    logs_of,
    shared_members_of,
    state_of_group,
)
from mqttlite.telemetry.figures import MAX_REPORTED

_GROUP_PLACES: Final = 5
"""As many places of cursors take as long as one of a group whose state is shown: that asks the segments."""


class Backlog(NamedTuple):
    """What the reader of a stream that is behind the most has not finished."""

    lag: int
    """The most messages that a reader or group has not finished."""
    oldest_us: int
    """When the oldest of them was published, at the earliest, in microseconds of Unix time; 0: all are finished."""
    retention_left: float
    """Which part of the time or room that the stream gives a message is left to that one."""


@dataclass(slots=True)
class _Round:
    """What one round has found."""

    streams: dict[str, Backlog] = field(default_factory=dict)
    groups: dict[str, list[GroupState]] = field(default_factory=dict)


class Backlogs:
    """Of the first `MAX_REPORTED` streams by name, and of as many of their groups. `most` is the number of places, one
    for each reader or group and partition, after which a call ends; the next one goes on with the round."""

    def __init__(self, streams: Streams, most: int = MAX_MEASURED) -> None:
        self._streams: Final = streams
        self._most: Final = most
        self._steps: Iterator[int] | None = None
        """Those that are left of the round that is under way."""
        self._found = _Round()

    @property
    def streams(self) -> Mapping[str, Backlog]:
        """By name. A new stream of many has none until its turn comes."""
        return self._found.streams

    @property
    def groups(self) -> Mapping[str, list[GroupState]]:
        """By stream, the first ones by name."""
        return self._found.groups

    def measure(self) -> None:
        """Measure all of them; of many, as many as a call may, in turn. The others are as they were."""
        left = self._most
        if self._steps is None:
            self._steps = self._measured()
        for places in self._steps:
            left -= places
            if left <= 0:
                return
        self._steps = None

    def _measured(self) -> Iterator[int]:
        """Measure each stream. Yield the number of places of each step."""
        found = _Round()
        room = MAX_REPORTED
        for name in heapq.nsmallest(MAX_REPORTED, self._streams.names):
            kept = self._streams.find(name)
            if kept is None:
                continue
            states: list[GroupState] = []
            yield from _measured_groups(kept, states, room)
            room -= len(states)
            yield from self._measured_stream(name, kept, found)
            self._found.groups[name] = found.groups[name] = states
        self._found = found

    def _measured_stream(self, name: str, kept: KeptStream, found: _Round) -> Iterator[int]:
        stream = kept.stream
        ends = [each.end for each in stream.partitions]
        lowest, count, lag, places = ends, len(ends), 0, 0
        cursors = cursors_of(kept)
        step = max(1, MEASURED_AT_ONCE // count)
        for at in range(0, len(cursors), step):
            if places:
                yield places
            logs, some = logs_of(stream), cursors[at : at + step]
            for cursor in some:
                lag = max(lag, cursor.lag(logs))
                lowest = list(map(min, lowest, cursor.positions))
            places = count * len(some)
        # The lower a position, the older its message and the less is left: these are the figures of the worst reader.
        positions = [
            each.end if low >= end else low  # all that there was when the step before was done is finished
            for each, low, end in zip(stream.partitions, lowest, ends, strict=True)
        ]
        self._found.streams[name] = found.streams[name] = Backlog(lag, *stream.unfinished(positions))
        yield places


def _measured_groups(kept: KeptStream, states: list[GroupState], most: int) -> Iterator[int]:
    members = shared_members_of(kept)
    yield len(kept.readers) + len(kept.stream.partitions)
    for name in heapq.nsmallest(most, kept.groups):
        group = kept.groups.get(name)
        if group is not None:
            states.append(state_of_group(kept, group, members.get(name, [])))
            yield _GROUP_PLACES * len(kept.stream.partitions)
