"""A database or its journal is damaged while nobody uses it: the rest is read, and nothing is made up.

Invariants: what is read was stored as such for that session and sequence; damage costs no more than the rows of the
pages that it touches; what is lost is named or is a gap; where SQLite finds the damage, the file is kept.
"""

import contextlib
import logging
import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, Enqueue, SaveRetained, SaveSession, SaveSubscription, Stored
from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.journal import FRAME, scan
from mqttlite.store.sqlite.store import SqliteStore
from tests.faults.crashes import Files, put
from tests.faults.held import PAGE, Held, Thing
from tests.faults.workload import Workload, described, seen
from tests.support.rounds import todays
from tests.support.stores import loaded

Kind = Callable[[bytearray, random.Random], None]


class Stock:
    """What was ever stored: each message by its session and sequence, each retained payload by its topic."""

    def __init__(self) -> None:
        self.messages: set[Thing] = set()
        self.retained: set[tuple[bytes, str]] = set()
        self.files: Files = {}
        self.whole: set[Thing] = set()
        """What is there if nothing is damaged."""
        self.held: dict[int, set[Thing]] = {}
        """What each page of the database holds if nothing is damaged."""

    def add(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Enqueue):
                self.messages.add(self.entry(change.client_id, change.sequence, change.delivery))
            elif isinstance(change, SaveRetained):
                self.retained.add((change.message.topic, seen(change.message.payload)))

    @staticmethod
    def entry(client_id: str, sequence: int, delivery: Delivery) -> Thing:
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
    names = (files.DATABASE, f"{files.DATABASE}-wal", f"{files.DATABASE}-committed")
    stock.files = {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}
    if journal:
        store.close()
    store = SqliteStore(folder)
    stock.whole, _ = await contents(store, stock)
    store.close()
    stock.held = Held(folder / files.DATABASE).by_page
    return stock


def flip_a_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def zero_a_sector(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(max(1, len(data) // 512)) * 512
    data[at : at + 512] = bytes(512)


def scramble_a_page(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(max(1, len(data) // PAGE)) * PAGE
    data[at : at + PAGE] = rng.randbytes(PAGE)


def copy_a_page(data: bytearray, rng: random.Random) -> None:
    """A write went to the wrong place."""
    source, target = (rng.randrange(max(1, len(data) // PAGE)) * PAGE for _ in range(2))
    data[target : target + PAGE] = data[source : source + PAGE]


def cut_off(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


KINDS = [flip_a_bit, zero_a_sector, scramble_a_page, copy_a_page, cut_off]


def damaged_pages(whole: Files, damaged: Files) -> set[int]:
    """The pages whose last image is damaged."""
    database, journal = files.DATABASE, f"{files.DATABASE}-wal"
    places = {number + 1: (database, number * PAGE, PAGE) for number in range(len(whole[database]) // PAGE)}
    for frame in scan(whole.get(journal, b""), PAGE, len(places)).frames:
        places[frame.page] = journal, frame.at - FRAME.size, PAGE + FRAME.size
    return {
        number
        for number, (name, at, length) in places.items()
        if whole[name][at : at + length] != damaged[name][at : at + length]
    }


_stocks: dict[bool, Stock] = {}


@pytest.fixture
async def stock(request: pytest.FixtureRequest, folder: Path) -> Stock:
    journal: bool = request.param
    if journal not in _stocks:
        _stocks[journal] = await stocked(folder / "stock", journal)
    return _stocks[journal]


async def check(folder: Path, stock: Stock, damaged: Files, log: pytest.LogCaptureFixture) -> set[Thing]:
    """Open what is damaged, and read all of it. Return what is lost."""
    put(folder, damaged)
    is_found = finds_damage(folder)
    log.clear()
    store = SqliteStore(folder)
    try:
        found, gaps = await contents(store, stock)
        await store.commit([SaveSession("a new one", 60, 0.0), Enqueue("a new one", 0, new_delivery())])
        (new,) = await store.page("a new one", 0, 1)
        assert new is not None
        assert new.message.payload == b"new"
    finally:
        store.close()
    lost = stock.whole - found
    is_told = any("lost: " in record.getMessage() for record in log.records)
    if is_found:
        assert is_kept(folder), "the damaged database is kept"
        assert is_told or not lost
    assert is_told or len(lost) <= gaps, f"nobody said that this is lost: {lost}"
    assert not finds_damage(folder), "what is left is whole"
    return lost


async def contents(store: SqliteStore, stock: Stock) -> tuple[set[Thing], int]:
    """What a store has, and how many messages it knows to be missing. All of it was stored once."""
    found: set[Thing] = set()
    gaps = 0
    sessions: set[str] = set()
    for change in loaded(store):
        if isinstance(change, SaveSession):
            sessions.add(change.client_id)
            found.add(("session", change.client_id))
        elif isinstance(change, SaveSubscription):
            found.add(("subscription", change.client_id, change.subscription.topic_filter))
        elif isinstance(change, SaveRetained):
            assert (change.message.topic, seen(change.message.payload)) in stock.retained
            found.add(("retained", change.message.topic))
        elif isinstance(change, Enqueue):
            assert Stock.entry(change.client_id, change.sequence, change.delivery) in stock.messages
            found.add(("message", change.client_id, change.sequence))
        elif isinstance(change, Stored):
            assert change.client_id in sessions
            waiting = await read(store, change, stock)
            found |= waiting
            gaps += change.count - len(waiting)
    return found, gaps


async def read(store: SqliteStore, waits: Stored, stock: Stock) -> set[Thing]:
    found: set[Thing] = set()
    first, end = waits.first, waits.first + waits.count
    assert waits.count < 10_000
    while first < end:
        page = await store.page(waits.client_id, first, min(end - first, 64))
        assert page
        for sequence, delivery in enumerate(page, first):
            if delivery is not None:
                assert Stock.entry(waits.client_id, sequence, delivery) in stock.messages
                found.add(("message", waits.client_id, sequence))
        first += len(page)
    return found


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
    folder: Path, stock: Stock, name: str, kind: Kind, seeds: Sequence[int], log: pytest.LogCaptureFixture
) -> None:
    """Damage a file, or each of several at once."""
    log.set_level(logging.ERROR, "mqttlite.store")
    for seed in seeds:
        rng = random.Random(seed)
        damaged = dict(stock.files)
        for each in name.split(" and "):
            data = bytearray(stock.files[each])
            kind(data, rng)
            damaged[each] = bytes(data)
        pages = damaged_pages(stock.files, damaged)
        may_be_lost = set().union(*(stock.held.get(page, set()) for page in pages))
        try:
            lost = await check(folder / f"{seed}", stock, damaged, log)
            assert lost <= may_be_lost, f"{lost - may_be_lost} is not on the damaged pages {pages}"
        except BaseException as error:
            error.add_note(f"{kind.__name__} in {name}, seed {seed}")
            raise
        shutil.rmtree(folder / f"{seed}")


PLACES = pytest.mark.parametrize(
    ("stock", "name"),
    [
        pytest.param(False, files.DATABASE, id="database"),
        pytest.param(True, f"{files.DATABASE}-wal", id="journal"),
        pytest.param(True, files.DATABASE, id="database behind a journal"),
        pytest.param(True, f"{files.DATABASE} and {files.DATABASE}-wal", id="both"),
        pytest.param(True, f"{files.DATABASE}-committed", id="mark"),
    ],
    indirect=["stock"],
)


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize("kind", KINDS)
async def test_any_damage_costs_only_what_is_damaged(
    folder: Path, stock: Stock, name: str, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    await damage(folder, stock, name, kind, todays(range(200), 32), caplog)
