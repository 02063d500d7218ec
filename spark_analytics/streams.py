"""The messages of streams, as brokers archive them, for questions about payloads.

    messages = streams.read(spark, "archive", "sensors")
    readings = streams.with_json(messages, "temperature DOUBLE, unit STRING")

The files are described in `docs/reference/streams.md`. Invariant: reading opens no file of hours that a filter on
`date` and `hour` leaves out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_analytics.errors import InputUnusable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "partition INT, offset BIGINT, message_id BIGINT, published_at TIMESTAMP, topic STRING, key STRING, "
    "payload BINARY, qos INT, content_type STRING, user_properties ARRAY<STRUCT<name: STRING, value: STRING>>, "
    "date DATE, hour INT"
)
"""The columns of a message. The last two are in the names of folders."""


_TABLE: Final = "table=stream"


def read(spark: SparkSession, directory: str, stream: str) -> DataFrame:
    """The archived messages of a stream, one row each, in no order. Raises `InputUnusable` where there are none."""
    return spark.read.schema(SCHEMA).parquet(_folder(directory, stream))


def read_all(
    spark: SparkSession, directory: str, *, since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """The archived messages of all streams from `since` on and before `until`, with the column `stream`. Raises
    `InputUnusable`."""
    from pyspark.sql import functions as F

    path = f"{directory.rstrip('/')}/{_TABLE}"
    if "://" not in directory and not Path(path).is_dir():
        raise InputUnusable(f"There is no archive of streams in {directory}: it has no folder {_TABLE}.")
    messages = spark.read.schema(f"{SCHEMA}, stream STRING").parquet(path)
    if since is not None:
        day = F.lit(since.astimezone(UTC).date())
        messages = messages.where((F.col("date") >= day) & (F.col("published_at") >= F.lit(since)))
    if until is not None:
        day = F.lit(until.astimezone(UTC).date())
        messages = messages.where((F.col("date") <= day) & (F.col("published_at") < F.lit(until)))
    return messages


def follow(spark: SparkSession, directory: str, stream: str) -> DataFrame:
    """The same as a stream of Spark's (Structured Streaming): what is archived now, then each new file, once. Raises
    `InputUnusable`."""
    return spark.readStream.schema(SCHEMA).parquet(_folder(directory, stream))


def with_json(messages: DataFrame, schema: str) -> DataFrame:
    """Messages with a column `json`: the payload by a schema of Spark's (`"temperature DOUBLE, unit STRING"`). It is
    null where the payload is no JSON."""
    from pyspark.sql import functions as F

    return messages.withColumn("json", F.from_json(F.col("payload").cast("string"), schema))


def _folder(directory: str, stream: str) -> str:
    """The folder with the files of a stream. Raises `InputUnusable`."""
    path = f"{directory.rstrip('/')}/{_TABLE}/stream={stream}"
    if "://" not in directory and not Path(path).is_dir():
        there = sorted(each.name.partition("=")[2] for each in Path(path).parent.glob("stream=*"))
        names = f": there are {', '.join(there)}" if there else ""
        raise InputUnusable(f"There is no archive of a stream {stream!r} in {directory}{names}.")
    return path
