"""Spark reads the archive of streams, at once and as it grows."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqttlite.core.message import Message
from mqttlite.extensions.streams.archive_files import ArchiveFiles
from mqttlite.extensions.streams.archive_options import ArchiveOptions
from mqttlite.wire.properties import Properties
from spark_analytics import streams
from spark_analytics.errors import InputUnusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1_000_000


def archive(folder: Path, hour: int, first: int, payloads: list[bytes]) -> None:
    """A file of the stream `sensors` of one partition."""
    messages = []
    for at, payload in enumerate(payloads):
        properties = Properties(user_properties=[("ordering-key", f"device-{at % 2}")])
        message = Message(b"sensors/x", payload, 1, False, properties)
        message.number = NOON + hour * 3_600_000_000 + at
        messages.append((first + at, message))
    ArchiveFiles(ArchiveOptions(directory=str(folder))).write("sensors", 0, first, first + len(payloads) - 1, messages)


@pytest.mark.slow
def test_payloads_are_asked_at_once_and_as_the_archive_grows(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions

    folder = tmp_path / "archive"
    archive(folder, 0, 0, [b'{"t": %d}' % n for n in (20, 30, 22, 32)] + [b"no JSON", b"\xff"])
    archive(folder, 1, 6, [b'{"t": 40.5}', b'{"t": 50}'])
    messages = streams.read(spark, str(folder), "sensors")
    assert messages.count() == 8
    rows = messages.orderBy("offset").collect()
    assert [each.offset for each in rows] == list(range(8))
    assert rows[0].user_properties[0].value == rows[0].key == "device-0"
    assert (rows[0].topic, str(rows[0].date), rows[0].hour) == ("sensors/x", "2026-11-21", 12)

    readings = streams.with_json(messages, "t DOUBLE")
    averages = readings.where("json.t IS NOT NULL").groupBy("hour", "key").agg(functions.avg("json.t").alias("t"))
    found = {(each.hour, each.key): each.t for each in averages.collect()}
    assert found == {(12, "device-0"): 21, (12, "device-1"): 31, (13, "device-0"): 40.5, (13, "device-1"): 50}
    assert readings.where("json IS NULL OR json.t IS NULL").count() == 2

    query = (
        streams.with_json(streams.follow(spark, str(folder), "sensors"), "t DOUBLE")
        .groupBy()
        .agg(functions.max("json.t").alias("t"))
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("highest")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table("highest").collect()[0].t == 50
        archive(folder, 2, 8, [b'{"t": 60}'])
        query.processAllAvailable()
        assert math.isclose(spark.table("highest").collect()[0].t, 60)
    finally:
        query.stop()


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match=r"There is no archive of a stream 'other' in .*archive"):
        streams._folder(str(tmp_path / "archive"), "other")
    archive(tmp_path / "archive", 0, 0, [b"x"])
    with pytest.raises(InputUnusable, match="there are sensors"):
        streams._folder(str(tmp_path / "archive"), "other")
