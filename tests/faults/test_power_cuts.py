"""The power fails after any operation on the disk: what was acknowledged is there, and nothing that was not begun.

Invariant: after each cut the store has what it had after the last acknowledged commit, or after the one under way.
"""

import contextlib
import hashlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, Stored
from mqttlite.store.sqlite import store as sqlite_store
from mqttlite.store.sqlite.files import DATABASE
from mqttlite.store.sqlite.store import SqliteStore
from tests.faults.crashes import Files, PowerCuts, put
from tests.faults.disk import EIO, Disk, Op
from tests.faults.workload import Contents, Workload, contents, contents_of, differences, histories
from tests.support.rounds import todays
from tests.support.stores import loaded

BEGUN = "begun"
ACKNOWLEDGED = "acknowledged"


async def run(disk: Disk, commits: list[list[Change]], rng: random.Random, may_reopen: bool = True) -> None:
    """Commit everything, with checkpoints in between, and mark what is acknowledged."""
    store = SqliteStore(disk.folder)
    for number, changes in enumerate(commits, 1):
        disk.mark(BEGUN, number)
        await store.commit(changes)
        disk.mark(ACKNOWLEDGED, number)
        if may_reopen and rng.random() < 0.05:
            store.close()
            store = SqliteStore(disk.folder)
    store.close()


async def run_on(disk: Disk, commits: list[list[Change]]) -> None:
    """Commit everything on a disk that fails now and then."""
    store: SqliteStore | None = None
    while store is None:
        try:
            store = SqliteStore(disk.folder)
        except OSError:
            continue
    for number, changes in enumerate(commits, 1):
        disk.mark(BEGUN, number)
        while True:
            try:
                await store.commit(changes)
                break
            except OSError:
                continue
        disk.mark(ACKNOWLEDGED, number)
    store.close()


class Cuts:
    """Cuts the power after each operation and opens what is there; no state twice."""

    def __init__(self, folder: Path, states: list[Contents], rng: random.Random) -> None:
        self._folder = folder
        self._states = states
        self._rng = rng
        self._seen: set[bytes] = set()
        self.checked = 0

    async def check(
        self, log: list[Op], choices: int, skip: float = 0.0, first: int = 0, last: int = 1_000_000
    ) -> None:
        cuts = PowerCuts(self._rng)
        acknowledged = begun = 0
        for number, op in enumerate(log):
            if op.kind == "mark":
                acknowledged = op.at if op.name == ACKNOWLEDGED else acknowledged
                begun = op.at
            count = choices if first <= number <= last and self._rng.random() >= skip else 0
            for files in self._new(cuts.after(op, count), acknowledged):
                await self._open(files, acknowledged, begun, f"operation {number}: {op.kind} {op.name} {op.at}")

    def _new(self, states: Iterator[Files], acknowledged: int) -> Iterator[Files]:
        for files in states:
            digest = hashlib.blake2b(repr(acknowledged).encode())
            for name in sorted(files):
                digest.update(name.encode() + files[name])
            if digest.digest() not in self._seen:
                self._seen.add(digest.digest())
                yield files

    async def _open(self, files: Files, acknowledged: int, begun: int, where: str) -> None:
        self.checked += 1
        folder = self._folder / f"{self.checked}"
        put(folder, files)
        store = SqliteStore(folder)
        try:
            found = await contents(store)
            expected = self._states[acknowledged]
            if found != expected:
                assert begun > acknowledged, f"{where}: {differences(found, expected)}"
                assert found == self._states[begun], f"{where}: {differences(found, self._states[begun])}"
        finally:
            store.close()
        assert not list(folder.glob("*.damaged-*")), where
        shutil.rmtree(folder)


async def cut(disk: Disk, folder: Path, seed: int, commits: int, choices: int, skip: float = 0.0) -> int:
    rng = random.Random(seed)
    workload = Workload(rng, 9_000)
    script = [workload.commit() for _ in range(commits)]
    await run(disk, script, rng)
    cuts = Cuts(folder, await histories(script), rng)
    await cuts.check(disk.log, choices, skip)
    return cuts.checked


@pytest.fixture
def many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_BYTES", 100_000)


async def salvaged_contents(folder: Path, files: Files) -> Contents:
    """What a store has, but for the messages that it says are lost."""
    put(folder, files)
    store = SqliteStore(folder)
    try:
        return contents_of([change for change in loaded(store) if not isinstance(change, Stored)])
    finally:
        store.close()


async def damaged_files(folder: Path, rng: random.Random, in_journal: bool) -> Files:
    """A database that lacks a page, or one whose journal lacks two frames."""
    workload = Workload(rng, 9_000)
    store = SqliteStore(folder)
    for _ in range(20):
        await store.commit(workload.commit(12))
    if not in_journal:
        store.close()
    names = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-committed")
    content = {name: bytearray((folder / name).read_bytes()) for name in names if (folder / name).exists()}
    store.close()
    if in_journal:
        content[f"{DATABASE}-wal"][20_000:26_000] = bytes(6_000)
    else:
        with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
            (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunks'").fetchone()
        content[DATABASE][(root - 1) * 4_096 : root * 4_096] = bytes(4_096)
    return {name: bytes(data) for name, data in content.items()}


@pytest.mark.slow
@pytest.mark.parametrize("in_journal", todays([False, True]))
async def test_a_power_cut_during_a_salvage_costs_nothing_more(disk: Disk, folder: Path, in_journal: bool) -> None:
    """Whenever it comes, the next start ends with what an undisturbed salvage ends with."""
    rng = random.Random(7)
    damaged = await damaged_files(folder / "stock", rng, in_journal)
    put(disk.folder, damaged)
    expected = await salvaged_contents(folder / "expected", damaged)
    disk.log.clear()
    store = SqliteStore(disk.folder)
    loaded(store)
    store.close()
    assert any(op.kind == "rename" and ".damaged-" in op.target for op in disk.log)
    cuts = PowerCuts(rng, damaged)
    checked = 0
    for number, op in enumerate(disk.log):
        for files in cuts.after(op, 3 if op.kind != "write" or rng.random() < 0.02 else 0):
            checked += 1
            found = await salvaged_contents(folder / f"{checked}", files)
            assert found == expected, f"operation {number}: {op.kind} {op.name}: {differences(found, expected)}"
            kept = [name for name in (folder / f"{checked}").iterdir() if ".damaged-" in name.name]
            assert {each.read_bytes() for each in kept} - {b""} == {
                damaged[name] for name in damaged if "committed" not in name
            }
            shutil.rmtree(folder / f"{checked}")
    assert checked > 50


@pytest.mark.slow
@pytest.mark.usefixtures("many_checkpoints")
@pytest.mark.parametrize("seed", todays(range(16)))
async def test_no_acknowledged_commit_is_lost(disk: Disk, folder: Path, seed: int) -> None:
    checked = await cut(disk, folder, seed, commits=24, choices=8, skip=0.75)
    assert checked > 360, f"only {checked} states"


@pytest.mark.slow
@pytest.mark.parametrize("times", todays([1, 2, 3]))
async def test_a_power_cut_after_a_sync_that_failed_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The system forgets what it could not write, and may say later that all is written."""
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_BYTES", 40_000)
    rng = random.Random(3)
    workload = Workload(rng, 9_000)
    script = [workload.commit() for _ in range(6)]
    cuts = Cuts(folder, await histories(script), rng)
    number = 0
    while True:
        number += 1
        with monkeypatch.context() as patch:
            disk = Disk(folder / f"data-{number}")
            disk.passes = frozenset({"open", "read", "write", "truncate", "size", "delete", "access"})
            disk.install(patch)
            disk.fail(EIO, number, times)
            await run_on(disk, script)
        if not disk.failed:
            break
        forgets = [at for at, op in enumerate(disk.log) if op.kind == "forget"] or [0]
        await cuts.check(disk.log, 3, skip=0.8, first=forgets[0], last=forgets[-1] + 60)
    assert number > 10
    assert cuts.checked > 100
