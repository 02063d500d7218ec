"""What a store on disk does when something is not as it should be, one thing at a time."""

import asyncio
import contextlib
import logging
import re
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqttlite.core.changes import (
    IF_LOST,
    Change,
    Enqueue,
    SaveDelayed,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Settled,
    Stored,
)
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite import store as sqlite_store
from mqttlite.store.sqlite.reader import ROWS
from mqttlite.store.sqlite.records import (
    Damaged,
    decode_subscription,
    decode_will,
    encode_subscription,
    encode_will,
    opened,
    sealed,
)
from mqttlite.store.sqlite.store import SqliteStore
from mqttlite.store.sqlite.worker import Worker
from mqttlite.wire.packets import Will
from tests.support.stores import everything, loaded


def message(sequence: int, payload: bytes = b"x", packet_id: int = 0) -> Enqueue:
    return Enqueue("a", sequence, Delivery(Message(b"t", payload, 1), 1, False), packet_id)


def payloads(changes: list[Change]) -> list[bytes]:
    return [each.delivery.message.payload for each in changes if isinstance(each, Enqueue)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    yield made
    made.close()


@contextlib.contextmanager
def database(directory: Path) -> Iterator[sqlite3.Connection]:
    """The database, for another connection."""
    with contextlib.closing(sqlite3.connect(directory / files.DATABASE, isolation_level=None)) as connection:
        yield connection


async def damaged(directory: Path, changes: list[Change], sql: str, *values: object) -> SqliteStore:
    """A store with these changes whose database was changed by a statement."""
    store = SqliteStore(directory)
    await store.commit(changes)
    store.close()
    with database(directory) as connection:
        connection.execute(sql, values)
    return SqliteStore(directory)


async def test_stored_is_nothing_to_commit_and_changes_nothing(store: SqliteStore) -> None:
    with pytest.raises(TypeError, match="nothing to commit"):
        await store.commit([SaveSession("a", 60, 0.0), Stored("a", 0, 1, 1)])
    await store.commit([SaveSession("b", 60, 0.0)])
    assert [getattr(change, "client_id", "") for change in await everything(store)] == ["b"]


async def test_a_session_with_a_damaged_state_gets_the_remaining_messages_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [SaveSession("a", 60, 0.0), message(0, b"0"), message(1, b"1", 0)]
    store = await damaged(tmp_path, [*changes, Settled("a", 0)], "UPDATE state SET crc = 1")
    assert payloads(await everything(store)) == [b"1"]
    await store.commit([message(2, b"2")])
    store.close()
    store = SqliteStore(tmp_path)
    assert payloads(await everything(store)) == [b"1", b"2"]
    store.close()
    assert "it gets again what is there" in caplog.text


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE queue SET extra = x'ff00', count = 7 WHERE first = 1",
        "UPDATE queue SET size = x'00ff' WHERE first = 1",
        "UPDATE queue SET bytes = 1e300 WHERE first = 1",
        "UPDATE queue SET total = 'many' WHERE first = 1",
        "UPDATE queue SET crc = NULL, count = 1 WHERE first = -1",
        "UPDATE chunks SET data = zeroblob(length(data))",
        "UPDATE chunks SET data = 'text'",
    ],
)
async def test_a_damaged_row_is_lost_alone(tmp_path: Path, sql: str) -> None:
    store = await damaged(tmp_path, [SaveSession("a", 60, 0.0), message(0, b"0")], "SELECT 1")
    await store.commit([message(1, b"1")])
    await store.commit([message(2, b"2")])
    store.close()
    with database(tmp_path) as connection:
        connection.execute(sql)
    store = SqliteStore(tmp_path)
    loaded(store)
    page = await store.page("a", 0, 3)
    assert [each and each.message.payload for each in page] in (
        [b"0", b"1", b"2"],
        [b"0", None, b"2"],
        [None, None, None],
    )
    store.close()


async def test_a_session_that_is_there_has_not_ended_whatever_a_damaged_page_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[Change] = [SaveSession("a", 60, 0.0), message(0, b"0")]
    store = await damaged(tmp_path, changes, "INSERT INTO ended SELECT id FROM sessions")
    await store.commit([message(1, b"1")])
    store.close()  # after maintenance
    store = SqliteStore(tmp_path)
    assert payloads(await everything(store)) == [b"0", b"1"]
    store.close()
    store = await damaged(tmp_path, [], "INSERT OR IGNORE INTO ended SELECT id FROM sessions")
    assert payloads(await everything(store)) == [b"0", b"1"]
    store.close()
    assert "it says of sessions that they have ended, and has them" in caplog.text
    with database(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM ended").fetchone() == (0,)


@pytest.mark.parametrize(("cut", "lost"), [(12, 1), (3, 1), (43, 2)], ids=["body", "length", "two"])
async def test_a_damaged_message_costs_no_others_of_its_row(tmp_path: Path, cut: int, lost: int) -> None:
    changes: list[Change] = [SaveSession("a", 60, 0.0), *[message(at, b"%02d" % at * 10) for at in range(20)]]
    store = await damaged(tmp_path, changes, "SELECT 1")
    store.close()
    with database(tmp_path) as connection:
        ((rows, data),) = connection.execute("SELECT count(*), data FROM queue JOIN chunks ON chunks.id = chunk")
        at = len(data) // 20 * 7 + cut
        whole = data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 8]) + data[at + 8 :]
        connection.execute("UPDATE chunks SET data = ?", (whole,))
    assert rows == 1
    store = SqliteStore(tmp_path)
    loaded(store)
    expected = [None if 7 <= at < 7 + lost else b"%02d" % at * 10 for at in range(20)]
    for first in (0, 7, 8, 12):
        page = await store.page("a", first, 20 - first)
        assert [each and each.message.payload for each in page] == expected[first:]
    store.close()


async def test_a_table_that_became_unreadable_is_found_when_it_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0), *[message(at, b"%d" % at * 3_000) for at in range(50)]])
    store.close()
    with database(tmp_path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunks'").fetchone()
    content = bytearray(content_of(tmp_path))
    content[(root - 1) * 4_096 : root * 4_096] = b"\xff" * 4_096
    (tmp_path / files.DATABASE).write_bytes(content)
    store = SqliteStore(tmp_path)
    assert [type(change) for change in loaded(store)] == [SaveSession]
    store.close()
    assert "lost: a part of chunks that cannot be read, 50 queued messages of 'a'" in caplog.text


@pytest.mark.parametrize("table", ["chunks", "queue", "sessions", "state", "subscriptions", "retained"])
async def test_a_page_whose_head_is_damaged_loses_none_of_its_rows(tmp_path: Path, table: str) -> None:
    """SQLite finds rows by the head of their page; their own bytes tell what they are, too."""
    store = SqliteStore(tmp_path)
    subscription = SaveSubscription("a", Subscription("a", b"filter", 1))
    retained = SaveRetained(Message(b"topic", b"kept", 1, True))
    messages = [message(at, b"%d" % at * 20, at + 1) for at in range(8)]
    await store.commit([SaveSession("a", 60, 0.0), subscription, retained, *messages])
    whole = [type(change) for change in loaded(store)]
    store.close()
    with database(tmp_path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    content = bytearray(content_of(tmp_path))
    content[(root - 1) * 4_096 : (root - 1) * 4_096 + 64] = bytes(64)
    (tmp_path / files.DATABASE).write_bytes(content)
    store = SqliteStore(tmp_path)
    changes = loaded(store)
    store.close()
    assert [type(change) for change in changes] == whole
    assert payloads(changes) == [b"%d" % at * 20 for at in range(8)]


async def test_a_schema_without_page_numbers_loses_no_rows(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0), message(0, b"x", 1)])
    store.close()
    with database(tmp_path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = NULL WHERE name IN ('queue', 'sessions')")
    store = SqliteStore(tmp_path)
    assert payloads(loaded(store)) == [b"x"]
    store.close()


async def test_messages_that_were_acknowledged_out_of_order_are_not_said_to_be_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [SaveSession("a", 60, 0.0), *[message(at, b"x", at + 1) for at in range(9)]]
    store = SqliteStore(tmp_path)
    for change in changes:
        await store.commit([change])
    await store.commit([Settled("a", at) for at in (2, 3, 6)])
    store.close()
    with database(tmp_path) as connection:
        connection.execute("DROP TABLE retained")
    SqliteStore(tmp_path).close()
    assert "lost: a part of retained that cannot be read" in caplog.text
    assert "queued messages" not in caplog.text


def test_the_checksum_of_nothing_is_no_record() -> None:
    for data in (bytes(8), bytes(20), sealed(b"")):
        with pytest.raises(Damaged):
            opened(data)
    with pytest.raises(Damaged):
        opened("text")
    with pytest.raises(Damaged):
        opened(None)


def test_a_record_fits_no_other_place() -> None:
    record = (zlib.crc32(b"body", 5)).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"body"
    assert opened(record, 0, 5) == b"body"
    with pytest.raises(Damaged):
        opened(record, 0, 6)


def test_a_will_fits_no_other_session() -> None:
    will = Will(b"t", b"gone")
    assert decode_will(encode_will(will, 3, 9.5), 3) == (will, 9.5)
    with pytest.raises(Damaged):
        decode_will(encode_will(will, 3, 9.5), 4)


def test_a_subscription_fits_no_other_client() -> None:
    record = encode_subscription(Subscription("a\u00e9", b"t/#", 1))
    found = decode_subscription(record, "a\u00e9", "a\u00e9".encode())
    assert (found.client_id, found.topic_filter, found.qos) == ("a\u00e9", b"t/#", 1)
    for owner in (b"a", b"", b"t/#"):
        with pytest.raises(Damaged):
            decode_subscription(record, owner.decode(), owner)


@pytest.mark.long
async def test_a_start_reads_more_rows_than_it_fetches_at_a_time(tmp_path: Path) -> None:
    counts = {"a": ROWS - 1, "b": 1, "c": ROWS + 1, "d": 2}
    changes: list[Change] = []
    for client_id, count in counts.items():
        changes.append(SaveSession(client_id, 60, 0.0))
        changes += [SaveSubscription(client_id, Subscription(client_id, b"%d" % at, 0)) for at in range(count)]
    store = SqliteStore(tmp_path)
    await store.commit([*changes, *[SaveRetained(Message(b"r/%d" % at, b"x")) for at in range(ROWS + 1)]])
    store.close()
    store = SqliteStore(tmp_path)
    found = loaded(store)
    store.close()
    owners = [each.client_id for each in found if isinstance(each, SaveSubscription)]
    assert {each: owners.count(each) for each in counts} == counts
    assert len([each for each in found if isinstance(each, SaveRetained)]) == ROWS + 1


async def test_a_will_is_due_when_it_was_whatever_its_column_says(tmp_path: Path) -> None:
    changes: list[Change] = [SaveSession("a", 60, 0.0), SaveWill("a", Will(b"t", b"gone"), 77.0)]
    store = await damaged(tmp_path, changes, "UPDATE wills SET due_at = 'never'")
    (will,) = [change for change in loaded(store) if isinstance(change, SaveWill)]
    assert round(will.due_at, 2) == 77.0
    store.close()


async def test_the_will_of_a_connected_client_is_due_if_the_client_is_lost(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 0, 0.0), SaveWill("a", Will(b"t", b"gone"), IF_LOST)])
    store.close()
    store = SqliteStore(tmp_path)
    session, will = loaded(store)
    store.close()
    assert isinstance(session, SaveSession)
    assert isinstance(will, SaveWill)
    assert (session.expiry_interval, will.due_at) == (0, IF_LOST)


async def test_times_are_those_of_the_wall_clock_after_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's seconds begin anew then."""
    store = SqliteStore(tmp_path)
    delayed = SaveDelayed(1, Message(b"t", b"", 1), 1_000.0, "a")
    will = SaveWill("a", Will(b"t", b"gone"), 1_000.0)
    await store.commit([SaveSession("a", 60, 1_000.0), will, delayed])
    store.close()
    with monkeypatch.context() as patch:  # nothing here waits for the loop, which has the same clock
        seconds = time.monotonic
        patch.setattr(time, "monotonic", lambda: seconds() - 400.0)
        store = SqliteStore(tmp_path)
        changes = {type(change): change for change in loaded(store)}
        store.close()
    times = changes[SaveSession].expires_at, changes[SaveWill].due_at, changes[SaveDelayed].due_at  # type: ignore[attr-defined]
    assert [round(at) for at in times] == [600, 600, 600]


async def test_a_flipped_bit_in_a_client_identifier_costs_a_session_only_in_its_record(tmp_path: Path) -> None:
    """It is also in a column and in an index; a salvage takes it from the record, which has a checksum."""
    store = SqliteStore(tmp_path / "whole")
    await store.commit([SaveSession("a", 60, 0.0), SaveSession("the-one", 60, 0.0), message(0)])
    store.close()
    content = content_of(tmp_path / "whole")
    places = [found.start() for found in re.finditer(b"the-one", content)]
    kept = []
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1
        kept.append(clients_in(tmp_path / f"{place}", bytes(flipped)))
    assert sorted(map(len, kept)) == [1, 2, 2]
    assert all(clients <= {"a", "the-one"} for clients in kept)


def content_of(directory: Path) -> bytes:
    return (directory / files.DATABASE).read_bytes()


def clients_in(directory: Path, content: bytes) -> set[str]:
    """The sessions of a store whose database that is."""
    directory.mkdir()
    (directory / files.DATABASE).write_bytes(content)
    store = SqliteStore(directory)
    clients = {change.client_id for change in loaded(store) if isinstance(change, SaveSession)}
    store.close()
    return clients


async def test_a_session_that_is_tidied_after_damage_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0)])
    broken = sqlite3.DatabaseError("malformed")
    broken.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    failures = [broken]

    def fail(_least: int) -> None:
        if failures:
            raise failures.pop()

    store._checkpoint = fail  # type: ignore[method-assign]
    await store.commit([message(0, b"0")])
    await store.commit([message(1, b"1")])
    page = await store.page("a", 0, 2)
    store.close()
    assert [each and each.message.payload for each in page] == [b"0", b"1"]
    assert "it could not be tidied" in caplog.text
    assert "the damaged database is kept as" in caplog.text


async def test_a_database_that_is_mostly_unused_is_shrunk_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "IDLE_CHECKPOINT_S", 0.01)
    monkeypatch.setattr(sqlite_store, "SHRINK_PAUSE_S", 0.0)
    monkeypatch.setattr(sqlite_store, "SPARSE_BYTES", 1_000_000)
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0)])
    for number in range(40):
        await store.commit([message(number, b"%d" % number * 50_000)])
    path = tmp_path / files.DATABASE
    most = path.stat().st_size
    await store.commit([Settled("a", number) for number in range(36)])
    async with asyncio.timeout(20):
        while path.stat().st_size > 1_000_000:
            await asyncio.sleep(0.01)
    assert most > 1_500_000
    page = await store.page("a", 36, 4)
    assert [each and each.message.payload for each in page] == [b"%d" % number * 50_000 for number in range(36, 40)]
    store.close()
    with database(tmp_path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_where_nothing_can_be_shared_the_store_is_alone_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has no room for the memory that the users of a database share."""
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0)])
    store.close()
    connect, modes = files._connect, []

    def fail(path: Path, mode: str, is_synced: bool) -> sqlite3.Connection:
        modes.append(mode)
        if mode == "NORMAL" and len(modes) == 1:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
            raise error
        return connect(path, mode, is_synced)

    monkeypatch.setattr(files, "_connect", fail)
    store = SqliteStore(tmp_path)
    assert len(loaded(store)) == 1
    with database(tmp_path) as reader, pytest.raises(sqlite3.OperationalError, match="locked"):
        reader.execute("SELECT count(*) FROM sessions").fetchone()
    await store.commit([SaveSession("b", 60, 0.0)])
    assert modes == ["NORMAL", "EXCLUSIVE", "NORMAL"]
    with database(tmp_path) as reader:
        assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    store.close()


async def test_an_idle_store_empties_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "IDLE_CHECKPOINT_S", 0.03)
    journal = tmp_path / f"{files.DATABASE}-wal"
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0), message(0)])
    assert journal.stat().st_size > 0
    async with asyncio.timeout(10):
        while journal.stat().st_size:
            await asyncio.sleep(0.01)
    await store.commit([message(1)])
    assert journal.stat().st_size > 0
    store.close()


async def test_a_journal_with_a_reader_is_emptied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "IDLE_CHECKPOINT_S", 0.03)
    journal = tmp_path / f"{files.DATABASE}-wal"
    store = SqliteStore(tmp_path)
    await store.commit([SaveSession("a", 60, 0.0)])
    with database(tmp_path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessions").fetchone()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.1)
        await store.commit([message(0)])
        assert asyncio.get_running_loop().time() - began < 0.9, "no commit waits for a reader"
        assert journal.stat().st_size > 0
        reader.execute("COMMIT")
    async with asyncio.timeout(10):
        while journal.stat().st_size:
            await asyncio.sleep(0.01)
    store.close()


# ---------------------------------------------------------------------- the worker


def worker(after: Callable[[], None] = lambda: None) -> Worker:
    return Worker("test", after, lambda: None)


async def test_a_job_s_result_and_error_reach_its_waiters() -> None:
    made = worker()
    assert await made.submit(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await made.submit(lambda: 1 // 0)
    assert made.close(10.0)


async def test_a_commit_goes_before_reads_that_wait() -> None:
    made = worker()
    gate, begun = threading.Event(), threading.Event()
    done: list[str] = []
    first = made.submit_read(lambda: (begun.set(), gate.wait()))
    begun.wait()
    waiting = [made.submit_read(lambda at=at: done.append(f"read {at}")) for at in range(2)]  # type: ignore[misc]
    waiting += [made.submit(lambda at=at: done.append(f"commit {at}")) for at in range(3)]  # type: ignore[misc]
    gate.set()
    await asyncio.gather(first, *waiting)
    assert done == ["commit 0", "read 0", "commit 1", "read 1", "commit 2"]
    assert made.close(10.0)


async def test_a_read_has_its_turn_when_a_commit_always_waits() -> None:
    """Maintenance after a commit takes until the loop has asked for the next one."""
    asked, done = threading.Semaphore(0), list[str]()
    made = worker(after=lambda: asked.acquire() if done[-1] == "commit" else None)  # type: ignore[arg-type, func-returns-value]
    await made.submit(lambda: done.append("commit"))
    read = made.submit_read(lambda: done.append("read"))
    for _ in range(20):
        commit = made.submit(lambda: done.append("commit"))
        asked.release()
        await commit
    asked.release()
    await read
    assert done[:4] == ["commit", "commit", "read", "commit"]
    assert made.close(10.0)


async def test_reads_that_wait_are_done_before_the_end() -> None:
    made = worker()
    gate = threading.Event()
    waiting = [made.submit(gate.wait), made.submit_read(lambda: 1), made.submit_read(lambda: 2)]
    closing = asyncio.get_running_loop().run_in_executor(None, made.close, 10.0)
    await asyncio.sleep(0.01)
    gate.set()
    assert await asyncio.gather(*waiting) == [True, 1, 2]
    assert await closing


async def test_no_caller_has_to_wait_for_a_job() -> None:
    made = worker()
    gate = threading.Event()
    future = made.submit(gate.wait)
    future.cancel()
    gate.set()
    assert await made.submit(lambda: 7) == 7
    assert made.close(10.0)


def test_a_job_ends_quietly_when_its_loop_is_closed() -> None:
    made = worker()
    gate = threading.Event()
    done: list[int] = []

    async def submit() -> None:
        made.submit(gate.wait)
        made.submit(lambda: done.append(1))

    asyncio.run(submit())
    gate.set()
    assert made.close(10.0)
    assert done == [1]


async def test_a_disk_that_hangs_holds_the_end_up_no_longer_than_it_may() -> None:
    is_free = threading.Event()
    made = worker()
    waiting = made.submit(is_free.wait)
    assert not made.close(0.01)
    is_free.set()
    assert await waiting
    assert made.close(10.0)
