"""The archive of streams: what is in its files, and when."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from mqttlite import Broker, Client, Config, ConfigError, ListenerOptions
from mqttlite.client import Properties
from mqttlite.extensions.streams import archive as archives
from mqttlite.extensions.streams.archive import Archive
from mqttlite.extensions.streams.archive_files import HOUR_US
from mqttlite.extensions.streams.archive_options import ArchiveOptions
from mqttlite.extensions.streams.options import StreamOptions
from tests.support.inside import streams_of


class World:
    """A broker with the stream `s` of `a/#`, and an archive whose clock the test moves."""

    def __init__(self, broker: Broker, us: Client, folder: Path, **options: Any) -> None:
        self.broker = broker
        self.us = us
        self.ahead_us = 0
        self.folder = folder
        self.options = ArchiveOptions(directory=str(folder), **options)
        self.archive = self.opened()

    def opened(self) -> Archive:
        """An archive as after a start."""
        return Archive(self.options, *streams_of(self.broker), lambda: time.time_ns() // 1_000 + self.ahead_us)

    async def publish(self, *payloads: str, key: str = "k", **more: Any) -> None:
        properties = Properties(user_properties=[("ordering-key", key)], content_type="text/plain")
        outcomes = [await self.us.submit("a/b", each, 1, properties=properties, **more) for each in payloads]
        await asyncio.gather(*outcomes)

    async def check(self) -> list[dict[str, Any]]:
        """Look for closed runs; the rows of all files."""
        await self.archive.check()
        return self.rows()

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        return [row for each in self.files() for row in pyarrow.parquet.ParquetFile(each).read().to_pylist()]


@asynccontextmanager
async def world(tmp_path: Path, *, stream: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[World]:
    made = StreamOptions(name="s", filters=("a/#",), **{"partitions": 1, **(stream or {})})
    config = Config(listeners=(ListenerOptions(port=0),), streams=(made,), data_dir=str(tmp_path / "data"))
    async with Broker(config) as broker, Client("127.0.0.1", broker.port, timeout=60) as us:
        yield World(broker, us, tmp_path / "archive", **options)


async def test_a_run_is_written_when_its_hour_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        before = time.time()
        await here.publish("one", "two")
        await here.publish("three", key="", retain=True)
        assert await here.check() == []
        here.ahead_us = HOUR_US + archives.GRACE_US
        rows = await here.check()
        assert [(each["partition"], each["offset"], each["payload"]) for each in rows] == [
            (0, 0, b"one"),
            (0, 1, b"two"),
            (0, 2, b"three"),
        ]
        first = rows[0]
        assert (first["topic"], first["key"], first["qos"], first["content_type"]) == ("a/b", "k", 1, "text/plain")
        assert first["user_properties"] == [{"name": "ordering-key", "value": "k"}]
        assert before - 1 < first["published_at"].timestamp() < time.time() + 1
        assert first["message_id"] == int(first["published_at"].timestamp() * 1_000_000) or first["message_id"] > 0
        (file,) = here.files()
        at = first["published_at"]
        assert file.relative_to(here.folder).parts == (
            "table=stream",
            "stream=s",
            f"date={at:%Y-%m-%d}",
            f"hour={at:%H}",
            "part-0000-000000000000-000000000002.parquet",
        )
        assert here.archive.figures() == {
            "stream_archived": {"s": 3},
            "stream_archive_waiting": {"s": 0},
            "stream_archive_missed": {"s": 0},
        }


@pytest.mark.long
async def test_a_long_run_is_written_at_once_and_each_message_is_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_RUN", 10)
    async with world(tmp_path, stream={"partitions": 3}) as here:
        payloads = [str(n) for n in range(100)]
        for n in payloads:
            await here.publish(n, key=f"k{n}")
        rows = await here.check()
        assert {len(pyarrow.parquet.ParquetFile(each).read()) for each in here.files()} == {10}
        assert 70 <= len(rows) < 100
        here.archive = here.opened()  # as after a crash: the names say what is archived
        here.ahead_us = HOUR_US + archives.GRACE_US
        rows = await here.check()
        assert sorted(int(each["payload"]) for each in rows) == list(range(100))
        assert len({(each["partition"], each["offset"]) for each in rows}) == 100
        assert await here.check() == rows


@pytest.mark.long
async def test_a_run_has_a_size_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_RUN_BYTES", 10_000)
    monkeypatch.setattr("mqttlite.extensions.streams.history.MAX_ANSWERED_BYTES", 5_000)
    async with world(tmp_path) as here:
        await here.publish(*["x" * 1_000] * 40)
        here.ahead_us = HOUR_US + archives.GRACE_US
        assert len(await here.check()) == 40
        assert 3 <= len(here.files()) <= 5


async def test_messages_removed_before_they_were_archived_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, stream={"keep_bytes": 20_000}) as here:
        await here.publish("first")
        here.ahead_us = HOUR_US + archives.GRACE_US
        assert len(await here.check()) == 1
        await here.publish(*["x" * 1_000] * 100)
        rows = await here.check()
        missed = here.archive.figures()["stream_archive_missed"]["s"]
        assert missed > 50
        assert len(rows) == 101 - missed
        assert f"{missed} messages of partition 0 of the stream s were removed before they were archived" in caplog.text


async def test_files_of_another_stream_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tmp_path) as here:
        await here.publish("one", "two")
        here.ahead_us = HOUR_US + archives.GRACE_US
        rows = await here.check()
        streams, _page = streams_of(here.broker)
        streams.delete("s")
        streams.create(StreamOptions(name="s", filters=("a/#",), partitions=1))
        await here.publish("other")
        assert await here.check() == rows
        await here.publish("more", "and more", "and more than there were")
        assert await here.check() == rows
        assert caplog.text.count("has files of another stream of that name, up to offset 1; move them away") == 1


async def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqttlite.archive")
    async with world(tmp_path) as here:
        await here.publish("one")
        here.ahead_us = HOUR_US + archives.GRACE_US
        here.folder.write_text("a file")
        await here.archive.check()
        await here.archive.check()
        assert caplog.text.count("the archive of the stream s in") == 1
        here.folder.unlink()
        assert len(await here.check()) == 1
        assert "is written again" in caplog.text


async def test_a_stream_that_cannot_be_archived_costs_the_others_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as here:
        streams, _page = streams_of(here.broker)
        streams.create(StreamOptions(name="other", filters=("b/#",), partitions=1))
        await here.publish("one")
        await here.us.publish("b/x", "of the other", 1)
        here.ahead_us = HOUR_US + archives.GRACE_US
        (here.folder / "table=stream").mkdir(parents=True)
        (here.folder / "table=stream" / "stream=s").write_text("a file")
        assert [each["payload"] for each in await here.check()] == [b"of the other"]
        assert "the archive of the stream s in" in caplog.text


@pytest.mark.long
async def test_old_files_are_removed_but_not_the_newest_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_RUN", 1)
    async with world(tmp_path, keep_bytes=1) as here:
        await here.publish("one", "two", "three")
        await here.check()
        here.ahead_us = int(archives.SWEEP_S + 1) * 1_000_000
        await here.check()
        assert [each.name[10:22] for each in here.files()] == ["000000000002"]
    async with world(tmp_path / "b", keep_s=3600.0) as here:
        await here.publish("one", "two")
        await here.check()
        assert len(here.files()) == 2
        here.ahead_us = 3 * HOUR_US
        await here.check()
        assert len(here.files()) == 1


async def test_a_broker_archives_the_streams_of_its_configuration(tmp_path: Path) -> None:
    streams = tuple(StreamOptions(name=name, filters=(f"{name}/#",)) for name in "ab")
    options = ArchiveOptions(directory=str(tmp_path / "archive"), streams=("a",))
    config = Config(listeners=(ListenerOptions(port=0),), streams=streams, stream_archive=options)
    async with Broker(config) as broker, Client("127.0.0.1", broker.port) as us:
        await us.publish("a/x", "1", 1)
        await us.publish("b/x", "1", 1)
        figures = {each.name: values for each, values in broker._assembly.telemetry.reports.of_extensions.values()}
        assert figures["stream_archive_waiting"] == [({"stream": "a"}, 1)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"directory": ""}, "directory is empty"),
        ({"keep_s": 1.0}, "keep_s is 1"),
        ({"keep_bytes": -1}, "keep_bytes is -1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ArchiveOptions(**({"directory": "a"} | options))


async def test_a_folder_that_is_a_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ArchiveOptions(directory=str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"stream_archive\.directory: .* is a file; name a folder"):
        async with Broker(Config(listeners=(ListenerOptions(port=0),), stream_archive=options)):
            pass
