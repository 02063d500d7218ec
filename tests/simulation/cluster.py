"""A cluster in one process, in a time of its own, and its faults: all from a seed.

Each machine runs the node that `mqttlite serve` runs. In place of the broker a writer commits numbered messages to one
session; in place of SQLite there is a model of a database, which a crash takes back to what was committed, and a power
cut to what a checkpoint made safe. In the end each acknowledged message is there once, in order, and all databases are
equal.
"""

import asyncio
import contextlib
import random
import selectors
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from mqttlite.core.changes import Change, Enqueue, SaveSession, Stored
from mqttlite.core.message import Delivery, Message
from mqttlite.core.ports import Store
from mqttlite.core.question import Entries
from mqttlite.engine.memory import MemoryServers, Outcome
from mqttlite.extensions.cluster import options, record, serving
from mqttlite.extensions.cluster.disk import POSITION, Database
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.options import ClusterOptions
from mqttlite.operations.surroundings import RunningBroker, Surroundings
from mqttlite.store.memory import MemoryStore

MACHINES: Final = 3
SESSION: Final = "s"
LASTS_S: Final = 40.0
"""How long faults go on."""
DESTROYS_S: Final = 6.0
"""The least time between two destroyed disks: two of three at once are more than a cluster can lose."""
HEALS_S: Final = 30.0
"""How long a cluster without faults has to serve again."""
STAYS_S: Final = 5.0
"""For how long it is to be whole then, so that no lease of before can end yet."""
PART_BYTES: Final = 200
"""So short that many commits have several parts."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never waits: where it would, its time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__(_Selector(self))
        self.now = 1_000.0

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual_loop: Final = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everything waits, and nothing will happen"
        self._virtual_loop.now += max(0.0, timeout)
        return []


class ModelDatabase:
    """A database whose commits take a while, and fail while its disk is full."""

    def __init__(self, disk: "ModelDisk") -> None:
        self._disk: Final = disk
        self._run: Final = disk.run

    def commit(self, changes: list[Change]) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_task(self._commit(changes))

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        return self._disk.state.page(key, first, count)

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        return self._disk.state.entries(key, first, end, count)

    def load(self) -> Iterator[list[Change]]:
        return self._disk.state.load()

    def record(self, key: str) -> bytes | None:
        found = self._disk.state._records.get(key)
        return None if found is None else found.saved.data

    def checkpoint(self) -> "asyncio.Future[bool]":
        return asyncio.get_running_loop().create_task(self._checkpoint())

    def close(self) -> None:
        self._disk.is_open = False

    async def _commit(self, changes: list[Change]) -> None:
        disk = self._disk
        await asyncio.sleep(disk.rng.choice([0.0, 0.001, 0.05]))
        if disk.is_full:
            raise OSError("the disk is full")
        if disk.run == self._run:  # otherwise the machine has crashed meanwhile
            assert disk.is_open
            disk.commits.append(changes)
            disk.state.commit(changes)

    async def _checkpoint(self) -> bool:
        disk = self._disk
        safe = len(disk.commits)
        await asyncio.sleep(disk.rng.choice([0.0, 0.02]))
        if disk.is_full or disk.run != self._run:
            raise OSError("the disk is full")
        if disk.rng.random() < 0.1:
            return False
        disk.safe = safe
        return True


class ModelDisk:
    """Implements `Disk`. `commits` are those of the database, `state` what they amount to. A power cut leaves the first
    `safe` of them."""

    def __init__(self, name: str, rng: random.Random, copies: dict[str, list[list[Change]]], folder: Path) -> None:
        self.name: Final = name
        self.rng: Final = rng
        self.snapshot_file: Final = folder / name
        self.commits: list[list[Change]] = []
        self.state = MemoryStore(pages=True)
        self.safe = 0
        self.is_full = False
        self.is_open = False
        self.run = 0
        self._copies: Final = copies

    @property
    def is_marked(self) -> bool:
        return True

    def mark(self) -> None:
        pass

    def put_aside(self) -> None:
        raise AssertionError("nothing is damaged")

    def open(self) -> Database:
        assert not self.is_open, "one at a time"
        self.is_open = True
        self.safe = len(self.commits)
        return ModelDatabase(self)

    async def close(self, database: Database) -> None:
        database.close()

    async def copy(self) -> None:
        self._check()
        number = str(len(self._copies))
        self._copies[number] = [*self.commits]
        self.snapshot_file.write_text(number)

    async def replace(self) -> None:
        self._check()
        assert not self.is_open
        self._have(self._copies[self.snapshot_file.read_text()])

    def crash(self, loses: bool) -> None:
        """The machine crashes; in a power cut it `loses` what was not safe."""
        self.run += 1
        self.is_open = False
        if loses:
            self._have(self.commits[: self.safe])

    def destroy(self) -> None:
        self._have([])

    def _have(self, commits: list[list[Change]]) -> None:
        self.commits = [*commits]
        self.safe = len(commits)
        self.state = MemoryStore(pages=True)
        for changes in commits:
            self.state.commit(changes)

    def payloads(self) -> list[int]:
        """The numbers of the messages of the session, in order."""
        return [int(each.message.payload.split()[0]) for each in self.state.read(SESSION, 0, 1_000_000) if each]

    def position(self) -> int:
        found = self.state._records.get(POSITION)
        return 0 if found is None else int(found.saved.data.split()[0])

    def _check(self) -> None:
        if self.is_full:
            raise OSError("the disk is full")


Leave: TypeAlias = Callable[[RunningBroker], Awaitable[None]]


class Machine:
    """One machine; it may be down."""

    def __init__(self, name: str, world: "World", disk: ModelDisk) -> None:
        self.name: Final = name
        self.disk: Final = disk
        self.engine = world.servers.connect()
        self.node: Node | None = None
        self.serves = False
        self._world: Final = world
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        self.engine = self._world.servers.connect()
        self._ended = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def stop(self) -> None:
        """End as after SIGTERM."""
        task, self._task = self._task, None
        assert task is not None
        self._ended.set()
        await task

    async def crash(self, loses: bool) -> None:
        """End as after `kill -9`: nothing more leaves it."""
        task, self._task = self._task, None
        assert task is not None
        self.disk.crash(loses)
        self.engine.is_cut_off = True
        self.serves = False
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self.disk.is_open = False

    def is_whole(self) -> bool:
        """Whether it has a database, and has said so."""
        return self.is_up and self.node is not None and self.node.role in ("follows", "serves")

    def check(self) -> None:
        """Raise what ended it."""
        if self._task is not None and self._task.done():
            self._task.result()
            raise AssertionError(f"{self.name} ended")

    async def _live(self) -> None:
        own = ClusterOptions(servers=("nats://x",), node=self.name, log_bytes=self._world.log_bytes)
        node = self.node = Node(own, self.disk, self.engine)
        node.start()
        try:
            await serving.take_turns(node, self._run, self._ended)
        finally:
            await node.close()

    async def _run(self, store: Store, around: Surroundings, until: asyncio.Event, leave: Leave) -> None:
        run = self.disk.run
        self.serves = True
        try:
            await self._world.write(store, lambda: until.is_set() or self._ended.is_set() or self.disk.run != run)
        finally:
            if self.disk.run == run:
                self.serves = False


class World:
    """A cluster, and what was acknowledged."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng: Final = random.Random(seed)
        self.log_bytes: Final = self.rng.choice([64 * 1_048_576, 20_000, 60_000])
        self.servers: Final = MemoryServers(self._delay, self._outcome)
        self.acknowledged: list[int] = []
        self._turns: Final[list[list[int]]] = []
        """What was acknowledged in each turn. A machine may learn late that the log has its last commit, when the next
        one acknowledges already."""
        self.faults = self.rng.choice([0.0, 0.02, 0.1])
        """How often a request or its answer is lost."""
        self._next = 0
        self._destroyed_at = 0.0
        copies: dict[str, list[list[Change]]] = {}
        self.machines: Final = [
            Machine(name, self, ModelDisk(name, self.rng, copies, folder)) for name in "abc"[:MACHINES]
        ]

    async def write(self, store: Store, is_over: Any) -> None:
        """Commit messages until it is over, as the core does: one commit at a time, tried again with the same
        changes."""
        state = [change for changes in store.load() for change in changes]
        first = next((each.first + each.count for each in state if isinstance(each, Stored)), 0)
        if not any(isinstance(each, SaveSession) for each in state):
            await self._commit(store, [SaveSession(SESSION, 0xFFFF_FFFF, 0.0)], is_over)
        turn: list[int] = []
        self._turns.append(turn)
        while not is_over():
            numbers = range(self._next, self._next + self.rng.randint(1, 5))
            self._next = numbers.stop
            changes: list[Change] = []
            for at, number in enumerate(numbers, first):
                message = Message(b"t", b"%d " % number + b"x" * self.rng.choice([0, 10, 150]), 1)
                changes.append(Enqueue(SESSION, at, Delivery(message, 1, False)))
            first += len(numbers)
            if not await self._commit(store, changes, is_over):
                return
            self.acknowledged += numbers
            turn += numbers
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.3]))

    async def _commit(self, store: Store, changes: list[Change], is_over: Any) -> bool:
        while not is_over():
            try:
                await store.commit(changes)
            except OSError:
                await asyncio.sleep(0.25)
            else:
                return True
        return False

    async def live(self) -> None:
        """Start the machines, let faults happen, let everything heal, and check."""
        loop = asyncio.get_running_loop()
        for machine in self.machines:
            machine.start()
        end = loop.time() + LASTS_S
        while loop.time() < end:
            await asyncio.sleep(self.rng.uniform(0.1, 3.0))
            await self._fault()
        await self._heal()
        self._check()

    async def _fault(self) -> None:
        machine = self.rng.choice(self.machines)
        fault = self.rng.randrange(9)
        if not machine.is_up:
            machine.start()
        elif fault == 0:
            await machine.stop()
        elif fault in (1, 2):
            await machine.crash(loses=fault == 2)
        elif fault == 3:
            machine.engine.is_cut_off = not machine.engine.is_cut_off
        elif fault == 4:
            self.servers.is_available = not self.servers.is_available
        elif fault == 5:
            machine.disk.is_full = not machine.disk.is_full
        elif fault == 6:
            self.servers.deliver_late()
        elif fault == 7 and machine.node is not None:
            other = self.rng.choice(self.machines)
            if other.node is not None and not machine.engine.is_cut_off:
                other.node.machines.said.clear()
        elif fault == 8 and self._may_destroy(machine):
            self._destroyed_at = asyncio.get_running_loop().time()
            await machine.crash(loses=True)
            machine.disk.destroy()

    def _may_destroy(self, machine: Machine) -> bool:
        """Whether the disk of a machine may be lost: the others have theirs."""
        is_late_enough = asyncio.get_running_loop().time() > self._destroyed_at + DESTROYS_S
        return is_late_enough and all(each.is_whole() for each in self.machines if each is not machine)

    async def _heal(self) -> None:
        self.faults = 0.0
        self.servers.deliver_late()
        self.servers.is_available = True
        for machine in self.machines:
            machine.disk.is_full = False
            machine.engine.is_cut_off = False
            if not machine.is_up:
                machine.start()
        await self._become_whole()
        for machine in self.machines:
            machine.check()
        assert sum(machine.serves for machine in self.machines) == 1, "one machine serves"
        served = next(machine for machine in self.machines if machine.serves)
        before = len(self.acknowledged)
        await asyncio.sleep(2.0)
        assert len(self.acknowledged) > before, "and acknowledges"
        await served.stop()
        await asyncio.sleep(4.0)
        assert sum(machine.serves for machine in self.machines) == 1, "another one serves after it"
        for machine in self.machines:
            machine.check()
        for machine in self.machines:
            if machine.is_up:
                await machine.stop()

    async def _become_whole(self) -> None:
        """Wait until one machine serves, and the others follow, for a while."""
        loop = asyncio.get_running_loop()
        whole_since = began = loop.time()
        while loop.time() < min(whole_since + STAYS_S, began + HEALS_S):
            await asyncio.sleep(0.5)
            is_one = sum(machine.serves for machine in self.machines) == 1
            if not (is_one and all(machine.is_whole() for machine in self.machines)):
                whole_since = loop.time()

    def _check(self) -> None:
        latest = max(self.machines, key=lambda each: each.disk.position()).disk
        found = latest.payloads()
        assert len(set(found)) == len(found), "no message is there twice"
        lost = set(self.acknowledged) - set(found)
        assert not lost, f"acknowledged and lost: {sorted(lost)[:10]} of {len(self.acknowledged)}"
        order = {number: at for at, number in enumerate(found)}
        for turn in self._turns:
            places = [order[number] for number in turn]
            assert places == sorted(places), "the order is that of the acknowledgements"
        for machine in self.machines:
            mine = machine.disk.payloads()
            assert mine == found[: len(mine)], f"{machine.name} has something else"

    def _delay(self) -> float:
        return self.rng.choice([0.0, 0.001, 0.001, 0.01, 0.2 if self.faults else 0.001])

    def _outcome(self) -> Outcome:
        if self.rng.random() >= self.faults:
            return Outcome.ANSWERED
        return self.rng.choice([Outcome.ANSWER_LOST, Outcome.REQUEST_LOST, Outcome.LATE])


def run_cluster(seed: int, folder: Path) -> World:
    """Let a cluster live. Raises AssertionError if a promise is broken."""
    with cluster_in_one_process() as runner:
        return runner.run(_live(seed, folder))


@contextlib.contextmanager
def cluster_in_one_process() -> Iterator[asyncio.Runner]:
    """A loop in a time of its own, and limits so small that they are reached."""
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        patch.object(record, "PART_BYTES", PART_BYTES),
        patch.object(options, "LEAST_LOG_BYTES", 0),
    ):
        yield runner


async def _live(seed: int, folder: Path) -> World:
    world = World(seed, folder)
    await world.live()
    return world
