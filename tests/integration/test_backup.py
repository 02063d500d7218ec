"""Backups of brokers that run, stopped or were killed, and what a broker has that begins with one."""

import asyncio
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite import Broker, Client
from mqttlite.cli.backup import described
from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.store.sqlite import backup, beside, files
from mqttlite.store.sqlite.backup import Contents, back_up, restore
from mqttlite.store.sqlite.files import StoreError
from mqttlite.store.sqlite.schema import SCHEMA_VERSION


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Broker]:
    async with Broker(Config(data_dir=str(directory), listeners=(ListenerOptions(port=0),))) as broker:
        yield broker


def client(broker: Broker, client_id: str = "", clean_start: bool = True, session_s: int = 0) -> Client:
    return Client(
        "127.0.0.1", broker.port, client_id=client_id, clean_start=clean_start, session_expiry_interval=session_s
    )


async def subscribe_and_leave(broker: Broker) -> None:
    """Begin a session that gets everything below `load`."""
    async with client(broker, "reader", session_s=3_600) as reader:
        await reader.subscribe("load/#", qos=1)


async def received(broker: Broker, last: str) -> list[str]:
    """What waits for that session, up to a message."""
    found: list[str] = []
    async with client(broker, "reader", clean_start=False, session_s=3_600) as reader, asyncio.timeout(60):
        async for message in reader.messages:
            found.append(bytes(message.payload).decode())
            if found[-1] == last:
                break
    return found


async def run(*arguments: object) -> tuple[int, str]:
    """A command in a process of its own: its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", *map(str, arguments)), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with a retained message and a delayed one."""
    directory = tmp_path / "data"

    async def fill() -> None:
        async with serving(directory) as broker, client(broker) as publisher:
            await subscribe_and_leave(broker)
            await publisher.publish("load/r", "kept", qos=1, retain=True)
            await publisher.publish("$delayed/3600/later", "x", qos=1)

    asyncio.run(fill())
    return directory


@pytest.mark.slow
async def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    slowest_s = 0.0
    async with serving(tmp_path / "one") as broker, client(broker) as writer:
        await subscribe_and_leave(broker)

        async def publish() -> None:
            nonlocal slowest_s
            for number in range(1_000_000):
                began = time.monotonic()
                await writer.publish("load", f"{number}", qos=1)
                slowest_s = max(slowest_s, time.monotonic() - began)
                acknowledged.append(f"{number}")

        load = asyncio.create_task(publish())
        while len(acknowledged) < 200:
            await asyncio.sleep(0.01)
        before = list(acknowledged)
        code, said = await run("backup", tmp_path / "copy", "--data-dir", tmp_path / "one")
        assert (code, "1 session, " in said) == (0, True), said
        during = len(acknowledged)
        load.cancel()
        await asyncio.wait([load])
    assert during > len(before), "the broker served meanwhile"
    assert slowest_s < 2.0
    code, said = await run("restore", tmp_path / "copy", "--data-dir", tmp_path / "two")
    assert code == 0, said
    async with serving(tmp_path / "two") as broker:
        found = await received(broker, before[-1])
    assert found == before, "without gaps, in order"


@pytest.mark.long
async def test_a_backup_of_a_killed_broker_has_its_journal_and_leaves_it_there(tmp_path: Path) -> None:
    async with serving(tmp_path / "one") as broker, client(broker) as writer:
        await subscribe_and_leave(broker)
        for number in range(5):
            await writer.publish("load", f"{number}", qos=1)
        shutil.copytree(tmp_path / "one", tmp_path / "dead", ignore=lambda _folder, names: {"admin.sock"} & {*names})
    journal = tmp_path / "dead" / "mqttlite.db-wal"
    written = journal.read_bytes()
    assert written
    back_up(tmp_path / "dead", tmp_path / "copy")
    assert journal.read_bytes() == written
    restore(tmp_path / "copy", tmp_path / "two")
    for place in ("dead", "two"):
        async with serving(tmp_path / place) as broker:
            assert await received(broker, "4") == ["0", "1", "2", "3", "4"]


def test_a_backup_of_a_stopped_broker_is_private_whole_and_says_what_it_has(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    result = invoke("backup", copy, "--data-dir", directory)
    assert result.exit_code == 0, result.output
    size = f"{copy.stat().st_size:,}"
    said = f"1 session, 1 queued message, 1 retained message and 1 delayed message ({size} bytes)."
    assert result.stderr == f"{copy} has {said}\n"
    assert result.stdout == ""
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "data"]
    two = tmp_path / "new" / "folder"
    result = invoke("restore", copy, "--data-dir", two)
    assert (result.exit_code, result.stderr) == (0, f"{two} has {said}\n")
    assert sorted(path.name for path in two.iterdir()) == ["mqttlite.db", "mqttlite.lock"]
    assert back_up(two, tmp_path / "again") == Contents(1, 1, 1, 1, copy.stat().st_size)


def test_they_take_the_directory_that_serve_takes(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(directory))
    assert invoke("backup", tmp_path / "copy").exit_code == 0
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "two"))
    assert invoke("restore", tmp_path / "copy").exit_code == 0
    assert invoke("backup", tmp_path / "copy2", "--data-dir", "").exit_code == 2


def test_a_backup_overwrites_nothing(directory: Path, tmp_path: Path) -> None:
    there, cut_off = tmp_path / "there", tmp_path / "x.new"
    there.write_text("mine")
    cut_off.write_text("mine")
    result = invoke("backup", there, "--data-dir", directory)
    assert (result.exit_code, "there exists already" in result.stderr) == (1, True)
    result = invoke("backup", tmp_path / "x", "--data-dir", directory)
    assert (result.exit_code, "another backup is being written, or one was cut off" in result.stderr) == (1, True)
    assert (there.read_text(), cut_off.read_text()) == ("mine", "mine")


def test_a_backup_that_cannot_be_made_is_a_sentence_and_leaves_nothing(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke("backup", tmp_path / "copy", "--data-dir", tmp_path / "nowhere")
    assert (result.exit_code, "nowhere has no database: name the broker's data" in result.stderr) == (1, True)
    result = invoke("backup", tmp_path / "no" / "copy", "--data-dir", directory)
    assert (result.exit_code, "cannot be written: No such file" in result.stderr) == (1, True)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "put_in_place", full)
    result = invoke("backup", tmp_path / "copy", "--data-dir", directory)
    assert (result.exit_code, "copy cannot be written: No space left on device" in result.stderr) == (1, True)
    monkeypatch.setattr(files, "put_in_place", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert invoke("backup", tmp_path / "copy", "--data-dir", directory).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_copy_that_is_not_whole_is_no_backup(directory: Path, tmp_path: Path) -> None:
    back_up(directory, tmp_path / "copy")
    with (tmp_path / "copy").open("r+b") as file:
        file.seek(2 * 4_096)
        file.write(b"\xff" * 4_096)
    result = invoke("restore", tmp_path / "copy", "--data-dir", tmp_path / "two")
    assert (result.exit_code, "cannot be copied" in result.stderr) == (1, True), result.stderr
    connection = sqlite3.connect(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"is not whole|cannot be read"):
        backup._contents(connection, tmp_path / "copy")
    connection.close()


def test_damage_found_in_the_copy_is_reported(directory: Path, tmp_path: Path) -> None:
    back_up(directory, tmp_path / "copy")
    connection = sqlite3.connect(tmp_path / "copy")
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'data BLOB NOT NULL', 'data BLOB NOT NULL CHECK (data IS NULL)') "
        "WHERE name = 'sessions'"
    )
    connection.commit()
    connection.close()
    connection = sqlite3.connect(tmp_path / "copy")
    with pytest.raises(StoreError, match="copy is not whole: CHECK constraint failed in sessions"):
        backup._contents(connection, tmp_path / "copy")
    connection.close()
    with pytest.raises(StoreError, match="copy cannot be read: Cannot operate on a closed database"):
        backup._contents(connection, tmp_path / "copy")


def test_a_database_that_cannot_be_opened_is_a_sentence(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(backup.sqlite3, "connect", refuse)
    with pytest.raises(StoreError, match=r"mqttlite\.db cannot be opened: unable to open"):
        back_up(directory, tmp_path / "copy")


@pytest.mark.long
async def test_nothing_is_restored_while_a_broker_runs(tmp_path: Path) -> None:
    async with serving(tmp_path / "one"):
        await asyncio.to_thread(back_up, tmp_path / "one", tmp_path / "copy")
        code, said = await run("restore", tmp_path / "copy", "--data-dir", tmp_path / "one")
        assert code == 1
        assert f"is in use by process {os.getpid()}: stop that broker first" in said


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_database_is_not_overwritten(directory: Path, tmp_path: Path, suffix: str) -> None:
    back_up(directory, tmp_path / "copy")
    present = tmp_path / "two" / f"mqttlite.db{suffix}"
    present.parent.mkdir()
    present.write_text("mine")
    result = invoke("restore", tmp_path / "copy", "--data-dir", tmp_path / "two")
    assert (result.exit_code, f"{present} exists already, and is not overwritten" in result.stderr) == (1, True)
    assert present.read_text() == "mine"
    present.unlink()
    restore(tmp_path / "copy", tmp_path / "two")  # the lock is free again


def made(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for sql in statements:
        connection.execute(sql)
    connection.close()


def test_a_file_that_is_no_backup_is_refused(directory: Path, tmp_path: Path) -> None:
    newer, other, empty, text = (tmp_path / name for name in ("newer", "other", "empty", "text"))
    back_up(directory, newer)
    made(newer, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    made(newer, "CREATE TABLE added (x)")
    made(other, "CREATE TABLE t (x)")
    empty.touch()
    text.write_text("not a database " * 1_000)
    for path, said in (
        (newer, "was written by a newer version of mqttlite"),
        (other, "is the database of another program"),
        (empty, "empty cannot be read: tables are missing"),
        (text, "cannot be read: file is not a database"),
        (tmp_path / "none", "there is no such file"),
        (tmp_path, "there is no such file"),
    ):
        result = invoke("restore", path, "--data-dir", tmp_path / "two")
        assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
        assert not (tmp_path / "two" / "mqttlite.db").exists()
        assert not (tmp_path / "two" / "mqttlite.db.new").exists()


def test_files_left_by_an_interrupted_restore_are_made_anew(directory: Path, tmp_path: Path) -> None:
    back_up(directory, tmp_path / "copy")
    left = tmp_path / "two" / "mqttlite.db.new"
    left.parent.mkdir()
    left.write_text("half")
    restore(tmp_path / "copy", tmp_path / "two")
    assert not left.exists()


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_the_help_lists_the_exit_codes(command: str) -> None:
    assert "Exit codes: 0, done; 1, refused or failed" in " ".join(invoke(command, "--help").stdout.split())


FILES = ("api-keys.json", "dynamic-security.json", "schemas.json", "topics.json")


def test_files_beside_the_database_come_back(directory: Path, tmp_path: Path) -> None:
    for name in FILES:
        (directory / name).write_text(f'{{"of": "{name}"}}')
    (directory / "topics.json.new").write_text("half of it")
    done = invoke("backup", tmp_path / "b.db", "--data-dir", directory)
    assert done.stderr.endswith(f" bytes), and {', '.join(FILES)}.\n")
    target = tmp_path / "other"
    target.mkdir()
    (target / "topics.json").write_text('{"of": "topics.json"}')  # as in the backup
    done = invoke("restore", tmp_path / "b.db", "--data-dir", target)
    assert done.exit_code == 0, done.stderr
    assert sorted(each.name for each in target.glob("*.json*")) == sorted(FILES)
    for name in FILES:
        assert (target / name).read_text() == f'{{"of": "{name}"}}'
        assert (target / name).stat().st_mode & 0o077 == 0 or name == "topics.json"
    with sqlite3.connect(target / files.DATABASE) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'beside'").fetchone() is None
    connection.close()
    assert b"of" + b'": "api' not in (target / files.DATABASE).read_bytes()


def test_a_file_beside_the_database_is_not_overwritten(directory: Path, tmp_path: Path) -> None:
    (directory / "topics.json").write_text("{}")
    back_up(directory, tmp_path / "b.db")
    target = tmp_path / "other"
    target.mkdir()
    (target / "topics.json").write_text("mine")
    with pytest.raises(StoreError, match=r"topics\.json exists already, and is not overwritten"):
        restore(tmp_path / "b.db", target)
    assert [each.name for each in target.iterdir() if "lock" not in each.name] == ["topics.json"]
    assert (target / "topics.json").read_text() == "mine"


@pytest.mark.parametrize("name", ["../evil.json", "evil", "/tmp/evil.json", ".json"])
def test_a_backup_cannot_put_files_elsewhere(directory: Path, tmp_path: Path, name: str) -> None:
    (directory / "topics.json").write_text("{}")
    back_up(directory, tmp_path / "b.db")
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.execute("INSERT INTO beside VALUES (?, x'00')", (name,))
    connection.close()
    with pytest.raises(StoreError, match="which no data directory has"):
        restore(tmp_path / "b.db", tmp_path / "other")


def test_files_are_limited_in_number_and_size(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "a.json").write_text("{}")
    monkeypatch.setattr(beside, "MAX_FILE_BYTES", 1)
    with pytest.raises(StoreError, match=r"a\.json is larger than 1 bytes"):
        back_up(directory, tmp_path / "b.db")
    monkeypatch.setattr(beside, "MAX_FILES", 0)
    with pytest.raises(StoreError, match=r"has 1 files \*\.json"):
        back_up(directory, tmp_path / "b.db")
    assert not list(tmp_path.glob("b.db*"))


async def test_queues_and_their_dead_letters_are_in_a_backup(tmp_path: Path) -> None:
    """With the attempts that were made, and without what was acknowledged."""
    options = QueueOptions(name="jobs", filters=("work/#",), max_attempts=2)
    config = Config(data_dir=str(tmp_path / "one"), listeners=(ListenerOptions(port=0),), queues=(options,))
    async with Broker(config) as broker:
        queues = broker.queues
        for number in range(4):
            await broker.publish("work/a", str(number), qos=1)
        first, second = queues.pull("jobs", 2)
        queues.ack("jobs", [first.ack_id])
        queues.nack("jobs", [second.ack_id], 0.0)
        (again, third) = queues.pull("jobs", 2)
        queues.nack("jobs", [again.ack_id])
        queues.nack("jobs", [third.ack_id], 0.0)
        await broker.commit()
        found = await asyncio.to_thread(back_up, tmp_path / "one", tmp_path / "copy")
        assert (found.sessions, found.logs["$queue"], found.logs["$dlq"]) == (0, (1, 2), (1, 1))
        assert (
            described(found)
            .partition(" (")[0]
            .endswith(", 0 delayed messages and 1 queue with 2 messages and 1 dead letter")
        )
    await asyncio.to_thread(restore, tmp_path / "copy", tmp_path / "two")
    async with serving(tmp_path / "two") as broker:
        queues = broker.queues
        assert queues.options("jobs") == options
        assert [letter.message.payload for letter in queues.dead_letters("jobs").letters()] == [b"1"]
        pulled = queues.pull("jobs", 9)
        async with asyncio.timeout(60):
            while len(pulled) < 2:  # what waits is read from the disk
                await asyncio.sleep(0.01)
                pulled += queues.pull("jobs", 9)
        assert [(each.message.payload, each.attempt) for each in pulled] == [(b"2", 2), (b"3", 1)]
