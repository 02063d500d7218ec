"""Data directories that cannot be used as they are: the sentence says why, and nothing in them is changed."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from mqttlite.core.changes import SaveSession
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.schema import SCHEMA_VERSION
from mqttlite.store.sqlite.store import SqliteStore
from tests.support.stores import loaded


def execute(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for sql in statements:
            connection.execute(sql)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database that a store made."""
    SqliteStore(tmp_path).close()
    return tmp_path / files.DATABASE


def refusal(directory: Path) -> str:
    with pytest.raises(files.StoreError) as caught:
        SqliteStore(directory)
    return str(caught.value)


async def test_committed_state_survives_a_reopening_of_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a" / "b")
    await store.commit([SaveSession("a", 60, 0.0)])
    store.close()
    store = SqliteStore(tmp_path / "a" / "b")
    assert len(loaded(store)) == 1
    store.close()


def test_a_directory_in_use_names_the_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert f"is in use by process {os.getpid()}" in refusal(tmp_path)
    store.close()
    SqliteStore(tmp_path).close()


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / files.DATABASE
    execute(path, "CREATE TABLE notes (text)")
    before = path.read_bytes()
    assert "is the database of another program" in refusal(tmp_path)
    assert path.read_bytes() == before


def test_the_mark_of_another_program_is_enough(tmp_path: Path) -> None:
    execute(tmp_path / files.DATABASE, "PRAGMA application_id = 7")
    assert "is the database of another program" in refusal(tmp_path)


def test_a_database_of_ours_whose_mark_is_damaged_is_ours(database: Path) -> None:
    execute(database, "PRAGMA application_id = 7")
    SqliteStore(database.parent).close()


def test_a_newer_schema_is_refused(database: Path) -> None:
    execute(database, f"PRAGMA user_version = {SCHEMA_VERSION + 1}", "CREATE TABLE added (x)")
    with pytest.raises(files.NewerSchema, match=f"newer version of mqttlite .schema {SCHEMA_VERSION + 1}"):
        SqliteStore(database.parent)
    assert not any(database.parent.glob("*.damaged-*"))
    execute(database, f"PRAGMA user_version = {SCHEMA_VERSION}")
    SqliteStore(database.parent).close()


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 1 << 30, 0, -1])
def test_a_version_number_that_does_not_fit_the_tables_is_damage(database: Path, version: int) -> None:
    execute(database, f"PRAGMA user_version = {version}")
    SqliteStore(database.parent).close()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def kept(directory: Path) -> list[str]:
    store = SqliteStore(directory)
    try:
        await store.commit([SaveSession("b", 60, 0.0)])
        return [change.client_id for change in loaded(store) if isinstance(change, SaveSession)]
    finally:
        store.close()


@pytest.mark.long
async def test_any_damaged_byte_of_the_header_costs_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "whole")
    await store.commit([SaveSession("a", 60, 0.0)])
    store.close()
    content = (tmp_path / "whole" / files.DATABASE).read_bytes()
    for at in range(100):
        for mask in (0xFF, 0x01, 0x80):
            directory = tmp_path / f"{at}-{mask}"
            directory.mkdir()
            damaged = bytearray(content)
            damaged[at] ^= mask
            (directory / files.DATABASE).write_bytes(damaged)
            assert await kept(directory) == ["a", "b"], f"byte {at} ^ {mask}"


def test_another_program_s_database_with_a_damaged_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / files.DATABASE
    execute(path, "CREATE TABLE notes (text)")
    content = bytearray(path.read_bytes())
    content[47] = 9
    path.write_bytes(content)
    assert "is the database of another program" in refusal(tmp_path)
    assert path.read_bytes() == content
    assert not any(tmp_path.glob("*.image*"))


def test_a_file_where_the_directory_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refusal(tmp_path / "file")
    assert "cannot be made" in refusal(tmp_path / "file" / "below")


def test_a_lock_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.LOCK).mkdir()
    assert "cannot be opened" in refusal(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may write everywhere")
def test_a_directory_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "cannot be opened" in refusal(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_where_the_database_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.DATABASE).mkdir()
    assert "cannot be opened" in refusal(tmp_path)


def test_a_full_disk_is_told_from_lasting_errors(tmp_path: Path) -> None:
    full, other = sqlite3.OperationalError("database or disk is full"), sqlite3.OperationalError("unable to open")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert isinstance(files.cannot_open(tmp_path, full), files.NoRoom)
    assert not isinstance(files.cannot_open(tmp_path, other), files.NoRoom)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no database, but long enough to be taken for one" * 100])
def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / files.DATABASE).write_bytes(content)
    store = SqliteStore(tmp_path)
    assert loaded(store) == []
    store.close()
    (kept,) = tmp_path.glob(f"{files.DATABASE}.damaged-*")
    assert kept.read_bytes() == content


def test_a_table_that_is_missing_costs_only_its_rows(database: Path) -> None:
    execute(database, "DROP TABLE retained")
    store = SqliteStore(database.parent)
    assert loaded(store) == []
    store.close()
    assert any(database.parent.glob(f"{files.DATABASE}.damaged-*"))


def test_the_journal_of_a_database_that_is_missing_is_kept_and_not_read(tmp_path: Path) -> None:
    (tmp_path / f"{files.DATABASE}-wal").write_bytes(b"journal")
    SqliteStore(tmp_path).close()
    (kept,) = tmp_path.glob(f"{files.DATABASE}.damaged-*-wal")
    assert kept.read_bytes() == b"journal"


def test_a_database_that_vanished_is_not_made_anew_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        files.connect(tmp_path / files.DATABASE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("present", [(), ("",), ("-wal",), ("", "-wal", "-shm")])
def test_an_exchange_that_was_begun_is_completed_from_wherever_it_is(database: Path, present: tuple[str, ...]) -> None:
    salvaged = database.with_name(database.name + files.SALVAGED)
    database.rename(salvaged)
    content = salvaged.read_bytes()
    for suffix in present:
        database.with_name(database.name + suffix).write_bytes(b"damaged")
    aside = files.finish_replacing(database)
    assert aside is not None
    kept = {each.name.removeprefix(aside.name) for each in database.parent.glob("*.damaged-*")}
    assert kept == set(present) - {"-shm"}
    assert database.read_bytes() == content
    assert not salvaged.exists()
    assert not database.with_name(database.name + "-shm").exists()
    assert files.finish_replacing(database) is None


def test_an_error_without_a_code_is_no_damage() -> None:
    assert not files.is_damage(sqlite3.DatabaseError("something"))
    assert not files.is_damage(OSError("something"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_the_owner_reads_the_database_whatever_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = os.umask(0o022)
    try:
        tmp_path.chmod(0o755)
        for _ in range(2):
            store = SqliteStore(tmp_path)
            found = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.glob("mqttlite.db*")}
            assert set(found) >= {"mqttlite.db", "mqttlite.db-shm"}
            assert set(found.values()) == {0o600}
            store.close()
            (tmp_path / files.DATABASE).chmod(0o644)  # as earlier versions made it
        assert caplog.text.count(f"{tmp_path} is open to every user of this machine (mode 755): chmod 700") == 2
        caplog.clear()
        tmp_path.chmod(0o750)
        SqliteStore(tmp_path).close()
        assert caplog.text == ""
    finally:
        os.umask(before)
