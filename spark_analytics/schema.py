"""The dataset's tables as Spark sees them: `docs/reference/telemetry.md`, column by column, and nothing else.

Invariant: order, names, types and which columns may be null are exactly those of the reference page.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SUPPORTED_VERSIONS: Final = frozenset({1, 2})
"""Version 1 had `sessions` alone, without its last three columns, which may be null: its rows are rows of version 2."""

_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), LongType(), valueContainsNull=False),
    "ints": ArrayType(IntegerType(), containsNull=False),
    "longs": ArrayType(LongType(), containsNull=False),
}


def _table(columns: str) -> StructType:
    """`name type` or `name type?` a line; every table begins with the same two columns."""
    fields = []
    for line in ("schema_version int\nbroker_id string\n" + columns.strip()).splitlines():
        name, kind = line.split()
        fields.append(StructField(name, _TYPES[kind.removesuffix("?")], nullable=kind.endswith("?")))
    return StructType(fields)


SESSIONS: Final = _table("""
connection_id long
client_id string
username string?
listener string
transport string
tls_version string?
tls_cipher string?
peer string
protocol_version string
clean_start boolean
session_present boolean
session_expiry_s long?
keep_alive_s int
opened_at timestamp
connected_at timestamp
ended_at timestamp
duration_s double
close_reason string
reason_code int
close_detail string?
will_published boolean
bytes_received long
bytes_sent long
received_qos0 long
received_qos1 long
received_qos2 long
sent_qos0 long
sent_qos1 long
sent_qos2 long
drops map
dropped long
outbox_high_water_bytes long
outbox_high_water_messages long
queue_high_water_messages long
inflight_high_water long
backpressure_s double
backpressure_count long
subscriptions long
last_heard_at timestamp?
keep_alive_late_s double?
node string?
""")

EVENTS: Final = _table("""
at timestamp
event string
connection_id long?
client_id string?
username string?
listener string?
transport string?
peer string?
protocol_version string?
reason string?
reason_code int?
detail string?
topic_filter string?
qos int?
duration_s double?
numbers map
node string?
""")

TRAFFIC: Final = _table("""
interval_start timestamp
interval_s double
topic string
topics long
messages_qos0 long
messages_qos1 long
messages_qos2 long
payload_bytes long
payload_bytes_max long
deliveries long
""")

ACTIVITY: Final = _table("""
interval_start timestamp
interval_s double
connection_id long
client_id string
listener string
messages_received long
messages_sent long
bytes_received long
bytes_sent long
dropped long
queued long
queued_bytes long
inflight long
backpressure_s double
""")

LATENCY: Final = _table("""
interval_start timestamp
interval_s double
stage string
qos int
topic string
messages long
sum_us long
max_us long
buckets ints
counts longs
""")

DROPS: Final = _table("""
interval_start timestamp
interval_s double
reason string
client_id string?
topic string?
messages long
""")

STREAM_GROUPS: Final = _table("""
interval_start timestamp
interval_s double
stream string
group string
mode string
members int
lag long
appended long
under_way long
scheduled long
redeliveries long
moves long
dead_letters long
""")

SAMPLES: Final = _table("""
message_id string
at timestamp
topic string
qos int
payload_bytes long
publisher string?
receiver string?
outcome string
reason string?
routed_us long?
queued_us long?
written_us long?
acknowledged_us long?
one_in long
""")

ATTEMPTS: Final = _table("""
queue string
message_id string
topic string
consumer string?
ordering_key string?
attempt int
delivered_at timestamp
ended_at timestamp
outcome string
detail string?
held_us long
behind long
one_in long
""")

DEAD_LETTERS: Final = _table("""
queue string
message_id string
topic string
cause string
detail string?
attempts int
consumer string?
ordering_key string?
payload_bytes long
published_at timestamp
first_at timestamp?
last_at timestamp?
at timestamp
one_in long
""")

TABLES: Final[dict[str, StructType]] = {
    "sessions": SESSIONS,
    "events": EVENTS,
    "traffic": TRAFFIC,
    "activity": ACTIVITY,
    "latency": LATENCY,
    "drops": DROPS,
    "stream_groups": STREAM_GROUPS,
    "samples": SAMPLES,
    "attempts": ATTEMPTS,
    "dead_letters": DEAD_LETTERS,
}

TIME_COLUMNS: Final[dict[str, str]] = {
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
"""The column whose first value in a file names the file's folder."""

KEY: Final = ("broker_id", "connection_id")
"""Names one row of `sessions`; the same key twice is the same row written twice."""


def required(schema: StructType) -> list[str]:
    """The columns that every row has."""
    return [field.name for field in schema if not field.nullable]
