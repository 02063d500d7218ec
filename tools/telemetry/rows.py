"""Rows of the nine tables, from what was played and added up.

Invariant: times in rows are the broker's wall clock, which may have jumped; everywhere else they are true.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tools.telemetry import schema
from tools.telemetry.fleet import LISTENERS, PROTOCOLS, SECOND, Fleet, Longs
from tools.telemetry.intervals import (
    BLOCKED_US,
    BLOCKS,
    BYTES_RECEIVED,
    BYTES_SENT,
    DROP_REASONS,
    DROPPED,
    MAX_QUEUED,
    QUEUED,
    QUEUED_BYTES,
    RECEIVED,
    RECEIVED_QOS,
    SENT,
    SENT_QOS,
    Counted,
    Stretch,
)
from tools.telemetry.lives import REASON_CODES, REASONS, Run, Sessions
from tools.telemetry.messages import NOBODY, Messages
from tools.telemetry.traced import NEVER, OUTCOMES, STAGES, Followed, Histograms
from tools.telemetry.troubles import Trouble

BEGINS_US: Final = 1_793_491_200 * SECOND
"""2026-11-01T00:00:00Z, so that the same arguments give the same rows."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Clock:
    """What the wall clock shows at a true time."""

    times: Longs
    """When it jumped."""
    offsets: Longs
    """By how much it is wrong: before the first jump, and after each."""

    @classmethod
    def jumping(cls, troubles: Sequence[Trouble]) -> "Clock":
        jumps = sorted((each.start, round(each.amount * SECOND)) for each in troubles if each.kind == "clock")
        offsets = np.cumsum([0, *(by for _, by in jumps)], dtype=np.int64)
        return cls(np.array([at for at, _ in jumps], np.int64), offsets)

    def wall(self, at: Longs) -> Longs:
        return BEGINS_US + at + self.offsets[np.searchsorted(self.times, at, side="right")]


def table(name: str, run: Run, columns: dict[str, Any], length: int) -> pa.Table:
    """Of columns as arrays; those of every row, and those that are missing, are filled in."""
    arrays = []
    for field in schema.TABLES[name]:
        if field.name == "schema_version":
            array = pa.array(np.full(length, schema.SCHEMA_VERSION, np.int32))
        elif field.name == "broker_id":
            array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, np.int32)), pa.array([run.broker_id]))
        else:
            array = columns.get(field.name)
            if array is None:
                array = pa.nulls(length, field.type)
            elif not isinstance(array, pa.Array):
                array = pa.array(array, from_pandas=False)
            if not pa.types.is_dictionary(array.type):
                array = array.cast(field.type)
        arrays.append(array)
    fields = [field.with_type(array.type) for field, array in zip(schema.TABLES[name], arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def named(numbers: Longs, names: Sequence[str | None]) -> pa.Array:
    """Text by number; null for a negative one. Only the names in use are in the dictionary."""
    used, index = np.unique(numbers, return_inverse=True)
    chosen = pa.array([names[number] if number >= 0 else None for number in used], pa.string())
    if chosen.null_count:
        return chosen.take(pa.array(index.astype(np.int32)))
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), chosen)


def unless(missing: Any, values: Any) -> pa.Array:
    """Values that are null where `missing`."""
    return pa.array(values, mask=np.asarray(missing))


def timestamps(clock: Clock, at: Longs) -> pa.Array:
    return pa.array(clock.wall(at)).cast(pa.timestamp("us", tz="UTC"))


def _interval(clock: Clock, stretch: Stretch, number: Longs) -> dict[str, Any]:
    return {
        "interval_start": timestamps(clock, stretch.starts(number)),
        "interval_s": stretch.lengths_s(number),
    }


def traffic_rows(
    run: Run, clock: Clock, fleet: Fleet, stretch: Stretch, topic: Longs, number: Longs, rows: Longs
) -> pa.Table:  # fmt: skip
    order = np.argsort(number, kind="stable")
    topic, number, rows = topic[order], number[order], rows[order]
    names = ("topics", "messages_qos0", "messages_qos1", "messages_qos2", "payload_bytes", "payload_bytes_max")
    columns = _interval(clock, stretch, number) | {"topic": named(topic, fleet.topics)}
    columns |= {name: rows[:, at] for at, name in enumerate((*names, "deliveries"))}
    return table("traffic", run, columns, len(topic))


def activity_rows(run: Run, clock: Clock, fleet: Fleet, sessions: Sessions, counted: Counted) -> pa.Table:
    order = np.argsort(counted.number, kind="stable")
    session, number, rows = counted.session[order], counted.number[order], counted.activity[order]
    busy = rows[:, (RECEIVED, SENT, DROPPED, QUEUED)].any(axis=1)
    session, number, rows = session[busy], number[busy], rows[busy]
    client = sessions.client[session]
    inflight = np.minimum(rows[:, SENT_QOS + 1], (session * 7 + number * 13) % 4)
    columns = _interval(clock, counted.stretch, number) | {
        "connection_id": sessions.number[session],
        "client_id": named(client, fleet.client_ids),
        "listener": named(fleet.listeners[client], [each[0] for each in LISTENERS]),
        "messages_received": rows[:, RECEIVED],
        "messages_sent": rows[:, SENT],
        "bytes_received": rows[:, BYTES_RECEIVED],
        "bytes_sent": rows[:, BYTES_SENT],
        "dropped": rows[:, DROPPED],
        "queued": rows[:, QUEUED],
        "queued_bytes": rows[:, QUEUED_BYTES],
        "inflight": inflight,
        "backpressure_s": rows[:, BLOCKED_US] / SECOND,
    }
    return table("activity", run, columns, len(session))


def drop_rows(run: Run, clock: Clock, fleet: Fleet, counted: Counted) -> pa.Table:
    rows = counted.drops[np.argsort(counted.drops[:, 0], kind="stable")]
    columns = _interval(clock, counted.stretch, rows[:, 0]) | {
        "reason": named(rows[:, 1], DROP_REASONS),
        "client_id": named(rows[:, 2], fleet.client_ids),
        "topic": named(rows[:, 3], fleet.topics),
        "messages": rows[:, 4],
    }
    return table("drops", run, columns, len(rows))


def latency_rows(run: Run, clock: Clock, fleet: Fleet, stretch: Stretch, of: Histograms) -> pa.Table:
    offsets = pa.array(of.offsets.astype(np.int32))
    columns = _interval(clock, stretch, of.number) | {
        "stage": named(of.stage, STAGES),
        "qos": of.qos,
        "topic": named(of.topic, fleet.topics),
        "messages": of.messages,
        "sum_us": of.sum_us,
        "max_us": of.max_us,
        "buckets": pa.ListArray.from_arrays(offsets, pa.array(of.buckets.astype(np.int32))),
        "counts": pa.ListArray.from_arrays(offsets, pa.array(of.counts)),
    }
    return table("latency", run, columns, len(of.number))


def sample_rows(
    run: Run, clock: Clock, fleet: Fleet, sessions: Sessions, messages: Messages, followed: Followed, share: int
) -> pa.Table:  # fmt: skip
    message = followed.message
    stages = {"routed": followed.routed, "queued": followed.queued, "written": followed.written}
    columns = {
        "message_id": [f"{run.broker_id}-{at:x}-{n:x}" for at, n in zip(messages.at[message], message, strict=True)],
        "at": timestamps(clock, messages.at[message]),
        "topic": named(messages.topic[message], fleet.topics),
        "qos": messages.qos[message],
        "payload_bytes": messages.payload[message],
        "publisher": named(sessions.client[messages.session[message]], fleet.client_ids),
        "receiver": named(np.where(followed.receiver == NOBODY, -1, followed.receiver), fleet.client_ids),
        "outcome": named(followed.outcome, OUTCOMES),
        "reason": named(followed.full, DROP_REASONS),
        "one_in": np.full(len(message), share),
    }
    stages["acknowledged"] = followed.acknowledged
    columns |= {f"{name}_us": unless(us == NEVER, us) for name, us in stages.items()}
    return table("samples", run, columns, len(message))


@dataclass
class Totals:
    """What each session has done so far."""

    sums: Longs
    """A row per session, its columns those of an interval's activity."""
    queue_high_water: Longs
    outbox_high_water_bytes: Longs
    drops: dict[int, dict[str, int]]

    @classmethod
    def of(cls, sessions: int, columns: int) -> "Totals":
        nothing = np.zeros(sessions, np.int64)
        return cls(np.zeros((sessions, columns), np.int64), nothing, nothing.copy(), {})

    def add(self, counted: Counted) -> None:
        np.add.at(self.sums, counted.session, counted.activity)
        np.maximum.at(self.queue_high_water, counted.session, counted.activity[:, QUEUED])
        waited = counted.activity[:, QUEUED_BYTES] + counted.activity[:, BYTES_SENT] // 10
        np.maximum.at(self.outbox_high_water_bytes, counted.session, waited)
        lost = counted.drops[counted.drops[:, 2] >= 0]
        for _, reason, _, _, messages, session in lost.tolist():
            of = self.drops.setdefault(session, {})
            of[DROP_REASONS[reason]] = of.get(DROP_REASONS[reason], 0) + messages


CONNECT_BYTES: Final = 40
CONNACK_BYTES: Final = 11
PING_BYTES: Final = 2

_LOST: Final = "the broker died, and with it what it had counted"


def session_rows(run: Run, clock: Clock, fleet: Fleet, sessions: Sessions, totals: Totals, ended: Longs) -> pa.Table:
    """Of sessions that have ended; `run` is that which writes them."""
    ended = ended[np.lexsort((ended, sessions.end[ended]))]
    client, reason = sessions.client[ended], sessions.reason[ended]
    crashed = reason == REASONS.index("broker_crash")
    known = np.where(crashed, 0, 1)
    duration_s = (sessions.end - sessions.start)[ended] / SECOND
    pings = (duration_s / np.maximum(fleet.keep_alives_s[client], 1)).astype(np.int64) * PING_BYTES
    sums = totals.sums[ended] * known[:, None]
    listener = fleet.listeners[client]
    peer = [
        f"{fleet.addresses[2 * c + other]}:{20_000 + n * 7 % 40_000}"
        for c, other, n in zip(client, sessions.other_address[ended], sessions.number[ended], strict=True)
    ]
    drops = [{} if gone else totals.drops.get(int(each), {}) for each, gone in zip(ended, crashed, strict=True)]
    names = ("received_qos0", "received_qos1", "received_qos2", "sent_qos0", "sent_qos1", "sent_qos2")
    columns: dict[str, Any] = {
        "connection_id": sessions.number[ended],
        "client_id": named(client, fleet.client_ids),
        "username": named(client, fleet.usernames),
        "listener": named(listener, [each[0] for each in LISTENERS]),
        "transport": named(listener, [each[1] for each in LISTENERS]),
        "tls_version": pa.array([LISTENERS[each][2] for each in listener], pa.string()),
        "tls_cipher": pa.array([LISTENERS[each][3] for each in listener], pa.string()),
        "peer": peer,
        "protocol_version": named(fleet.protocols[client], PROTOCOLS),
        "clean_start": fleet.clean_starts[client],
        "session_present": sessions.resumed[ended],
        "session_expiry_s": np.where(fleet.clean_starts[client], 0, 86_400),
        "keep_alive_s": fleet.keep_alives_s[client].astype(np.int32),
        "opened_at": timestamps(clock, sessions.start[ended] - sessions.accept_us[ended]),
        "connected_at": timestamps(clock, sessions.start[ended]),
        "ended_at": timestamps(clock, sessions.end[ended]),
        "duration_s": duration_s,
        "close_reason": named(reason, REASONS),
        "reason_code": np.array(REASON_CODES, np.int32)[reason],
        "close_detail": pa.array([_LOST if gone else None for gone in crashed], pa.string()),
        "will_published": np.isin(reason, [REASONS.index("connection_lost"), REASONS.index("keep_alive_timeout")]),
        "bytes_received": (sums[:, BYTES_RECEIVED] + CONNECT_BYTES + pings) * known,
        "bytes_sent": (sums[:, BYTES_SENT] + CONNACK_BYTES + pings) * known,
        **{name: sums[:, RECEIVED_QOS + at] for at, name in enumerate(names)},
        "drops": pa.array([list(each.items()) for each in drops], pa.map_(pa.string(), pa.int64())),
        "dropped": sums[:, DROPPED],
        "outbox_high_water_bytes": totals.outbox_high_water_bytes[ended] * known,
        "outbox_high_water_messages": np.minimum(totals.queue_high_water[ended], 50) * known,
        "queue_high_water_messages": totals.queue_high_water[ended] * known,
        "inflight_high_water": np.minimum(3, sums[:, SENT_QOS + 1]),
        "backpressure_s": sums[:, BLOCKED_US] / SECOND,
        "backpressure_count": sums[:, BLOCKS],
        "subscriptions": known,
        "last_heard_at": pa.array(clock.wall(sessions.heard[ended]), mask=crashed).cast(pa.timestamp("us", tz="UTC")),
        "keep_alive_late_s": unless(np.isnan(sessions.late_s[ended]), sessions.late_s[ended]),
        "node": pa.nulls(len(ended), pa.string()),
    }  # fmt: skip
    return table("sessions", run, columns, len(ended))


def queue_rows(name: str, run: Run, clock: Clock, found: Sequence[dict[str, Any]]) -> pa.Table:
    """Of dictionaries whose times are true times; what they lack is null."""
    columns: dict[str, Any] = {}
    for field in schema.TABLES[name]:
        if field.name in ("schema_version", "broker_id"):
            continue
        values = [row.get(field.name) for row in found]
        if pa.types.is_timestamp(field.type):
            columns[field.name] = timestamps(clock, np.array(values, np.int64))
        else:
            columns[field.name] = pa.array(values, field.type)
    return table(name, run, columns, len(found))


LIMITS: Final = {"max_sessions": 100_000, "max_connections": 60_000, "max_queued_messages": MAX_QUEUED}


def event_rows(run: Run, clock: Clock, events: Iterable[Event]) -> pa.Table:
    """Of dictionaries whose `at` is a true time; what they lack is null."""
    ordered = sorted(events, key=lambda event: event["at"])
    columns: dict[str, Any] = {
        field.name: pa.array([event.get(field.name) for event in ordered], field.type)
        for field in schema.TABLES["events"]
        if field.name not in ("schema_version", "broker_id", "at", "numbers")
    }
    columns["at"] = timestamps(clock, np.array([event["at"] for event in ordered], np.int64))
    numbers = [list(event.get("numbers", {}).items()) for event in ordered]
    columns["numbers"] = pa.array(numbers, pa.map_(pa.string(), pa.int64()))
    return table("events", run, columns, len(ordered))
