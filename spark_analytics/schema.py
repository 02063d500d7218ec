"""The table `sessions` as Spark sees it: `docs/reference/telemetry.md`, column by column, and nothing else.

Invariant: order, names, types and which columns may be null are exactly those of the reference page.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
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

SUPPORTED_VERSIONS: Final = frozenset({1})

# The columns that reports name more than once; each is spelt here and in `SESSIONS` below.
BROKER_ID: Final = "broker_id"
CONNECTION_ID: Final = "connection_id"
CLIENT_ID: Final = "client_id"
LISTENER: Final = "listener"
PROTOCOL_VERSION: Final = "protocol_version"
KEEP_ALIVE_S: Final = "keep_alive_s"
ENDED_AT: Final = "ended_at"
DURATION_S: Final = "duration_s"
CLOSE_REASON: Final = "close_reason"
DROPS: Final = "drops"

KEEP_ALIVE_TIMEOUT: Final = "keep_alive_timeout"
"""The close reason of a client that fell silent."""

KEY: Final = (BROKER_ID, CONNECTION_ID)
"""Names one row; the same key twice is the same row written twice."""


def _required(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=False)


def _optional(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=True)


SESSIONS: Final = StructType(
    [
        _required("schema_version", IntegerType()),
        _required(BROKER_ID, StringType()),
        _required(CONNECTION_ID, LongType()),
        _required(CLIENT_ID, StringType()),
        _optional("username", StringType()),
        _required(LISTENER, StringType()),
        _required("transport", StringType()),
        _optional("tls_version", StringType()),
        _optional("tls_cipher", StringType()),
        _required("peer", StringType()),
        _required(PROTOCOL_VERSION, StringType()),
        _required("clean_start", BooleanType()),
        _required("session_present", BooleanType()),
        _optional("session_expiry_s", LongType()),
        _required(KEEP_ALIVE_S, IntegerType()),
        _required("opened_at", TimestampType()),
        _required("connected_at", TimestampType()),
        _required(ENDED_AT, TimestampType()),
        _required(DURATION_S, DoubleType()),
        _required(CLOSE_REASON, StringType()),
        _required("reason_code", IntegerType()),
        _optional("close_detail", StringType()),
        _required("will_published", BooleanType()),
        _required("bytes_received", LongType()),
        _required("bytes_sent", LongType()),
        _required("received_qos0", LongType()),
        _required("received_qos1", LongType()),
        _required("received_qos2", LongType()),
        _required("sent_qos0", LongType()),
        _required("sent_qos1", LongType()),
        _required("sent_qos2", LongType()),
        _required(DROPS, MapType(StringType(), LongType(), valueContainsNull=False)),
        _required("dropped", LongType()),
        _required("outbox_high_water_bytes", LongType()),
        _required("outbox_high_water_messages", LongType()),
        _required("queue_high_water_messages", LongType()),
        _required("inflight_high_water", LongType()),
        _required("backpressure_s", DoubleType()),
        _required("backpressure_count", LongType()),
        _required("subscriptions", LongType()),
    ]
)

REQUIRED: Final = tuple(field.name for field in SESSIONS if not field.nullable)
