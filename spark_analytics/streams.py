"""The messages of streams, as brokers archive them, for questions about payloads.

    messages = streams.read(spark, "archive", "sensors")
    readings = streams.with_json(messages, "temperature DOUBLE, unit STRING")

The files are described in `docs/reference/streams.md`. Invariant: reading opens no file of hours that a filter on
`date` and `hour` leaves out.
"""

from __future__ import annotations

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


def read(spark: SparkSession, directory: str, stream: str) -> DataFrame:
    """The archived messages of a stream, one row each, in no order. Raises `InputUnusable` where there are none."""
    return spark.read.schema(SCHEMA).parquet(_folder(directory, stream))


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
    path = f"{directory.rstrip('/')}/table=stream/stream={stream}"
    if "://" not in directory and not Path(path).is_dir():
        there = sorted(each.name.partition("=")[2] for each in Path(path).parent.glob("stream=*"))
        names = f": there are {', '.join(there)}" if there else ""
        raise InputUnusable(f"There is no archive of a stream {stream!r} in {directory}{names}.")
    return path
