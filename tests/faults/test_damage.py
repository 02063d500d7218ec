"""A database or its journal is damaged while nobody uses it: the rest is read, and nothing is made up.

Invariant: what is read was stored as such for that session and sequence; where SQLite finds the damage, the file is
kept and the log says what is lost.
"""

import contextlib
import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, Enqueue, SaveRetained, SaveSession, Stored
from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.store import SqliteStore
from tests.faults.crashes import Files, put
from tests.faults.workload import Workload, described, seen
from tests.support.stores import loaded

PAGE = 4_096


class Stock:
    """What was ever stored: each message by its session and sequence, each retained payload by its topic."""

    def __init__(self) -> None:
        self.messages: set[tuple[object, ...]] = set()
        self.retained: set[tuple[bytes, str]] = set()
        self.files: Files = {}

    def add(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Enqueue):
                self.messages.add(self.entry(change.client_id, change.sequence, change.delivery))
            elif isinstance(change, SaveRetained):
                self.retained.add((change.message.topic, seen(change.message.payload)))

    @staticmethod
    def entry(client_id: str, sequence: int, delivery: Delivery) -> tuple[object, ...]:
        return client_id, sequence, described(delivery)


async def stocked(folder: Path, journal: bool) -> Stock:
    """Sessions with short and long queues; all of it in the database, or a part in the journal."""
    stock = Stock()
    workload = Workload(random.Random(5), 4_000)
    store = SqliteStore(folder)
    script = [workload.commit(20) for _ in range(30)] + [workload.backlog("client-1", 200)]
    for number, changes in enumerate(script):
        stock.add(changes)
        await store.commit(changes)
        if number == len(script) // 2 and journal:
            store.close()
            store = SqliteStore(folder)
    if not journal:
        store.close()
    names = (files.DATABASE, f"{files.DATABASE}-wal")
    stock.files = {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}
    if journal:
        store.close()
    return stock


def flip_a_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def zero_a_sector(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) // 512) * 512
    data[at : at + 512] = bytes(512)


def scramble_a_page(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = rng.randbytes(PAGE)


def copy_a_page(data: bytearray, rng: random.Random) -> None:
    """A write went to the wrong place."""
    source, target = (rng.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[target : target + PAGE] = data[source : source + PAGE]


def cut_off(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


KINDS = [flip_a_bit, zero_a_sector, scramble_a_page, copy_a_page, cut_off]
_stocks: dict[bool, Stock] = {}


@pytest.fixture
async def stock(request: pytest.FixtureRequest, folder: Path) -> Stock:
    journal: bool = request.param
    if journal not in _stocks:
        _stocks[journal] = await stocked(folder / "stock", journal)
    return _stocks[journal]


async def check(folder: Path, stock: Stock, damaged: Files, log: pytest.LogCaptureFixture) -> None:
    """Open what is damaged, and read all of it."""
    put(folder, damaged)
    is_found = finds_damage(folder)
    log.clear()
    try:
        store = SqliteStore(folder)
    except files.NewerSchema:
        assert damaged[files.DATABASE][:100] != stock.files[files.DATABASE][:100], "the schema version is in the header"
        return
    try:
        changes = loaded(store)
        sessions = {change.client_id for change in changes if isinstance(change, SaveSession)}
        for change in changes:
            if isinstance(change, SaveRetained):
                assert (change.message.topic, seen(change.message.payload)) in stock.retained
            elif isinstance(change, Enqueue):
                assert Stock.entry(change.client_id, change.sequence, change.delivery) in stock.messages
            elif isinstance(change, Stored):
                assert change.client_id in sessions
                await read(store, change, stock)
        await store.commit([SaveSession("a new one", 60, 0.0), Enqueue("a new one", 0, new_delivery())])
        (found,) = await store.page("a new one", 0, 1)
        assert found is not None
        assert found.message.payload == b"new"
    finally:
        store.close()
    if is_found:
        assert is_kept(folder), "the damaged database is kept"
        assert any("lost: " in record.getMessage() for record in log.records)
    assert not finds_damage(folder), "what is left is whole"


async def read(store: SqliteStore, waits: Stored, stock: Stock) -> None:
    first, end = waits.first, waits.first + waits.count
    assert waits.count < 10_000
    while first < end:
        page = await store.page(waits.client_id, first, min(end - first, 64))
        assert page
        for sequence, delivery in enumerate(page, first):
            assert delivery is None or Stock.entry(waits.client_id, sequence, delivery) in stock.messages
        first += len(page)


def new_delivery() -> Delivery:
    return Delivery(Message(b"t", b"new", 1), 1, False)


def is_kept(folder: Path) -> bool:
    """Whether a damaged database was put aside."""
    return any(folder.glob(f"{files.DATABASE}.damaged-*"))


def finds_damage(folder: Path) -> bool:
    """Whether SQLite finds a table that it cannot read to its end."""
    copy = folder.with_name(folder.name + "-copy")
    shutil.copytree(folder, copy)
    try:
        with contextlib.closing(sqlite3.connect(copy / files.DATABASE)) as connection:
            rows = connection.execute("PRAGMA integrity_check").fetchall()
            return [row for row in rows if row[0] != "ok"] != []
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the latter where the error names what is damaged
        return True
    finally:
        shutil.rmtree(copy)


async def damage(
    folder: Path,
    stock: Stock,
    kind: Callable[[bytearray, random.Random], None],
    seeds: range,
    log: pytest.LogCaptureFixture,
) -> None:
    log.set_level(logging.ERROR, "mqttlite.store")
    name = max(stock.files, key=lambda name: name.endswith("-wal"))
    for seed in seeds:
        data = bytearray(stock.files[name])
        kind(data, random.Random(seed))
        try:
            await check(folder / f"{seed}", stock, {**stock.files, name: bytes(data)}, log)
        except BaseException as error:
            error.add_note(f"{kind.__name__} in {name}, seed {seed}")
            raise
        shutil.rmtree(folder / f"{seed}")


@pytest.mark.slow
@pytest.mark.parametrize("stock", [False, True], ids=["database", "journal"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_damage_costs_only_what_is_damaged(
    folder: Path,
    stock: Stock,
    kind: Callable[[bytearray, random.Random], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await damage(folder, stock, kind, range(10), caplog)


@pytest.mark.slow
@pytest.mark.parametrize("stock", [False, True], ids=["database", "journal"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_any_damage_costs_only_what_is_damaged(
    folder: Path,
    stock: Stock,
    kind: Callable[[bytearray, random.Random], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await damage(folder, stock, kind, range(200), caplog)
