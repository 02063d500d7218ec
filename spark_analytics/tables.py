"""Which tables a report has, in which order of rows, and how each is drawn.

To add one: write the function in `reports/`, add an entry to `TABLES`. Invariant: a table's name is its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics import schema, units
from spark_analytics.page.charts import Series, bars, columns, top_and_rest
from spark_analytics.reports.back_pressure import back_pressure_by_client
from spark_analytics.reports.close_reasons import close_reasons
from spark_analytics.reports.drops import drops_by_client
from spark_analytics.reports.durations import BUCKETS_S, duration_histogram, durations
from spark_analytics.reports.keep_alive import keep_alive_timeouts
from spark_analytics.reports.overview import overview
from spark_analytics.reports.traffic import traffic_by_client

_RANKED: Final = 12


@dataclass(frozen=True)
class Table:
    """A report, and how it is written and shown. `order` names columns, those with a minus descending."""

    name: str
    title: str
    says: str
    report: Callable[[DataFrame], DataFrame]
    order: Sequence[str]
    chart: Callable[[DataFrame], str] | None = None
    empty: str = "Nothing to show."
    # A table with a row per session stays in as many files as Spark likes.
    one_file: bool = True

    def sorted_by(self) -> list[Column]:
        return [F.desc(name[1:]) if name.startswith("-") else F.asc(name) for name in self.order]


def _close_reasons(frame: DataFrame) -> str:
    rows = frame.orderBy(F.desc("sessions"), schema.CLOSE_REASON).collect()
    return bars(
        "Sessions by close reason",
        [row[schema.CLOSE_REASON].replace("_", " ") for row in rows],
        [Series("sessions", [row["sessions"] for row in rows])],
        units.count,
    )


def _durations(frame: DataFrame) -> str:
    labels = [f"< {units.seconds(to_s).replace('.0', '')}" for to_s in BUCKETS_S[1:]]
    labels.append(f"≥ {units.seconds(BUCKETS_S[-1]).replace('.0', '')}")
    by_listener: dict[str, list[float]] = {}
    for row in frame.groupBy(schema.LISTENER, "from_s").agg(F.sum("sessions").alias("sessions")).collect():
        values = by_listener.setdefault(row[schema.LISTENER], [0.0] * len(BUCKETS_S))
        values[BUCKETS_S.index(row["from_s"])] = row["sessions"]
    return columns("Sessions by duration and listener", labels, top_and_rest(by_listener), units.count)


def _keep_alive_timeouts(frame: DataFrame) -> str:
    by_client = frame.groupBy(schema.CLIENT_ID).agg(F.sum("timeouts").alias("timeouts"))
    rows = by_client.orderBy(F.desc("timeouts"), schema.CLIENT_ID).limit(_RANKED).collect()
    return bars(
        "Keep-alive timeouts by client",
        [row[schema.CLIENT_ID] for row in rows],
        [Series("timeouts", [row["timeouts"] for row in rows])],
        units.count,
    )


def _traffic(frame: DataFrame) -> str:
    rows = frame.orderBy(F.desc(F.expr("bytes_received + bytes_sent")), schema.CLIENT_ID).limit(_RANKED).collect()
    return bars(
        "Bytes by client",
        [row[schema.CLIENT_ID] for row in rows],
        [
            Series("from the client", [row["bytes_received"] for row in rows]),
            Series("to the client", [row["bytes_sent"] for row in rows]),
        ],
        units.size,
    )


def _drops(frame: DataFrame) -> str:
    by_client = frame.groupBy(schema.CLIENT_ID).agg(F.sum("dropped").alias("dropped"))
    clients = by_client.orderBy(F.desc("dropped"), schema.CLIENT_ID).limit(_RANKED)
    labels = [row[schema.CLIENT_ID] for row in clients.collect()]
    by_reason: dict[str, list[float]] = {}
    for row in frame.join(clients.select(schema.CLIENT_ID), schema.CLIENT_ID).collect():
        values = by_reason.setdefault(row["drop_reason"].replace("_", " "), [0.0] * len(labels))
        values[labels.index(row[schema.CLIENT_ID])] = row["dropped"]
    return bars("Dropped messages by client and reason", labels, top_and_rest(by_reason), units.count)


def _back_pressure(frame: DataFrame) -> str:
    rows = frame.orderBy(F.desc("backpressure_s"), schema.CLIENT_ID).limit(_RANKED).collect()
    return bars(
        "Time under back-pressure by client",
        [row[schema.CLIENT_ID] for row in rows],
        [Series("under back-pressure", [row["backpressure_s"] for row in rows])],
        units.seconds,
    )


TABLES: Final = (
    Table(
        "close_reasons",
        "Why sessions ended",
        "One row per close reason. A healthy fleet says goodbye; connection_lost and keep_alive_timeout are networks.",
        close_reasons,
        ("-sessions", schema.CLOSE_REASON),
        _close_reasons,
    ),
    Table(
        "duration_histogram",
        "How long sessions lasted",
        "One row per listener, protocol version and range of durations. Many short sessions: clients that reconnect.",
        duration_histogram,
        (schema.LISTENER, schema.PROTOCOL_VERSION, "from_s"),
        _durations,
    ),
    Table(
        "durations",
        "Durations by listener and protocol version",
        "Half of the sessions lasted no longer than p50, nine in ten no longer than p90.",
        durations,
        (schema.LISTENER, schema.PROTOCOL_VERSION),
    ),
    Table(
        "keep_alive_timeouts",
        "Clients that fell silent",
        "One row per client and keep-alive interval; share is of that client's sessions with that interval.",
        keep_alive_timeouts,
        ("-timeouts", schema.CLIENT_ID, schema.KEEP_ALIVE_S),
        _keep_alive_timeouts,
        "No session ended by a keep-alive timeout.",
    ),
    Table(
        "drops_by_client",
        "Dropped messages",
        "One row per client and drop reason. queue_full and buffer_full: the client reads more slowly than it is sent.",
        drops_by_client,
        ("-dropped", schema.CLIENT_ID, "drop_reason"),
        _drops,
        "No message was dropped.",
    ),
    Table(
        "back_pressure_by_client",
        "Clients that read too slowly",
        "One row per client whose socket did not take bytes for a while; share is of its connected time.",
        back_pressure_by_client,
        ("-backpressure_s", schema.CLIENT_ID),
        _back_pressure,
        "No client was too slow for its messages.",
    ),
    Table(
        "traffic_by_client",
        "Traffic",
        "One row per client. Messages are PUBLISH packets; bytes are all of MQTT, without TLS.",
        traffic_by_client,
        ("-bytes_sent", "-bytes_received", schema.CLIENT_ID),
        _traffic,
    ),
    Table(
        "sessions",
        "Sessions",
        "One row per session, the last to end first.",
        overview,
        ("-" + schema.ENDED_AT, *schema.KEY),
        one_file=False,
    ),
)
