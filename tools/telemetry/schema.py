"""The nine tables as pyarrow sees them: `docs/reference/telemetry.md`, column by column.

Invariant: order, names, types and which columns may be null are those of the reference, which a test compares.
"""

from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 2

_TYPES: Final[dict[str, pa.DataType]] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,long>": pa.map_(pa.string(), pa.int64()),
    "list<int>": pa.list_(pa.int32()),
    "list<long>": pa.list_(pa.int64()),
}


def _schema(columns: str) -> pa.Schema:
    """`name type` for each column, a `?` after the type of one that may be null."""
    fields = []
    for column in f"schema_version int; broker_id string; {columns}".split(";"):
        name, kind = column.split()
        fields.append(pa.field(name, _TYPES[kind.rstrip("?")], nullable=kind.endswith("?")))
    return pa.schema(fields)


_INTERVAL: Final = "interval_start timestamp; interval_s double"

TABLES: Final[dict[str, pa.Schema]] = {
    "sessions": _schema(
        "connection_id long; client_id string; username string?; listener string; transport string;"
        "tls_version string?; tls_cipher string?; peer string; protocol_version string; clean_start boolean;"
        "session_present boolean; session_expiry_s long?; keep_alive_s int; opened_at timestamp;"
        "connected_at timestamp; ended_at timestamp; duration_s double; close_reason string; reason_code int;"
        "close_detail string?; will_published boolean; bytes_received long; bytes_sent long; received_qos0 long;"
        "received_qos1 long; received_qos2 long; sent_qos0 long; sent_qos1 long; sent_qos2 long;"
        "drops map<string,long>; dropped long; outbox_high_water_bytes long; outbox_high_water_messages long;"
        "queue_high_water_messages long; inflight_high_water long; backpressure_s double; backpressure_count long;"
        "subscriptions long; last_heard_at timestamp?; keep_alive_late_s double?; node string?"
    ),
    "events": _schema(
        "at timestamp; event string; connection_id long?; client_id string?; username string?; listener string?;"
        "transport string?; peer string?; protocol_version string?; reason string?; reason_code int?; detail string?;"
        "topic_filter string?; qos int?; duration_s double?; numbers map<string,long>; node string?"
    ),
    "traffic": _schema(
        f"{_INTERVAL}; topic string; topics long; messages_qos0 long; messages_qos1 long; messages_qos2 long;"
        "payload_bytes long; payload_bytes_max long; deliveries long"
    ),
    "activity": _schema(
        f"{_INTERVAL}; connection_id long; client_id string; listener string; messages_received long;"
        "messages_sent long; bytes_received long; bytes_sent long; dropped long; queued long; queued_bytes long;"
        "inflight long; backpressure_s double"
    ),
    "latency": _schema(
        f"{_INTERVAL}; stage string; qos int; topic string; messages long; sum_us long; max_us long;"
        "buckets list<int>; counts list<long>"
    ),
    "drops": _schema(f"{_INTERVAL}; reason string; client_id string?; topic string?; messages long"),
    "samples": _schema(
        "message_id string; at timestamp; topic string; qos int; payload_bytes long; publisher string?;"
        "receiver string?; outcome string; reason string?; routed_us long?; queued_us long?; written_us long?;"
        "acknowledged_us long?; one_in long"
    ),
    "attempts": _schema(
        "queue string; message_id string; topic string; consumer string?; ordering_key string?; attempt int;"
        "delivered_at timestamp; ended_at timestamp; outcome string; detail string?; held_us long; behind long;"
        "one_in long"
    ),
    "dead_letters": _schema(
        "queue string; message_id string; topic string; cause string; detail string?; attempts int; consumer string?;"
        "ordering_key string?; payload_bytes long; published_at timestamp; first_at timestamp?; last_at timestamp?;"
        "at timestamp; one_in long"
    ),
}

TIME_COLUMNS: Final = {
    "sessions": "ended_at",
    "events": "at",
    "samples": "at",
    "attempts": "ended_at",
    "dead_letters": "at",
}
"""By which a row finds its folder; of the other tables it is `interval_start`."""
