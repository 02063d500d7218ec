"""The writer of the dataset against real files; the disk fails where a test says so, and no test waits for a clock."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mqttlite.extensions.dataset import dataset as dataset_module
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.parts import Disk, Parts, recover_files
from mqttlite.extensions.dataset.tables import SessionRow
from tests.support.dataset import (
    ENDED_AT,
    EVENT,
    ROW,
    FailingDisk,
    left_open,
    numbers,
    options,
    publish,
    published,
    row,
    until,
)


class BlockedDisk(Disk):
    """Does not come back from `create` until `go` is set, as a hanging network disk would."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()

    def create(self, path: Path) -> int:
        self.reached.set()
        self.go.wait(5)
        return super().create(path)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    until(lambda: not any(thread.name == "mqttlite-telemetry" for thread in threading.enumerate()))


def test_a_row_is_one_line_with_the_columns_in_order(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    dataset.write("sessions", ROW)
    assert dataset.close(5)

    (path,) = published(tmp_path)
    assert path.relative_to(tmp_path) == Path("table=sessions/date=2026-11-21/hour=11/part-b1-000001.jsonl")
    (line,) = path.read_text().splitlines()
    columns = json.loads(line)
    assert tuple(columns) == SessionRow.__struct_fields__
    assert columns["schema_version"] == 2
    assert columns["username"] is None
    assert columns["ended_at"] == "2026-11-21T11:59:30.250000Z"
    assert columns["drops"] == {"queue_full": 7}
    assert dataset.written_rows["sessions"] == 1


def test_the_folder_is_in_utc_whatever_the_zone_of_the_row(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    dataset.write("sessions", row(1, ended_at=datetime(2026, 11, 22, 0, 30, tzinfo=timezone(timedelta(hours=2)))))
    assert dataset.close(5)
    assert published(tmp_path)[0].parent == tmp_path / "table=sessions/date=2026-11-21/hour=22"


def test_every_row_written_before_close_is_on_disk_after_it(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    for number in range(2000):
        dataset.write("sessions", row(number))
    assert dataset.close(5)
    assert numbers(tmp_path) == list(range(2000))
    assert left_open(tmp_path) == []


def test_closing_twice_and_writing_after_it_is_harmless(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    assert dataset.close(5)
    dataset.write("sessions", ROW)
    assert dataset.close(5)
    assert dataset.dropped_rows["sessions"] == 1
    assert published(tmp_path) == []


# ── rotation ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_due_by_age_from_its_first_row(tmp_path: Path) -> None:
    parts = Parts(options(tmp_path, rotate_after_s=60), "sessions", "b1", Disk(), False)
    assert parts.due_at() is None
    parts.append(b"{}\n", ENDED_AT, now=1000.0)
    parts.append(b"{}\n", ENDED_AT, now=1050.0)
    assert parts.due_at() == 1060.0
    publish(parts)
    assert parts.due_at() is None


@pytest.mark.parametrize(("size", "due_at"), [(99, 1060.0), (100, 1000.0), (101, 1000.0)])
def test_a_file_is_due_at_once_when_it_has_its_size(tmp_path: Path, size: int, due_at: float) -> None:
    parts = Parts(options(tmp_path, rotate_bytes=100, rotate_after_s=60), "sessions", "b1", Disk(), False)
    parts.append(b"x" * (size - 1) + b"\n", ENDED_AT, now=1000.0)
    assert parts.due_at() == due_at
    publish(parts)


def test_full_files_are_published_and_numbered(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, rotate_bytes=1), "b1", clock=lambda: 1000.0)
    for number in (1, 2, 3):
        dataset.write("sessions", row(number))
        until(lambda number=number: len(published(tmp_path)) == number)  # type: ignore[misc]
    assert [path.name for path in published(tmp_path)] == [f"part-b1-00000{n}.jsonl" for n in (1, 2, 3)]
    assert dataset.close(5)


def test_files_do_not_outgrow_their_size_because_the_broker_stops(tmp_path: Path) -> None:
    disk = BlockedDisk()
    dataset = Dataset(options(tmp_path, rotate_bytes=1), "b1", disk=disk)
    dataset.write("sessions", row(0))
    assert disk.reached.wait(5)
    for number in range(1, 601):
        dataset.write("sessions", row(number))
    assert not dataset.close(0)
    disk.go.set()
    assert dataset.close(5)
    assert [len(path.read_text().splitlines()) for path in published(tmp_path)] == [1, 512, 88]


def test_an_old_file_is_published_although_no_row_arrives(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, rotate_after_s=0.02), "b1")
    dataset.write("sessions", ROW)
    until(lambda: numbers(tmp_path) == [1])
    assert left_open(tmp_path) == []
    assert dataset.close(5)


def test_a_growing_file_is_hidden_from_readers(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    dataset.write("sessions", ROW)
    until(lambda: dataset.written_rows["sessions"] == 1)
    assert published(tmp_path) == []
    assert [path.name for path in left_open(tmp_path)] == [".part-b1-000001.jsonl.open"]
    assert dataset.close(5)


# ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_queue_drops_counts_and_keeps_its_rows(tmp_path: Path) -> None:
    disk = BlockedDisk()
    dataset = Dataset(options(tmp_path, max_pending_rows=3), "b1", disk=disk)
    dataset.write("sessions", row(0))
    assert disk.reached.wait(5)

    dataset.write("sessions", row(1))
    assert (dataset.pending_rows, dataset.dropped_rows["sessions"]) == (2, 0)
    dataset.write("sessions", row(2))
    assert (dataset.pending_rows, dataset.dropped_rows["sessions"]) == (3, 0)
    dataset.write("sessions", row(3))
    assert (dataset.pending_rows, dataset.dropped_rows["sessions"]) == (3, 1)
    dataset.write("events", EVENT)
    assert (dataset.pending_rows, dataset.dropped_rows["events"]) == (4, 0)

    disk.go.set()
    assert dataset.close(5)
    assert numbers(tmp_path) == [0, 1, 2]
    assert dataset.written_rows["events"] == 1


def test_close_returns_in_time_when_the_disk_hangs(tmp_path: Path) -> None:
    disk = BlockedDisk()
    dataset = Dataset(options(tmp_path), "b1", disk=disk)
    dataset.write("sessions", ROW)
    assert disk.reached.wait(5)
    assert not dataset.close(0.01)
    disk.go.set()
    assert dataset.close(5)


def test_a_row_json_cannot_hold_is_dropped_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    dataset.write("sessions", row(1, client_id="\ud800"))
    dataset.write("sessions", row(2))
    assert dataset.close(5)
    assert numbers(tmp_path) == [2]
    assert dataset.dropped_rows["sessions"] == 1
    assert "connection_id=1," in caplog.text


# ── disk errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def run_on(directory: Path, disk: FailingDisk) -> Dataset:
    """Three files of one row each; the last file is published by `close`, after everything else has succeeded."""
    dataset = Dataset(options(directory, rotate_bytes=1), "b1", disk=disk)
    for number in (1, 2, 3):
        dataset.write("sessions", row(number))
        until(lambda number=number: numbers(directory) == list(range(1, number + 1)))  # type: ignore[misc]
    assert dataset.close(5)
    return dataset


@pytest.mark.slow
def test_any_single_disk_error_costs_no_row_and_doubles_none(tmp_path: Path) -> None:
    peaceful = FailingDisk(lambda _: False)
    run_on(tmp_path / "peace", peaceful)
    assert peaceful.calls >= 3 * len(("create", "write", "sync", "rename"))
    for failing in range(1, peaceful.calls + 1):
        directory = tmp_path / str(failing)
        dataset = run_on(directory, FailingDisk(lambda call, failing=failing: call == failing))  # type: ignore[misc]
        assert numbers(directory) == [1, 2, 3]
        assert left_open(directory) == []
        assert (dataset.disk_errors, dataset.dropped_rows["sessions"]) == (1, 0), f"call {failing}"


@pytest.mark.parametrize("rhythm", [2, 3, 5, 7])
def test_a_disk_that_keeps_failing_now_and_then_costs_no_row(tmp_path: Path, rhythm: int) -> None:
    dataset = run_on(tmp_path, FailingDisk(lambda call: call < 40 and call % rhythm != 0))
    assert numbers(tmp_path) == [1, 2, 3]
    assert dataset.dropped_rows["sessions"] == 0


def test_an_outage_is_logged_once_counted_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = threading.Event()
    full.set()
    dataset = Dataset(options(tmp_path, max_pending_rows=2), "b1", disk=FailingDisk(lambda _: full.is_set()))
    dataset.write("sessions", row(0))
    until(lambda: dataset.disk_errors >= 5)
    for number in range(1, 6):
        dataset.write("sessions", row(number))
    assert (dataset.pending_rows, dataset.dropped_rows["sessions"]) == (2, 4)

    full.clear()
    until(lambda: dataset.written_rows["sessions"] == 2)
    assert dataset.close(5)
    assert numbers(tmp_path) == [0, 1]
    messages = [record.getMessage() for record in caplog.records if record.name == "mqttlite.telemetry"]
    assert len(messages) == 2
    assert "No space left on device" in messages[0]
    assert messages[1] == "telemetry is written again; 4 rows were dropped since the start"


def test_a_half_written_batch_is_taken_back_before_the_file_is_published(tmp_path: Path) -> None:
    parts = Parts(options(tmp_path), "sessions", "b1", FailingDisk(lambda call: call == 3), False)
    parts.append(b"{}\n", ENDED_AT, now=0.0)
    with pytest.raises(OSError, match="No space"):
        parts.append(b'{"never": "complete"}\n', ENDED_AT, now=0.0)
    publish(parts)
    assert published(tmp_path)[0].read_bytes() == b"{}\n"


def test_a_disk_that_is_gone_for_good_does_not_hold_up_the_end(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, retry_after_s=60), "b1", disk=FailingDisk(lambda _: True))
    for number in range(3):
        dataset.write("sessions", row(number))
    until(lambda: dataset.disk_errors == 1)
    assert not dataset.close(5)
    assert dataset.dropped_rows["sessions"] == 3


def test_a_directory_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    dataset = Dataset(options(tmp_path / "file"), "b1")
    dataset.write("sessions", ROW)
    until(lambda: dataset.disk_errors >= 1)
    assert not dataset.close(5)


def test_after_the_open_file_was_removed_a_new_one_is_begun(tmp_path: Path) -> None:
    parts = Parts(options(tmp_path), "sessions", "b1", Disk(), False)
    parts.append(b"{}\n", ENDED_AT, now=0.0)
    left_open(tmp_path)[0].unlink()
    with pytest.raises(FileNotFoundError):
        publish(parts)
    parts.append(b"{}\n", ENDED_AT, now=1.0)
    publish(parts)
    assert [path.name for path in published(tmp_path)] == ["part-b1-000002.jsonl"]


def test_a_defect_in_the_work_beside_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(*_: object) -> Iterator[int]:
        yield 0
        raise RuntimeError("never thought of")

    monkeypatch.setattr(dataset_module, "recover_files", defective)
    dataset = Dataset(options(tmp_path), "b1")
    until(lambda: "what other runs left is given up" in caplog.text)
    dataset.write("sessions", row(1))
    assert dataset.close(5)
    assert numbers(tmp_path) == [1]


# ── what another broker left ─────────────────────────────────────────────────────────────────────────────────────────


def recovered(directory: Path, disk: Disk) -> None:
    for _ in recover_files(directory, disk, False):
        pass


def leave_open(directory: Path, content: bytes, name: str = ".part-dead-000007.jsonl.open") -> Path:
    path = directory / "table=sessions/date=2026-11-20/hour=03" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b'{"a":1}\n{"a":2}\n', b'{"a":1}\n{"a":2}\n'),
        (b'{"a":1}\n{"a":', b'{"a":1}\n'),
        (b'{"a":1}\n' + b"x" * 200_000, b'{"a":1}\n'),
        (b"x" * 65_535 + b"\n" + b"y" * 65_536, b"x" * 65_535 + b"\n"),
        (b"x" * 70_000 + b"\ntorn", b"x" * 70_000 + b"\n"),
    ],
)
def test_a_dead_brokers_file_is_published_without_its_torn_line(tmp_path: Path, content: bytes, kept: bytes) -> None:
    orphan = leave_open(tmp_path, content)
    dataset = Dataset(options(tmp_path), "b1")
    assert dataset.close(5)
    assert orphan.with_name("part-dead-000007.jsonl").read_bytes() == kept
    assert left_open(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b'{"torn'])
def test_a_dead_brokers_file_without_a_whole_line_is_removed(tmp_path: Path, content: bytes) -> None:
    leave_open(tmp_path, content)
    assert Dataset(options(tmp_path), "b1").close(5)
    assert left_open(tmp_path) == published(tmp_path) == []


def test_the_file_of_a_living_broker_is_left_alone(tmp_path: Path) -> None:
    first = Dataset(options(tmp_path), "b1")
    first.write("sessions", row(1))
    until(lambda: first.written_rows["sessions"] == 1)
    second = Dataset(options(tmp_path), "b2")
    assert second.close(5)
    assert published(tmp_path) == []
    first.write("sessions", row(2))
    assert first.close(5)
    assert numbers(tmp_path) == [1, 2]


def test_a_file_published_while_we_looked_at_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = leave_open(tmp_path, b"{}\n{torn")

    def publish_then_lock(fd: int, how: int) -> None:
        orphan.rename(orphan.with_name("part-dead-000007.jsonl"))

    monkeypatch.setattr(fcntl, "flock", publish_then_lock)
    recovered(tmp_path, Disk())
    assert published(tmp_path)[0].read_bytes() == b"{}\n{torn"


def test_a_new_file_that_another_broker_is_removing_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_then_lock(fd: int, how: int) -> None:
        (tmp_path / "new").unlink()

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    descriptors = len(os.listdir("/dev/fd"))
    with pytest.raises(BlockingIOError):
        Disk().create(tmp_path / "new")
    assert len(os.listdir("/dev/fd")) == descriptors


def test_one_file_that_cannot_be_finished_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave_open(tmp_path, b"{}\n", ".part-dead-000001.jsonl.open")
    leave_open(tmp_path, b"{}\n", ".part-dead-000002.jsonl.open")
    with caplog.at_level(logging.WARNING, "mqttlite.telemetry"):
        recovered(tmp_path, FailingDisk(lambda call: call == 1))
    assert "part-dead-000001" in caplog.text
    assert [path.name for path in published(tmp_path)] == ["part-dead-000002.jsonl"]


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    leave_open(tmp_path, b"{}\n")
    run_on(tmp_path / "new", FailingDisk(lambda call: call < 40 and call % 3 == 1))
    recovered(tmp_path, Disk())
    assert len(os.listdir("/dev/fd")) == before
