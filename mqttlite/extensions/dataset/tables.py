"""The rows of the dataset's tables; `docs/reference/telemetry.md` says what the columns mean.

A column's type and place here are those in the reference, which a test compares. Timestamps carry UTC. New columns go
last and keep `SCHEMA_VERSION`; any other change raises it.
"""

from datetime import datetime
from functools import cache
from types import NoneType
from typing import Annotated, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

SCHEMA_VERSION: Final = 2

Int = Annotated[int, msgspec.Meta(title="int")]
"""Fits in 32 bits; other whole numbers are `long`s of 64."""


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: Int = SCHEMA_VERSION
    broker_id: str


class _OfInterval(_Base, frozen=True, kw_only=True):
    interval_start: datetime
    interval_s: float


class SessionRow(_Base, frozen=True, kw_only=True):
    """One ended connection."""

    connection_id: int
    client_id: str
    username: str | None
    listener: str
    transport: str
    tls_version: str | None
    tls_cipher: str | None
    peer: str
    protocol_version: str
    clean_start: bool
    session_present: bool
    session_expiry_s: int | None
    keep_alive_s: Int
    opened_at: datetime
    connected_at: datetime
    ended_at: datetime
    duration_s: float
    close_reason: str
    reason_code: Int
    close_detail: str | None
    will_published: bool
    bytes_received: int
    bytes_sent: int
    received_qos0: int
    received_qos1: int
    received_qos2: int
    sent_qos0: int
    sent_qos1: int
    sent_qos2: int
    drops: dict[str, int]
    dropped: int
    outbox_high_water_bytes: int
    outbox_high_water_messages: int
    queue_high_water_messages: int
    inflight_high_water: int
    backpressure_s: float
    backpressure_count: int
    subscriptions: int
    last_heard_at: datetime | None
    keep_alive_late_s: float | None
    node: str | None = None


class EventRow(_Base, frozen=True, kw_only=True):
    """Something happened."""

    at: datetime
    event: str
    connection_id: int | None = None
    client_id: str | None = None
    username: str | None = None
    listener: str | None = None
    transport: str | None = None
    peer: str | None = None
    protocol_version: str | None = None
    reason: str | None = None
    reason_code: Int | None = None
    detail: str | None = None
    topic_filter: str | None = None
    qos: Int | None = None
    duration_s: float | None = None
    numbers: dict[str, int] = {}
    node: str | None = None


class TrafficRow(_OfInterval, frozen=True, kw_only=True):
    """What was published to a topic in an interval."""

    topic: str
    topics: int
    messages_qos0: int
    messages_qos1: int
    messages_qos2: int
    payload_bytes: int
    payload_bytes_max: int
    deliveries: int


class ActivityRow(_OfInterval, frozen=True, kw_only=True):
    """What a client did in an interval."""

    connection_id: int
    client_id: str
    listener: str
    messages_received: int
    messages_sent: int
    bytes_received: int
    bytes_sent: int
    dropped: int
    queued: int
    queued_bytes: int
    inflight: int
    backpressure_s: float


class LatencyRow(_OfInterval, frozen=True, kw_only=True):
    """How long messages took in a stage, as a histogram."""

    stage: str
    qos: Int
    topic: str
    messages: int
    sum_us: int
    max_us: int
    buckets: list[Int]
    counts: list[int]


class DropRow(_OfInterval, frozen=True, kw_only=True):
    """Messages dropped in an interval."""

    reason: str
    client_id: str | None
    topic: str | None
    messages: int


class GroupRow(_OfInterval, frozen=True, kw_only=True):
    """How far a group of a stream was behind at the end of an interval, and what moved in it."""

    stream: str
    group: str
    mode: str
    members: Int
    lag: int
    appended: int
    under_way: int
    scheduled: int
    redeliveries: int
    moves: int
    dead_letters: int


class SampleRow(_Base, frozen=True, kw_only=True):
    """A traced message and one of its receivers."""

    message_id: str
    at: datetime
    topic: str
    qos: Int
    payload_bytes: int
    publisher: str | None
    receiver: str | None
    outcome: str
    reason: str | None
    routed_us: int | None
    queued_us: int | None
    written_us: int | None
    acknowledged_us: int | None
    one_in: int


class AttemptRow(_Base, frozen=True, kw_only=True):
    """One delivery of a message of a queue, which is over."""

    queue: str
    message_id: str
    topic: str
    consumer: str | None
    ordering_key: str | None
    attempt: Int
    delivered_at: datetime
    ended_at: datetime
    outcome: str
    detail: str | None
    held_us: int
    behind: int
    one_in: int


class DeadLetterRow(_Base, frozen=True, kw_only=True):
    """A message that a queue gave up."""

    queue: str
    message_id: str
    topic: str
    cause: str
    detail: str | None
    attempts: Int
    consumer: str | None
    ordering_key: str | None
    payload_bytes: int
    published_at: datetime
    first_at: datetime | None
    last_at: datetime | None
    at: datetime
    one_in: int


Row = (
    SessionRow
    | EventRow
    | TrafficRow
    | ActivityRow
    | LatencyRow
    | DropRow
    | GroupRow
    | SampleRow
    | AttemptRow
    | DeadLetterRow
)
"""Any of them."""

TABLES: Final[dict[str, type[Row]]] = {
    "sessions": SessionRow,
    "events": EventRow,
    "traffic": TrafficRow,
    "activity": ActivityRow,
    "latency": LatencyRow,
    "drops": DropRow,
    "stream_groups": GroupRow,
    "samples": SampleRow,
    "attempts": AttemptRow,
    "dead_letters": DeadLetterRow,
}

TIME_COLUMNS: Final = {
    "sessions": "ended_at",
    "events": "at",
    "traffic": "interval_start",
    "activity": "interval_start",
    "latency": "interval_start",
    "drops": "interval_start",
    "stream_groups": "interval_start",
    "samples": "at",
    "attempts": "ended_at",
    "dead_letters": "at",
}
"""By which a row finds its file's folder."""


class Column(NamedTuple):
    name: str
    kind: str
    """As the reference calls it: `string`, `int`, `long`, `double`, `boolean`, `timestamp`, `map<string,long>`, …"""
    optional: bool


@cache
def columns_of(table: str) -> tuple[Column, ...]:
    """The columns of a table, in order."""
    columns = []
    for name, hint in get_type_hints(TABLES[table], include_extras=True).items():
        alternatives = get_args(hint) if get_origin(hint) not in (Annotated, dict, list) else (hint,)
        required = [kind for kind in alternatives or (hint,) if kind is not NoneType]
        columns.append(Column(name, _kind(required[0]), len(required) < len(alternatives)))
    return tuple(columns)


_KINDS: Final = {str: "string", int: "long", float: "double", bool: "boolean", datetime: "timestamp"}


def _kind(hint: object) -> str:
    if hint == Int:
        return "int"
    if isinstance(hint, type) and hint in _KINDS:
        return _KINDS[hint]
    inner = ",".join(_kind(each) for each in get_args(hint))
    return f"{'map' if get_origin(hint) is dict else 'list'}<{inner}>"
