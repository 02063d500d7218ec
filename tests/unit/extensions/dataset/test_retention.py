"""What is removed when the dataset grows old or large, and what never is."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqttlite.extensions.dataset import parquet
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.parts import Disk
from mqttlite.extensions.dataset.retention import Retention
from tests.support.dataset import EVENT, FailingDisk, options, row, until

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def file(folder: Path, name: str, *, table: str = "sessions", hour: int = 11, size: int = 10, age: int = 0) -> Path:
    path = folder / f"table={table}/date=2026-11-21/hour={hour:02d}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOON - age, NOON - age))
    return path


def part(folder: Path, number: int, **where: object) -> Path:
    return file(folder, f"part-b1-{number:06d}.parquet", **where)  # type: ignore[arg-type]


def sweep(folder: Path, now: float = NOON, **changes: object) -> None:
    for _ in Retention(options(folder, **changes), Disk()).sweep(now):
        pass


def there(paths: Iterable[Path]) -> list[bool]:
    return [path.exists() for path in paths]


@pytest.mark.parametrize(("after_s", "kept"), [(99, True), (100, True), (101, False)])
def test_a_file_is_old_when_its_hour_ended_so_long_ago(tmp_path: Path, after_s: float, kept: bool) -> None:
    path = part(tmp_path, 1)
    sweep(tmp_path, NOON + after_s, keep_s=100)
    assert path.exists() == kept


@pytest.mark.parametrize(("keep", "left"), [(30, 3), (29, 2), (20, 2), (19, 1), (1, 0)])
def test_the_oldest_go_until_the_rest_fits(tmp_path: Path, keep: int, left: int) -> None:
    paths = [
        part(tmp_path, 1, table="events", hour=9),
        part(tmp_path, 3, hour=10, age=200),
        part(tmp_path, 2, hour=10, age=100),
    ]
    sweep(tmp_path, keep_bytes=keep)
    assert there(paths) == [left > 2, left > 1, left > 0]


def test_without_limits_everything_stays(tmp_path: Path) -> None:
    path = part(tmp_path, 1)
    assert not Retention(options(tmp_path, keep_bytes=0), Disk()).is_limited
    sweep(tmp_path, NOON * 2, keep_bytes=0)
    assert path.exists()
    assert options(tmp_path).keep_bytes == 1 << 30, "a limit is the default"


def test_files_other_than_complete_parts_of_a_table_are_never_removed(tmp_path: Path) -> None:
    others = [
        file(tmp_path, ".part-b1-000001.jsonl.open"),
        file(tmp_path, "part-b1-000001.csv"),
        file(tmp_path, "part-b1-000001.parquet.bak"),
        file(tmp_path, "my-part-b1-000001.parquet"),
        file(tmp_path, "part-b1-1.parquet"),
        file(tmp_path, "notes"),
        file(tmp_path, "part-b1-000001.parquet", table="own"),
    ]
    elsewhere = tmp_path / "part-b1-000001.parquet"
    elsewhere.write_text("x")
    (others[0].parent / "part-b1-000002.parquet").symlink_to(elsewhere)
    (others[0].parent / "part-b1-000003.parquet").mkdir()
    (tmp_path / "table=sessions/date=2026-99-99/hour=11").mkdir(parents=True)
    path = part(tmp_path, 4)
    sweep(tmp_path, NOON * 2, keep_s=1, keep_bytes=1)
    assert not path.exists()
    assert there([*others, elsewhere, path.parent / "part-b1-000002.parquet"]) == [True] * 9
    assert (path.parent / "part-b1-000003.parquet").is_dir()


def test_folders_that_it_emptied_go_and_others_stay(tmp_path: Path) -> None:
    part(tmp_path, 1, hour=9)
    empty = tmp_path / "table=sessions/date=2026-11-21/hour=10"
    empty.mkdir()
    sweep(tmp_path, NOON * 2, keep_s=1)
    assert os.listdir(tmp_path / "table=sessions/date=2026-11-21") == ["hour=10"]
    part(tmp_path, 1, table="events")
    sweep(tmp_path, NOON * 2, keep_s=1)
    assert os.listdir(tmp_path / "table=events") == []


def test_files_that_came_since_the_last_sweep_are_counted(tmp_path: Path) -> None:
    retention = Retention(options(tmp_path, keep_bytes=20), Disk())
    paths = [part(tmp_path, 1, hour=10), part(tmp_path, 2)]
    for _ in retention.sweep(NOON):
        pass
    assert there(paths) == [True, True]
    paths.append(part(tmp_path, 3))
    os.utime(paths[-1].parent)  # a folder's time may be coarse
    for _ in retention.sweep(NOON):
        pass
    assert there(paths) == [False, True, True]


def test_the_writer_looks_after_it_when_it_starts_and_goes_on_after_an_error(tmp_path: Path) -> None:
    old = part(tmp_path, 1, hour=3)
    disk = FailingDisk(lambda call: call == 1)
    dataset = Dataset(options(tmp_path, keep_s=1), "b2", disk=disk)
    dataset.write("events", EVENT)
    dataset.write("sessions", row(1))
    until(lambda: not old.exists())
    assert dataset.disk_errors == 1
    assert dataset.close(5)


def test_the_log_says_that_parquet_needs_pyarrow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(parquet, "is_wanted", lambda _option: False)
    for format_, told in (("jsonl", 0), ("auto", 1)):
        caplog.clear()
        dataset = Dataset(options(tmp_path, format=format_), "b")
        dataset.close(5.0)
        assert sum("pyarrow" in line for line in caplog.messages) == told
