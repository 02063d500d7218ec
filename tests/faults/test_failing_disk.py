"""Each call on the disk fails once, twice, for a while: what is committed in the end is there exactly once.

Invariant: a commit that fails raises, and is made again with the same changes until it succeeds, as the loop driver
does; what was acknowledged never changes by an error.
"""

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from mqttlite.core.changes import Change
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite import store as sqlite_store
from mqttlite.store.sqlite.store import SqliteStore
from tests.faults.disk import EIO, FAULTS, FULL, Disk, Fault
from tests.faults.workload import Contents, Workload, contents, described, differences, histories
from tests.support.rounds import todays

EACH_CALL = [(fault, times, step) for times, step in ((1, 1), (2, 2), (40, 7)) for fault in FAULTS]
"""A sixth of them is played by one run: that which fails each single call takes longest."""

ATTEMPTS = 100
"""More than calls fail."""


async def open_store(disk: Disk) -> SqliteStore:
    for _ in range(ATTEMPTS):
        try:
            return SqliteStore(disk.folder)
        except OSError:
            continue
    raise AssertionError("the store cannot be opened")


async def commit(store: SqliteStore, changes: list[Change], before: Contents) -> None:
    """Commit until it succeeds; pages are read between two attempts, and say what was there before."""
    for _ in range(ATTEMPTS):
        try:
            await store.commit(changes)
            return
        except OSError:
            await read(store, before, attempts=1)
    raise AssertionError("the commit does not succeed")


async def read(store: SqliteStore, expected: Contents, attempts: int = ATTEMPTS) -> None:
    """Read all that waits, in so many attempts."""
    for client_id, session in expected.items():
        waits = session.get("waits")
        if client_id == "retained" or not waits:
            continue
        for attempt in range(1, attempts + 1):
            try:
                page = await store.page(client_id, waits[0][0], len(waits))
                break
            except OSError:
                assert attempt < attempts or attempts == 1, "pages cannot be read"
        else:
            continue
        if attempts > 1:
            assert [each and described(each) for each in page] == [entry[2] for entry in waits]


async def run(disk: Disk, commits: list[list[Change]], states: list[Contents], reads: bool) -> None:
    """Commit everything on a disk that fails meanwhile, and look at what is there."""
    store = await open_store(disk)
    for number, changes in enumerate(commits):
        await commit(store, changes, states[number] if reads else {})
        if reads and number % 2:  # a commit may also be the first to find the database closed
            await read(store, states[number + 1])
        if number == len(commits) // 2:
            store.close()
            store = await open_store(disk)
    store.close()
    disk.heal()
    store = SqliteStore(disk.folder)
    found = await contents(store)
    store.close()
    assert found == states[-1], differences(found, states[-1])
    assert not list(disk.folder.glob("*.damaged-*"))
    assert commits_made(disk.folder) == len(commits), "each commit is made once"


def commits_made(folder: Path) -> int:
    """How many commits a database says that it has."""
    with contextlib.closing(sqlite3.connect(folder / files.DATABASE)) as connection:
        return int(connection.execute("SELECT number FROM commits").fetchone()[0])


def script(seed: int, commits: int) -> list[list[Change]]:
    workload = Workload(random.Random(seed), 6_000)
    return [workload.commit(12) for _ in range(commits)]


async def fail_each_call(
    folder: Path,
    fault: Fault,
    times: int,
    commits: list[list[Change]],
    *,
    first: int = 1,
    step: int = 1,
    reads: bool = True,
) -> int:
    """Let the n-th call fail, for each n until none fails; the last n."""
    states = await histories(commits)
    number = first
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(folder / f"{fault.name} {number}")
            disk.install(patch)
            disk.fail(fault, number, times)
            try:
                await run(disk, commits, states, reads)
            except BaseException as error:
                error.add_note(f"{fault.name}, {times} times from call {number} on")
                raise
        if not disk.failed:
            return number
        number += step


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_BYTES", 60_000)


@pytest.mark.parametrize(
    "fault",
    [FAULTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in FAULTS[1:])],
    ids=lambda each: each.name,
)
async def test_a_failing_call_loses_and_doubles_nothing(folder: Path, fault: Fault) -> None:
    assert await fail_each_call(folder, fault, 2, script(1, 6), first=FAULTS.index(fault) + 1, step=19) > 150


@pytest.mark.slow
async def test_a_commit_behind_a_checkpoint_that_failed_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first that finds the database closed, and no attempt of it was made before."""
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_BYTES", 0)
    assert await fail_each_call(folder, EIO, 1, script(3, 3), first=40, step=5, reads=False) > 100


@pytest.mark.slow
async def test_a_disk_that_fails_during_a_salvage_costs_nothing_more(folder: Path) -> None:
    """A full disk is no damage: what can be read is kept once there is room for it."""
    commits = script(9, 20)
    states = await histories(commits)
    number = 1
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(folder / f"{number}")
            store = SqliteStore(disk.folder)
            for changes in commits:
                await store.commit(changes)
            store.close()
            with contextlib.closing(sqlite3.connect(disk.folder / files.DATABASE)) as connection:
                connection.execute("DROP INDEX queue_by_chunk")
            disk.install(patch)
            disk.passes = frozenset({"read", "open", "size", "access"})
            disk.fail(FULL, number, 3)
            store = await open_store(disk)
            found = await contents(store)
            store.close()
        assert found == states[-1], f"from call {number} on: {differences(found, states[-1])}"
        assert any(disk.folder.glob("*.damaged-*"))
        if not disk.failed:
            break
        number += 9
    assert number > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "times", "step"), todays(EACH_CALL, 6), ids=lambda value: getattr(value, "name", value)
)
async def test_whichever_call_fails_nothing_is_lost_or_doubled(
    folder: Path, fault: Fault, times: int, step: int
) -> None:
    assert await fail_each_call(folder, fault, times, script(times, 4), step=step) > 100
