"""The values of the figures of streams, and what `$SYS` says of them."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mqttlite.extensions.streams.backlogs import Backlogs
from mqttlite.extensions.streams.service import Streams
from mqttlite.extensions.streams.states import GroupState
from mqttlite.telemetry.figures import MAX_REPORTED, Values
from mqttlite.telemetry.growth import Growth, shown_growth

if TYPE_CHECKING:
    from mqttlite.extensions.streams.archive import Archive

MAX_PUBLISHED: Final = 100
"""Streams, the first by name, and groups of them that `$SYS` tells of: the broker retains seven messages for each
stream, and six for each group."""


class StreamFigures:
    """Of the streams of one broker. `clock` returns the broker's seconds."""

    def __init__(self, streams: Streams, archive: "Archive | None", clock: Callable[[], float]) -> None:
        self._streams: Final = streams
        self._archive: Final = archive
        self._clock: Final = clock
        self._growth: Final = Growth()
        self._backlogs: Final = Backlogs(streams)

    def values(self) -> Mapping[str, Values]:
        """Of the first streams and groups by name; by the names in the manifest."""
        self._backlogs.measure()
        return _values(self._streams, self._backlogs, self._archive)

    def sys_values(self) -> Iterator[tuple[str, str]]:
        """The names below `$SYS/broker`, and their values."""
        streams, backlogs, now = self._streams, self._backlogs, self._clock()
        backlogs.measure()
        names = heapq.nsmallest(MAX_PUBLISHED, streams.names)
        told = [(name, each) for name in names for each in backlogs.groups.get(name, ())][:MAX_PUBLISHED]
        self._growth.keep({*names, *(_named(name, each) for name, each in told)})
        for name in names:
            state, below = streams.state(name), f"streams/{name}"
            yield f"{below}/messages", str(state.messages)
            yield f"{below}/bytes", str(state.size_bytes)
            yield f"{below}/readers", str(state.readers)
            if name in backlogs.streams:
                yield from self._behind(below, name, *backlogs.streams[name], now)
        for name, each in told:
            below = f"streams/{name}/groups/{each.name}"
            yield from self._behind(below, _named(name, each), each.lag, each.oldest_us, each.retention_left, now)
            yield f"{below}/members", str(len(each.members))
            yield f"{below}/moves", str(each.moves)

    def _behind(
        self, below: str, name: str, lag: int, oldest_us: int, left: float, now: float
    ) -> Iterator[tuple[str, str]]:
        yield f"{below}/lag", str(lag)
        yield f"{below}/growth", shown_growth(self._growth.note(name, lag, now))
        yield f"{below}/unfinished_s", str((self._streams.now_us - oldest_us) // 1_000_000 if oldest_us else 0)
        yield f"{below}/retention_left", f"{left:.2f}"


def _named(stream: str, group: GroupState) -> str:
    return f"{stream}/{group.name}"


def _values(streams: Streams, backlogs: Backlogs, archive: "Archive | None") -> Mapping[str, Values]:
    states = [streams.state(name) for name in heapq.nsmallest(MAX_REPORTED, streams.names)]
    labels = [{"stream": each.name} for each in states]
    archived = {} if archive is None else archive.figures()
    groups = [
        ({"stream": state.name, "group": each.name}, each)
        for state in states
        for each in backlogs.groups.get(state.name, ())
    ][:MAX_REPORTED]
    now_us = streams.now_us
    behind = [
        (label, backlogs.streams[each.name])
        for label, each in zip(labels, states, strict=True)
        if each.name in backlogs.streams
    ]
    return {
        "stream_messages": [(label, each.messages) for label, each in zip(labels, states, strict=True)],
        "stream_bytes": [(label, each.size_bytes) for label, each in zip(labels, states, strict=True)],
        "stream_readers": [(label, each.readers) for label, each in zip(labels, states, strict=True)],
        "stream_lag": [(label, each.lag) for label, each in behind],
        "stream_unfinished_seconds": [
            (label, (now_us - each.oldest_us) / 1e6 if each.oldest_us else 0.0) for label, each in behind
        ],
        "stream_retention_left": [(label, each.retention_left) for label, each in behind],
        "stream_group_unfinished_seconds": [
            (label, (now_us - each.oldest_us) / 1e6 if each.oldest_us else 0.0) for label, each in groups
        ],
        "stream_group_retention_left": [(label, each.retention_left) for label, each in groups],
        "stream_group_lag": [(label, each.lag) for label, each in groups],
        "stream_group_under_way": [(label, each.under_way) for label, each in groups],
        "stream_group_scheduled": [(label, each.scheduled) for label, each in groups],
        "stream_group_dead_letters": [(label, each.dead_letters) for label, each in groups],
        "stream_group_redeliveries": [(label, each.redeliveries) for label, each in groups],
        "stream_group_moves": [(label, each.moves) for label, each in groups],
        "stream_appended": [(label, each.appended) for label, each in zip(labels, states, strict=True)],
        "stream_duplicates": [(label, each.duplicates) for label, each in zip(labels, states, strict=True)],
        "stream_refused": [(label, each.refused) for label, each in zip(labels, states, strict=True)],
        "stream_removed": [(label, each.removed) for label, each in zip(labels, states, strict=True)],
        **{
            name: [({"stream": stream}, value) for stream, value in archived.get(name, {}).items()]
            for name in ("stream_archived", "stream_archive_waiting", "stream_archive_missed")
        },
    }
