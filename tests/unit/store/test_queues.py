"""What stores keep of delivery queues: their definitions, what waits, what is under way and when it is due."""

import sqlite3
from pathlib import Path

import pytest

from mqttlite.core.changes import (
    Change,
    Due,
    EndSession,
    Enqueue,
    Retain,
    Rewind,
    SaveQueue,
    SaveSession,
    Sent,
    Settled,
    Stored,
)
from mqttlite.core.message import Delivery, Message
from mqttlite.store.memory import MemoryStore
from mqttlite.store.sqlite.files import DATABASE
from mqttlite.store.sqlite.records import Damaged, decode_queue, encode_queue
from mqttlite.store.sqlite.salvage import Source, salvage
from mqttlite.store.sqlite.store import SqliteStore
from tests.support.stores import everything, loaded

QUEUE = "\0$queue/jobs"


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
    if isinstance(change, SaveQueue):
        return "queue", change.client_id, change.data
    if isinstance(change, Enqueue):
        return "message", change.sequence, change.packet_id, change.delivery.message.payload
    if isinstance(change, Due):
        return "due", change.sequence, round(change.due_at, 1)
    return type(change).__name__, getattr(change, "client_id", None)


def enqueue(first: int, last: int) -> list[Change]:
    return [Enqueue(QUEUE, at, Delivery(Message(b"a", b"%d" % at, 1), 1, False)) for at in range(first, last + 1)]


async def test_a_queue_has_its_messages_their_marks_and_times(disk: Disk) -> None:
    await disk.commit(SaveQueue(QUEUE, b"first"), *enqueue(0, 5))
    await disk.commit(SaveQueue(QUEUE, b"def"), Sent(QUEUE, 0, 100), Sent(QUEUE, 1, 101), Sent(QUEUE, 2, 202))
    await disk.commit(Due(QUEUE, 1, 50.0), Due(QUEUE, 2, 60.0), Sent(QUEUE, 1, 201), Settled(QUEUE, 0))
    await disk.commit(Settled(QUEUE, 7))
    assert await disk.read() == [
        ("queue", QUEUE, b"def"),
        ("message", 1, 201, b"1"),
        ("message", 2, 202, b"2"),
        ("message", 3, 0, b"3"),
        ("message", 4, 0, b"4"),
        ("message", 5, 0, b"5"),
        ("due", 2, 60.0),
    ]
    await disk.commit(Settled(QUEUE, 2), Settled(QUEUE, 1))
    assert [each[1] for each in await disk.read() if each[0] in ("message", "due")] == [3, 4, 5]


async def test_a_queue_that_ends_and_begins_again_has_only_what_came_since(disk: Disk) -> None:
    await disk.commit(SaveQueue(QUEUE, b"def"), SaveSession("jobs", 10, 0.0), *enqueue(0, 3), Sent(QUEUE, 0, 1))
    await disk.commit(EndSession(QUEUE), SaveQueue(QUEUE, b"new"), *enqueue(4, 5))
    found = [each for each in await disk.read() if each[0] != "SaveSession"]
    assert found == [("queue", QUEUE, b"new"), ("message", 4, 0, b"4"), ("message", 5, 0, b"5")]
    await disk.commit(EndSession(QUEUE))
    assert await disk.read() == [("SaveSession", "jobs")]


async def test_messages_that_are_retained_wait_again(disk: Disk) -> None:
    await disk.commit(SaveQueue(QUEUE, b"def"), *enqueue(0, 5), Retain(QUEUE, 1))
    sent: list[Change] = [Sent(QUEUE, at, 100 + at) for at in range(4)]
    await disk.commit(*sent, *(Settled(QUEUE, at) for at in range(3)))
    assert payloads_of(await disk.read()) == [b"3", b"4", b"5"]
    await disk.commit(Rewind(QUEUE, 1))
    found = await disk.read()
    assert payloads_of(found) == [b"1", b"2", b"3", b"4", b"5"]
    assert [each[2] for each in found if each[0] == "message"] == [0] * 5
    assert ("Retain", QUEUE) in found
    await disk.commit(Rewind(QUEUE, 6), *enqueue(6, 6))
    assert payloads_of(await disk.read()) == [b"6"]
    await disk.commit(Rewind(QUEUE, 4), Sent(QUEUE, 4, 1))
    assert payloads_of(await disk.read()) == [b"4", b"5", b"6"]
    await disk.commit(Retain(QUEUE, -1), Settled(QUEUE, 4))
    found = await disk.read()
    assert (payloads_of(found), ("Retain", QUEUE) in found) == ([b"5", b"6"], False)


async def test_what_nobody_needs_is_deleted_in_parts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveQueue(QUEUE, b"def"), Retain(QUEUE, 0)])
    for at in range(500):
        await store.commit(enqueue(at, at))
    await store.commit([Rewind(QUEUE, 500)])
    assert rows_in(tmp_path) == 500
    await store.commit([Retain(QUEUE, -1)])
    store.close()
    assert 0 < rows_in(tmp_path) <= 300
    store = SqliteStore(tmp_path)
    await store.commit([*enqueue(500, 500), Sent(QUEUE, 500, 1)])
    await store.commit([*enqueue(501, 501), Sent(QUEUE, 501, 1)])
    store.close()
    assert rows_in(tmp_path) == 2


def rows_in(path: Path) -> int:
    with sqlite3.connect(path / DATABASE) as connection:
        (found,) = connection.execute("SELECT count(*) FROM queue").fetchone()
    connection.close()
    return int(found)


def payloads_of(found: list[tuple[object, ...]]) -> list[object]:
    return [each[3] for each in found if each[0] == "message"]


async def test_a_message_for_many_queues_is_stored_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    message = Message(b"a", b"x" * 10_000, 1)
    names = [f"\0$queue/{number}" for number in range(50)]
    changes: list[Change] = [SaveQueue(name, b"") for name in names]
    await store.commit([*changes, *(Enqueue(name, 0, Delivery(message, 1, False)) for name in names)])
    store.close()
    assert (tmp_path / DATABASE).stat().st_size < 150_000
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (1,)
    connection.close()


async def test_a_time_is_kept_of_what_was_sent_alone(disk: Disk) -> None:
    await disk.commit(SaveQueue(QUEUE, b""), *enqueue(0, 0), Due(QUEUE, 0, 5.0), Due(QUEUE, 9, 5.0))
    assert "due" not in [each[0] for each in await disk.read()]


async def test_a_damaged_definition_costs_its_queue_and_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveQueue(QUEUE, b"def"), SaveQueue("\0$queue/other", b"def"), *enqueue(0, 0)])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE queues SET data = x'00' WHERE name = '$queue/jobs'")
    connection.close()
    store = SqliteStore(tmp_path)
    assert [seen(each) for each in loaded(store) if isinstance(each, SaveQueue)] == [
        ("queue", "\0$queue/other", b"def")
    ]
    store.close()


async def test_a_definition_under_another_name_is_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveQueue(QUEUE, b"def")])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE queues SET name = 'x'")
    connection.close()
    store = SqliteStore(tmp_path)
    assert loaded(store) == []
    store.close()


async def test_a_salvaged_database_has_its_queues(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    await disk.commit(SaveQueue(QUEUE, b"def"), *enqueue(0, 2), Sent(QUEUE, 0, 1), Due(QUEUE, 0, 5.0))
    before = await disk.read()
    path = tmp_path / DATABASE
    assert any("1 rows of queues" in sentence for sentence in salvage(Source(path), path, [], -1))
    assert await disk.read() == before


def test_a_record_fits_no_other_queue() -> None:
    data = encode_queue(SaveQueue(QUEUE, b"\0def\0"), 5)
    decoded = decode_queue(data, 5)
    assert (decoded.client_id, decoded.data) == (QUEUE, b"\0def\0")
    with pytest.raises(Damaged):
        decode_queue(data, 6)


async def test_pages_are_those_of_the_queue_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.commit([SaveQueue(QUEUE, b""), SaveSession("\1$queue/jobs", 10, 0.0), *enqueue(0, 3)])
    assert [each and each.message.payload for each in await store.page(QUEUE, 1, 2)] == [b"1", b"2"]
    assert await store.page("\0$queue/x", 0, 2) == [None, None]
    assert [change.count for change in loaded(store) if isinstance(change, Stored) and change.count] == [4]
    store.close()
