"""The open sessions on disk, and who closes those of a broker that died. Who dies at which call is in the slow test."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from mqttlite.extensions.dataset import journal as journal_module
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.journal import CRASHED, SLACK_LINES, Journal, Opened, recover
from mqttlite.extensions.dataset.parts import Disk
from mqttlite.extensions.dataset.tables import SessionRow
from tests.support.dataset import ENDED_AT, FailingDisk, numbers, opened, options, published, row, until

ROOT = Path(__file__).resolve().parents[4]


def begin(journal: Journal, *sessions: int) -> None:
    journal.begin(sessions, b"".join(journal_module._encoder.encode(opened(number)) + b"\n" for number in sessions))


def entered(folder: Path, broker_id: str = "b1") -> list[int]:
    path = folder / f".journal-{broker_id}"
    struck = journal_module._closed_in(path)
    return [number for _, number in journal_module._entries(path) if number not in struck]


def left_by_the_dead(folder: Path, *sessions: int, ended: tuple[int, ...] = ()) -> Path:
    """The journal of a broker that ended without a word at `ENDED_AT`."""
    journal = Journal(folder, "dead", Disk())
    begin(journal, *sessions)
    journal.end(ended)
    assert journal._file is not None
    journal._file.close()
    path = folder / ".journal-dead"
    os.utime(path, (ENDED_AT.timestamp(), ENDED_AT.timestamp()))
    return path


def recovered(folder: Path) -> list[int]:
    for _ in recover(folder, Disk(), False):
        pass
    return numbers(folder)


def test_a_session_is_in_the_journal_from_its_begin_until_its_row_is_in_a_file(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    for number in (1, 2, 3):
        dataset.begin(opened(number))
    until(lambda: (tmp_path / ".journal-b1").exists() and entered(tmp_path) == [1, 2, 3])
    dataset.write("sessions", row(2))
    until(lambda: entered(tmp_path) == [1, 3])
    assert dataset.written_rows["sessions"] == 1
    for number in (1, 3):
        dataset.write("sessions", row(number))
    assert dataset.close(5)
    assert list(tmp_path.glob(".*")) == []


def test_a_session_without_a_row_is_left_to_the_next_broker(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1")
    dataset.begin(opened(1))
    dataset.begin(opened(2))
    dataset.write("sessions", row(1))
    assert dataset.close(5)
    assert entered(tmp_path) == [2]
    second = Dataset(options(tmp_path), "b2")
    assert second.close(5)
    assert sorted(numbers(tmp_path)) == [1, 2]


def test_a_row_that_was_dropped_is_struck_out(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, max_pending_rows=1), "b1", disk=FailingDisk(lambda call: call < 20))
    dataset.begin(opened(1))
    for number in (2, 3, 1):
        dataset.write("sessions", row(number))
    assert dataset.dropped_rows["sessions"] == 1
    until(lambda: dataset.written_rows["sessions"] == 2)
    assert dataset.close(5)
    assert list(tmp_path.glob(".journal*")) == []
    assert numbers(tmp_path) == [2, 3]


def test_all_clients_may_leave_at_once(tmp_path: Path) -> None:
    full = threading.Event()
    full.set()
    dataset = Dataset(options(tmp_path, max_pending_rows=3), "b1", disk=FailingDisk(lambda _: full.is_set()))
    for number in (1, 2, 3):
        dataset.begin(opened(number))
    for number in (4, 5, 6):  # they came and go, and the disk is not there
        dataset.write("sessions", row(number))
    for number in (1, 2, 3):
        dataset.write("sessions", row(number))
    assert dataset.dropped_rows["sessions"] == 0
    dataset.write("sessions", row(7))
    assert dataset.dropped_rows["sessions"] == 1
    full.clear()
    until(lambda: dataset.written_rows["sessions"] == 6)
    assert dataset.close(5)
    assert numbers(tmp_path) == [4, 5, 6, 1, 2, 3]


def test_after_a_crash_only_open_connections_get_a_row(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, 1, 2, 3, ended=(2,))
    assert recovered(tmp_path) == [1, 3]
    assert not path.exists()
    assert recovered(tmp_path) == [1, 3]


def test_the_row_of_a_crash_has_the_known_values_and_no_others(tmp_path: Path) -> None:
    left_by_the_dead(tmp_path, 7)
    recovered(tmp_path)
    (path,) = published(tmp_path)
    assert path.relative_to(tmp_path) == Path("table=sessions/date=2026-11-21/hour=11/part-dead-000000.jsonl")
    columns = json.loads(path.read_text())
    assert tuple(columns) == SessionRow.__struct_fields__
    known = json.loads(journal_module._encoder.encode(row(7)))
    same = [name for name in Opened.__struct_fields__ if name != "schema_version"]
    assert {name: columns[name] for name in same} == {name: known[name] for name in same}
    assert (columns["broker_id"], columns["schema_version"]) == ("dead", 2)
    assert (columns["ended_at"], columns["duration_s"]) == ("2026-11-21T11:59:30.250000Z", 29.0)
    assert (columns["close_reason"], columns["close_detail"]) == ("broker_crash", CRASHED)
    assert columns["last_heard_at"] is columns["keep_alive_late_s"] is None
    counted = set(columns) - {*same, "broker_id", "schema_version", "ended_at", "duration_s"}
    assert {name for name in counted if columns[name]} == {"close_reason", "close_detail"}


def test_the_row_of_a_crash_names_the_machine_that_entered_it_if_the_entry_does(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, 1)
    older = json.loads(path.read_text())[: Opened.__struct_fields__.index("node")]
    newer = [*older[1:2], *older[1:], "a"]
    newer[0] = 2
    path.write_text(f"{json.dumps(older)}\n{json.dumps(newer)}\n")
    recovered(tmp_path)
    rows = [json.loads(line) for line in published(tmp_path)[0].read_text().splitlines()]
    assert [(each["connection_id"], each["node"]) for each in rows] == [(1, None), (2, "a")]


def test_a_session_does_not_end_before_it_began(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, 1)
    early = (ENDED_AT - timedelta(days=1)).timestamp()
    os.utime(path, (early, early))
    recovered(tmp_path)
    columns = json.loads(published(tmp_path)[0].read_text())
    assert (columns["ended_at"], columns["duration_s"]) == (columns["connected_at"], 0.0)


def test_a_row_in_a_file_that_was_left_open_is_not_written_again(tmp_path: Path) -> None:
    left_by_the_dead(tmp_path, 1, 2)
    folder = tmp_path / "table=sessions/date=2026-11-21/hour=11"
    folder.mkdir(parents=True)
    line = journal_module._encoder.encode(row(1)) + b"\n"
    torn = journal_module._encoder.encode(row(2))
    (folder / ".part-dead-000001.jsonl.open").write_bytes(line + torn)
    assert Dataset(options(tmp_path), "b2").close(5)
    assert sorted(numbers(tmp_path)) == [1, 2]
    assert list(tmp_path.rglob(".*")) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_crash_before_the_journal_was_removed_loses_no_rows(tmp_path: Path, suffix: str) -> None:
    path = left_by_the_dead(tmp_path, 1)
    complete = tmp_path / f"table=sessions/date=2026-11-21/hour=11/part-dead-000000{suffix}"
    complete.parent.mkdir(parents=True)
    complete.write_bytes(b"")
    assert recovered(tmp_path) == []
    assert not path.exists()
    assert complete.read_bytes() == b""


def test_sessions_of_a_journal_that_another_broker_recovers_are_not_adopted(tmp_path: Path) -> None:
    left_by_the_dead(tmp_path, 1, 2)
    folder = tmp_path / "table=sessions/date=2026-11-21/hour=11"
    folder.mkdir(parents=True)
    (folder / ".part-dead-000001.jsonl.open").write_bytes(journal_module._encoder.encode(row(1)) + b"\n")
    with open(tmp_path / ".journal-dead") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert Dataset(options(tmp_path), "b2").close(5)
        assert published(tmp_path) == []
    assert Dataset(options(tmp_path), "b3").close(5)
    assert sorted(numbers(tmp_path)) == [1, 2]


def test_damage_in_a_journal_costs_no_more_than_its_line(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(b'[2,"torn\n' + b"\0\0\0\n[]\n-1\n" + whole + whole.replace(b"[1,", b"[3,") + b'[4,"torn')
    assert recovered(tmp_path) == [1, 3]


def test_the_journal_of_a_living_broker_is_left_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "b1", Disk())
    begin(journal, 1)
    assert recovered(tmp_path) == []
    journal.end([1])
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_many_sessions_do_not_make_a_long_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "b1", Disk())
    begin(journal, 1)
    size = (tmp_path / ".journal-b1").stat().st_size
    for number in range(2, SLACK_LINES + 3):
        assert not journal.is_long
        begin(journal, number)
        journal.end([number])
    assert journal.is_long
    journal.compact()
    assert not journal.is_long
    assert (tmp_path / ".journal-b1").stat().st_size == size
    begin(journal, 9_999)
    assert recovered(tmp_path) == []  # it is still locked
    assert entered(tmp_path) == [1, 9_999]
    journal.end([1, 9_999])
    journal.close()


def test_an_error_while_it_is_written_anew_changes_nothing(tmp_path: Path) -> None:
    for failing in range(1, 5):
        disk = FailingDisk(lambda call, failing=failing: call == 3 + failing)  # type: ignore[misc]
        journal = Journal(tmp_path, f"b{failing}", disk)
        begin(journal, 1, 2)
        journal.end([1])
        before = len(os.listdir("/dev/fd"))
        calls = disk.calls
        with pytest.raises(OSError, match="No space"):
            journal.compact()
        assert disk.calls == calls + failing
        assert entered(tmp_path, f"b{failing}") == [2]
        assert len(os.listdir("/dev/fd")) == before
        journal.compact()
        assert entered(tmp_path, f"b{failing}") == [2]
        journal.end([2])
        journal.close()


@pytest.mark.long
def test_the_writer_keeps_the_journal_short(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path), "b1", disk=FailingDisk(lambda call: call == 9))
    sessions = 3 * SLACK_LINES
    dataset.begin(opened(sessions + 1))
    for number in range(1, sessions + 1):
        dataset.begin(opened(number))
        dataset.write("sessions", row(number))
    until(lambda: dataset.pending_rows == 0)
    path = tmp_path / ".journal-b1"
    until(lambda: len(path.read_bytes().splitlines()) < 3 * SLACK_LINES)
    until(lambda: entered(tmp_path) == [sessions + 1])
    dataset.write("sessions", row(sessions + 1))
    assert dataset.close(5)
    assert list(tmp_path.glob(".*")) == []
    assert sorted(numbers(tmp_path)) == list(range(1, sessions + 2))


def test_an_interval_without_sessions_touches_it(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, interval_s=0.1), "b1")
    dataset.begin(opened(1))
    path = tmp_path / ".journal-b1"
    until(path.exists)
    written = path.stat().st_mtime_ns
    until(lambda: path.stat().st_mtime_ns > written)
    dataset.write("sessions", row(1))
    assert dataset.close(5)


def test_one_journal_that_cannot_be_recovered_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left_by_the_dead(tmp_path, 1)
    (tmp_path / ".journal-dead").rename(tmp_path / ".journal-dead2")
    left_by_the_dead(tmp_path, 2)
    for _ in recover(tmp_path, FailingDisk(lambda call: call == 1), False):
        pass
    assert ".journal-dead," in caplog.text
    assert numbers(tmp_path) == [1]
    assert sorted(recovered(tmp_path)) == [1, 2]


def test_when_the_journal_cannot_be_struck_out_the_rows_stay_where_they_are_looked_for(tmp_path: Path) -> None:
    class NoStriking(Disk):
        def write(self, fd: int, data: bytes) -> int:
            if data[:1].isdigit():
                raise OSError("no striking")
            return super().write(fd, data)

    dataset = Dataset(options(tmp_path, retry_after_s=60), "b1", disk=NoStriking())
    dataset.begin(opened(1))
    dataset.write("sessions", row(1))
    until(lambda: dataset.disk_errors == 1)
    assert not dataset.close(5)
    assert published(tmp_path) == []
    second = Dataset(options(tmp_path), "b2")
    assert second.close(5)
    assert numbers(tmp_path) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_whenever_a_broker_dies_and_the_next_one_too_each_session_has_one_row(tmp_path: Path, kind: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.crashes", str(tmp_path), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    scenarios, *wrong = result.stdout.splitlines()
    assert wrong == []
    assert int(scenarios.removesuffix(" stories")) > 80
