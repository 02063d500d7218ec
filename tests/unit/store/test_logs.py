"""What stores keep of records and their logs: their data, what waits, what was taken and when it is due."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, SaveSession
from mqttlite.core.log_changes import (
    Append,
    Compact,
    Finish,
    KeepFrom,
    MoveHead,
    RemoveRecord,
    SaveDeadline,
    SaveRecord,
    StoredLog,
    Take,
)
from mqttlite.core.message import Delivery, Message
from mqttlite.store.memory import MemoryStore
from mqttlite.store.sqlite.files import DATABASE
from mqttlite.store.sqlite.records import Damaged, decode_record, encode_record
from mqttlite.store.sqlite.salvage import Source, salvage
from mqttlite.store.sqlite.statements import BLOB, BLOCK_ROWS, NUMBER, Inserter
from mqttlite.store.sqlite.store import SqliteStore
from tests.support.stores import everything, loaded

LOG = "\0$queue/jobs"


class Disk:
    """A store that is closed and opened between commits and what is read."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._memory = MemoryStore(pages=True)

    async def commit(self, *changes: Change) -> None:
        if self._path is None:
            self._memory.commit(list(changes))
            return
        store = SqliteStore(self._path)
        await store.commit(list(changes))
        store.close()

    async def read(self) -> list[tuple[object, ...]]:
        if self._path is None:
            return [seen(change) for change in await everything(self._memory)]
        store = SqliteStore(self._path)
        found = [seen(change) for change in await everything(store)]
        store.close()
        return found


@pytest.fixture(params=["memory", "sqlite"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(None if request.param == "memory" else tmp_path)


def seen(change: Change) -> tuple[object, ...]:
    if isinstance(change, SaveRecord):
        return "record", change.key, change.data
    if isinstance(change, Append):
        return "message", change.offset, change.mark, change.delivery.message.payload
    if isinstance(change, SaveDeadline):
        return "due", change.offset, round(change.due_at, 1)
    return type(change).__name__, getattr(change, "key", None) or getattr(change, "client_id", None)


def append(first: int, last: int) -> list[Change]:
    return [Append(LOG, at, Delivery(Message(b"a", b"%d" % at, 1), 1, False)) for at in range(first, last + 1)]


async def test_a_log_has_its_messages_their_marks_and_times(disk: Disk) -> None:
    await disk.commit(SaveRecord(LOG, b"first"), *append(0, 5))
    await disk.commit(SaveRecord(LOG, b"def"), Take(LOG, 0, 100), Take(LOG, 1, 101), Take(LOG, 2, 202))
    await disk.commit(SaveDeadline(LOG, 1, 50.0), SaveDeadline(LOG, 2, 60.0), Take(LOG, 1, 201), Finish(LOG, 0))
    await disk.commit(Finish(LOG, 7))
    assert await disk.read() == [
        ("record", LOG, b"def"),
        ("message", 1, 201, b"1"),
        ("message", 2, 202, b"2"),
        ("message", 3, 0, b"3"),
        ("message", 4, 0, b"4"),
        ("message", 5, 0, b"5"),
        ("due", 2, 60.0),
    ]
    await disk.commit(Finish(LOG, 2), Finish(LOG, 1))
    assert [each[1] for each in await disk.read() if each[0] in ("message", "due")] == [3, 4, 5]


async def test_a_record_that_ends_and_begins_again_has_only_new_entries(disk: Disk) -> None:
    await disk.commit(SaveRecord(LOG, b"def"), SaveSession("jobs", 10, 0.0), *append(0, 3), Take(LOG, 0, 1))
    await disk.commit(RemoveRecord(LOG), SaveRecord(LOG, b"new"), *append(4, 5))
    found = [each for each in await disk.read() if each[0] != "SaveSession"]
    assert found == [("record", LOG, b"new"), ("message", 4, 0, b"4"), ("message", 5, 0, b"5")]
    await disk.commit(RemoveRecord(LOG))
    assert await disk.read() == [("SaveSession", "jobs")]


async def test_messages_that_are_kept_wait_again(disk: Disk) -> None:
    await disk.commit(SaveRecord(LOG, b"def"), *append(0, 5), KeepFrom(LOG, 1))
    sent: list[Change] = [Take(LOG, at, 100 + at) for at in range(4)]
    await disk.commit(*sent, *(Finish(LOG, at) for at in range(3)))
    assert payloads_of(await disk.read()) == [b"3", b"4", b"5"]
    await disk.commit(MoveHead(LOG, 1))
    found = await disk.read()
    assert payloads_of(found) == [b"1", b"2", b"3", b"4", b"5"]
    assert [each[2] for each in found if each[0] == "message"] == [0] * 5
    assert ("KeepFrom", LOG) in found
    await disk.commit(MoveHead(LOG, 6), *append(6, 6))
    assert payloads_of(await disk.read()) == [b"6"]
    await disk.commit(MoveHead(LOG, 4), Take(LOG, 4, 1))
    assert payloads_of(await disk.read()) == [b"4", b"5", b"6"]
    await disk.commit(KeepFrom(LOG, -1), Finish(LOG, 4))
    found = await disk.read()
    assert (payloads_of(found), ("KeepFrom", LOG) in found) == ([b"5", b"6"], False)


@pytest.mark.long
async def test_unneeded_messages_are_deleted_in_parts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveRecord(LOG, b"def"), KeepFrom(LOG, 0)])
    for at in range(500):
        await store.commit(append(at, at))
    await store.commit([MoveHead(LOG, 500)])
    assert rows_in(tmp_path) == 500
    await store.commit([KeepFrom(LOG, -1)])
    store.close()
    assert 0 < rows_in(tmp_path) <= 300
    store = SqliteStore(tmp_path)
    await store.commit([*append(500, 500), Take(LOG, 500, 1)])
    await store.commit([*append(501, 501), Take(LOG, 501, 1)])
    store.close()
    assert rows_in(tmp_path) == 2


async def test_a_log_of_a_family_is_trimmed_without_the_others(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    logs = [f"\0log/{number}" for number in range(3)]
    await disk.commit(*[SaveRecord(each, b"") for each in logs])
    deliveries = [Delivery(Message(b"t", b"%d" % at, 1), 1, False) for at in range(6)]
    await disk.commit(*[Append(logs[at % 3], at // 3, each, 0, "logs") for at, each in enumerate(deliveries)])
    assert chunks_in(tmp_path) == 1
    await disk.commit(MoveHead(logs[1], 2), RemoveRecord(logs[0]))
    assert payloads_of(await disk.read()) == [b"2", b"5"]
    await disk.commit(MoveHead(logs[2], 2))
    await disk.commit()
    assert chunks_in(tmp_path) == 0


@pytest.mark.parametrize("rows", [1, 2, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 7])
def test_all_rows_of_a_statement_are_inserted_however_many_they_are(rows: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE found (id INTEGER PRIMARY KEY, name TEXT, data BLOB)")
    inserter = Inserter("found", NUMBER + NUMBER + BLOB)
    given = [(number, f"n{number}", bytes([number % 256]) * (number % 5)) for number in range(rows)]
    inserter.run(connection, [(number, "former", b"former") for number in range(rows)])
    inserter.run(connection, given)
    assert connection.execute("SELECT * FROM found ORDER BY id").fetchall() == given
    connection.close()


def chunks_in(path: Path) -> int:
    with sqlite3.connect(path / DATABASE) as connection:
        (found,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    connection.close()
    return int(found)


def rows_in(path: Path) -> int:
    with sqlite3.connect(path / DATABASE) as connection:
        (found,) = connection.execute("SELECT count(*) FROM queue").fetchone()
    connection.close()
    return int(found)


def payloads_of(found: list[tuple[object, ...]]) -> list[object]:
    return [each[3] for each in found if each[0] == "message"]


async def test_a_message_for_many_logs_is_stored_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    message = Message(b"a", b"x" * 10_000, 1)
    names = [f"\0$queue/{number}" for number in range(50)]
    changes: list[Change] = [SaveRecord(name, b"") for name in names]
    await store.commit([*changes, *(Append(name, 0, Delivery(message, 1, False)) for name in names)])
    store.close()
    assert (tmp_path / DATABASE).stat().st_size < 150_000
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (1,)
    connection.close()


async def test_a_time_is_kept_of_taken_messages_alone(disk: Disk) -> None:
    await disk.commit(SaveRecord(LOG, b""), *append(0, 0), SaveDeadline(LOG, 0, 5.0), SaveDeadline(LOG, 9, 5.0))
    assert "due" not in [each[0] for each in await disk.read()]


async def test_a_damaged_record_costs_its_log_and_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveRecord(LOG, b"def"), SaveRecord("\0$queue/other", b"def"), *append(0, 0)])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE queues SET data = x'00' WHERE name = '$queue/jobs'")
    connection.close()
    store = SqliteStore(tmp_path)
    assert [seen(each) for each in loaded(store) if isinstance(each, SaveRecord)] == [
        ("record", "\0$queue/other", b"def")
    ]
    store.close()


async def test_a_record_under_another_name_is_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveRecord(LOG, b"def")])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE queues SET name = 'x'")
    connection.close()
    store = SqliteStore(tmp_path)
    assert loaded(store) == []
    store.close()


async def test_a_salvaged_database_has_its_records(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    await disk.commit(SaveRecord(LOG, b"def"), *append(0, 2), Take(LOG, 0, 1), SaveDeadline(LOG, 0, 5.0))
    before = await disk.read()
    path = tmp_path / DATABASE
    assert any("1 rows of queues" in sentence for sentence in salvage(Source(path), path, [], -1))
    assert await disk.read() == before


def test_a_record_fits_no_other() -> None:
    data = encode_record(SaveRecord(LOG, b"\0def\0"), 5)
    decoded = decode_record(data, 5)
    assert (decoded.key, decoded.data) == (LOG, b"\0def\0")
    with pytest.raises(Damaged):
        decode_record(data, 6)


async def test_pages_are_those_of_the_log_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveRecord(LOG, b""), SaveSession("\1$queue/jobs", 10, 0.0), *append(0, 3)])
    assert [each and each.message.payload for each in await store.page(LOG, 1, 2)] == [b"1", b"2"]
    assert await store.page("\0$queue/x", 0, 2) == [None, None]
    assert [change.count for change in loaded(store) if isinstance(change, StoredLog) and change.count] == [4]
    store.close()


async def test_a_page_has_every_byte_of_its_messages(tmp_path: Path) -> None:
    """Zeros and bytes that are no text, in several chunks that SQLite joins."""
    store = SqliteStore(tmp_path)
    payloads = [bytes(100), bytes(range(256)), b"\xff\xfe\0", b""]
    await store.commit([SaveRecord(LOG, b"")])
    for offset, payload in enumerate(payloads):
        await store.commit([Append(LOG, offset, Delivery(Message(b"t", payload, 1), 1, False), 0)])
    assert [each and each.message.payload for each in await store.page(LOG, 0, 4)] == payloads
    found = (await store.entries(LOG, 0, 4, 4)).found
    assert [each.message.payload for _, each in found] == payloads
    store.close()


# ---------------------------------------------------------------------- logs with gaps


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore | SqliteStore]:
    if request.param == "memory":
        yield MemoryStore(pages=True)
        return
    store = SqliteStore(tmp_path)
    yield store
    store.close()


async def commit(store: MemoryStore | SqliteStore, *changes: Change) -> None:
    under_way = store.commit(list(changes))
    if under_way is not None:
        await under_way


async def entries(store: MemoryStore | SqliteStore, first: int, end: int, count: int = 1_000) -> list[tuple[int, str]]:
    """All of them, in pages of `count`."""
    found: list[tuple[int, str]] = []
    while first < end:
        page, following = await store.entries(LOG, first, end, count)
        assert len(page) <= count
        assert first < following <= end
        found += [(offset, each.message.payload.decode()) for offset, each in page]
        first = following
    return found


def stored(store: MemoryStore | SqliteStore) -> tuple[int, int]:
    """The first offset and the end."""
    (log,) = [each for each in loaded(store) if isinstance(each, StoredLog)]
    return log.first, log.first + log.count


@pytest.mark.parametrize("count", [1, 3, 1_000])
async def test_the_rest_of_a_compacted_log_keeps_its_offsets(store: MemoryStore | SqliteStore, count: int) -> None:
    await commit(store, SaveRecord(LOG, b"d"), *append(0, 5))
    await commit(store, *append(6, 9))
    await commit(store, Compact(LOG, 1, 8, (2, 3, 7)))
    assert await entries(store, 0, 10, count) == [(at, str(at)) for at in (0, 2, 3, 7, 8, 9)]
    assert await entries(store, 4, 8, count) == [(7, "7")]
    assert await entries(store, 4, 7, count) == []
    assert stored(store) == (0, 10)
    await commit(store, *append(10, 11), Compact(LOG, 0, 10, (7, 9)), MoveHead(LOG, 7))
    assert await entries(store, 0, 12, count) == [(at, str(at)) for at in (7, 9, 10, 11)]
    assert stored(store) == (7, 12)
    page = await store.page(LOG, 7, 4)
    assert [None if each is None else each.message.payload for each in page] == [b"7", None, b"9", b"10"]
    await commit(store, MoveHead(LOG, 8))
    assert stored(store) == (9, 12)
    await commit(store, MoveHead(LOG, 11), SaveRecord(LOG, b"e"))
    assert await entries(store, 11, 12, count) == [(11, "11")]


async def test_a_compacted_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await commit(store, SaveRecord(LOG, b"d"), *append(0, 999))
    kept = tuple(range(0, 1_000, 7))
    for first in range(0, 1_000, 100):
        await commit(store, Compact(LOG, first, first + 100, tuple(at for at in kept if first <= at < first + 100)))
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        (size,) = connection.execute("SELECT sum(length(data)) FROM chunks").fetchone()
        rows = connection.execute("SELECT sum(bytes), max(total) FROM queue").fetchone()
    connection.close()
    assert size < 1_000 // 7 * 60, "what is gone takes no place in the file"
    store = SqliteStore(tmp_path)
    assert await entries(store, 0, 1_000, 50) == [(at, str(at)) for at in kept]
    assert rows[0] < rows[1] // 6
    await commit(store, RemoveRecord(LOG))
    store.close()


async def test_a_log_without_a_record_has_no_entries(store: MemoryStore | SqliteStore) -> None:
    assert await store.entries(LOG, 3, 9, 5) == ([], 9)
    await commit(store, Compact(LOG, 0, 1, ()))
    await commit(store, SaveRecord(LOG, b"d"), *append(0, 3))
    await commit(store, Compact(LOG, 0, 4, (3,)), RemoveRecord(LOG))
    assert await store.entries(LOG, 0, 9, 5) == ([], 9)


async def test_a_damaged_row_is_passed_over_and_not_compacted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await commit(store, SaveRecord(LOG, b"d"), *append(0, 3))
    await commit(store, *append(4, 5))
    await commit(store, *append(6, 7))
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE queue SET crc = crc + 1 WHERE first = 4")
        connection.execute("UPDATE chunks SET data = zeroblob(length(data)) WHERE id = (SELECT min(id) FROM chunks)")
    connection.close()
    store = SqliteStore(tmp_path)
    assert await entries(store, 0, 8, 3) == [(6, "6"), (7, "7")]
    assert await entries(store, 5, 6, 3) == []
    await commit(store, Compact(LOG, 0, 8, (7,)))
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT first, count FROM queue ORDER BY first").fetchall() == [
            (0, 4),
            (4, 2),
            (7, 1),
        ]
    connection.close()


async def test_messages_of_several_logs_are_compacted_alone(store: MemoryStore | SqliteStore) -> None:
    """They are stored once for all logs."""
    other = "\0$queue/other"
    both = [Append(other, each.offset, each.delivery) for each in append(0, 3) if isinstance(each, Append)]
    shared = [Append(LOG, each.offset, each.delivery) for each in both]
    await commit(store, SaveRecord(LOG, b"d"), SaveRecord(other, b"d"), *both, *shared)
    await commit(store, Compact(LOG, 0, 4, (2,)))
    assert await entries(store, 0, 4) == [(2, "2")]
    found, _ = await store.entries(other, 0, 4, 9)
    assert [at for at, _ in found] == [0, 1, 2, 3]


async def test_rows_that_a_head_has_passed_are_deleted_also_where_they_were_compacted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await commit(store, SaveRecord(LOG, b"d"), *append(0, 9))
    await commit(store, MoveHead(LOG, 3))
    await commit(store, Compact(LOG, 3, 10, (5, 9)))
    await commit(store, MoveHead(LOG, 10))
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (0,)
    connection.close()
