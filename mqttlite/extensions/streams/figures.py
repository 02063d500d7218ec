"""The values of the figures of streams."""

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mqttlite.extensions.streams.service import Streams
from mqttlite.extensions.streams.states import GroupState
from mqttlite.telemetry.figures import MAX_REPORTED, Values

if TYPE_CHECKING:
    from mqttlite.extensions.streams.archive import Archive


def values(streams: Streams, archive: "Archive | None") -> Mapping[str, Values]:
    """Of the first streams and groups by name; by the names in the manifest."""
    states = [streams.state(name) for name in heapq.nsmallest(MAX_REPORTED, streams.names)]
    labels = [{"stream": each.name} for each in states]
    archived = {} if archive is None else archive.figures()
    groups: list[tuple[dict[str, str], GroupState]] = []
    for state in states:
        found = streams.groups(state.name, MAX_REPORTED - len(groups))
        groups += [({"stream": state.name, "group": each.name}, each) for each in found]
    lags = [streams.lag(each.name) for each in states]
    return {
        "stream_messages": [(label, each.messages) for label, each in zip(labels, states, strict=True)],
        "stream_bytes": [(label, each.size_bytes) for label, each in zip(labels, states, strict=True)],
        "stream_readers": [(label, each.readers) for label, each in zip(labels, states, strict=True)],
        "stream_lag": list(zip(labels, lags, strict=True)),
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
