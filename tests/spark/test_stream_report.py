"""What the report says of streams: by an archive that brokers' writer wrote."""

from __future__ import annotations

from dataclasses import replace
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
from spark_analytics.frames import NOTABLE
from spark_analytics.reports import streams as report

from .made import expect, make, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1_000_000


def archive(folder: Path, stream: str, partition: int, first: int, *keys: str, hour: int = 0) -> None:
    """A file with a message for each key: that of `ordering-key`, or behind / a topic, or none."""
    messages = []
    for at, key in enumerate(keys):
        topic = f"a{key}" if key.startswith("/") else f"$stream/{stream}"
        given = [("ordering-key", key)] if key and not key.startswith("/") else []
        message = Message(topic.encode(), b"12345", 1, False, Properties(user_properties=given))
        message.number = NOON + hour * 3_600_000_000 + first + at
        messages.append((first + at, message))
    files = ArchiveFiles(ArchiveOptions(directory=str(folder)))
    files.write(stream, partition, first, first + len(keys) - 1, messages)


@pytest.mark.slow
def test_hot_partitions_and_keys_and_what_was_not_archived(spark: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path, "orders", 0, 10, *["hot"] * 1_490, *["/b"] * 10)
    archive(tmp_path, "orders", 1, 0, *[f"k{n}" for n in range(200)], *[""] * 100)
    archive(tmp_path, "orders", 1, 307, *["k0"] * 100, hour=1)
    archive(tmp_path, "orders", 3, 0, *["/c"] * 100)
    archive(tmp_path, "even", 0, 0, *["x"] * 50)
    frames = replace(make(spark), archived=streams.read_all(spark, str(tmp_path)))
    tables = written(spark, frames, report.TABLES)
    expect(
        *(spark, tables["stream_partitions"], "stream STRING, partition INT, messages BIGINT, missing BIGINT"),
        *(("orders", 0, 1_500, 0), ("orders", 1, 400, 7), ("orders", 3, 100, 0), ("even", 0, 50, 0)),
    )
    expect(
        *(spark, tables["stream_partitions"], "stream STRING, partition INT, share DOUBLE, times_even DOUBLE"),
        *(("orders", 0, 0.75, 3.0), ("orders", 1, 0.2, 0.8), ("orders", 3, 0.05, 0.2), ("even", 0, 1.0, 1.0)),
    )
    expect(
        *(spark, tables["stream_keys"], "stream STRING, key STRING, partition INT, messages BIGINT"),
        *(("orders", "hot", 0, 1_490), ("orders", "k0", 1, 101), ("orders", "a/c", 3, 100), ("even", "x", 0, 50)),
    )
    assert [(each.weight, each.sentence) for each in report.findings(tables)] == [
        (
            NOTABLE,
            "Partition 0 of stream orders has 75.0 % of its messages, 3.0 times an even share; the key hot alone has"
            " 74.5 %.",
        ),
        (
            NOTABLE,
            "7 messages of stream orders are not in its archive, though later ones are: retention or compaction removed"
            " them before they were archived, or files are gone.",
        ),
    ]


@pytest.mark.slow
def test_the_lag_of_groups_its_growth_and_when_it_will_be_over(spark: SparkSession) -> None:
    def rows(group: str, *lags: int, **more: object) -> list[dict[str, object]]:
        return [
            {"stream": "orders", "group": group, "interval_start": f"11:00:{10 * at:02}", "lag": lag, "appended": 100}
            | more
            for at, lag in enumerate(lags)
        ]

    given = [
        *rows("grows", 1_000, 1_500, 2_000, members=1, moves=1),
        *rows("falls", 3_000, 2_000, 1_000, members=2),
        *rows("is even", 0, 0, mode="shared", redeliveries=2, dead_letters=3),
    ]
    tables = written(spark, make(spark, stream_groups=given), report.TABLES)  # type: ignore[arg-type]
    expect(
        *(spark, tables["stream_groups"], "group STRING, lag BIGINT, lag_max BIGINT, growth_per_s DOUBLE"),
        *(("grows", 2_000, 2_000, 50.0), ("falls", 1_000, 3_000, -100.0), ("is even", 0, 0, 0.0)),
    )
    expect(
        *(spark, tables["stream_groups"], "group STRING, caught_up_in_s DOUBLE, members INT, moves BIGINT"),
        *(("grows", None, 1, 3), ("falls", 10.0, 2, 0), ("is even", None, 0, 0)),
    )
    expect(
        *(spark, tables["stream_groups"], "group STRING, appended_per_s DOUBLE, redeliveries BIGINT"),
        *(("grows", 10.0, 0), ("falls", 10.0, 0), ("is even", 10.0, 4)),
    )
    assert [each.sentence for each in report.findings(tables)] == [
        "Group grows of stream orders is 2,000 messages behind, and it grows by 50.0 a second: in an hour it is"
        " 182,000.",
        "Group is even of stream orders has 3 dead letters.",
    ]


@pytest.mark.slow
def test_an_archive_is_read_for_the_time_that_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path, "orders", 0, 0, "a", "b")
    archive(tmp_path, "orders", 0, 2, "c", hour=1)
    archive(tmp_path, "orders", 0, 3, "d", hour=30)
    noon, one = datetime(2026, 11, 21, 12, tzinfo=UTC), datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert streams.read_all(spark, str(tmp_path), since=one).count() == 2
    assert streams.read_all(spark, str(tmp_path), since=noon, until=one).count() == 2
    assert streams.read_all(spark, str(tmp_path), until=noon).count() == 0


@pytest.mark.slow
def test_without_an_archive_nothing_is_said_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    tables = written(spark, make(spark), report.TABLES)
    assert [table.count() for table in tables.values()] == [0, 0, 0]
    assert report.findings(tables) == []
    with pytest.raises(InputUnusable, match=r"There is no archive of streams in .*: it has no folder table=stream"):
        streams.read_all(spark, str(tmp_path))
