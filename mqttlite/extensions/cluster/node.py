"""`Node`: one machine of a cluster. It follows the log until the lease is free, serves until it loses the lease, and
follows again.

Invariants: before a machine serves, it has written its `Begin`, and has everything before that in its database; from
then on no other machine's record enters the log before the next `Begin`. The lease only says who may try.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from mqttlite.build import version
from mqttlite.extensions.cluster import keys, snapshot, status
from mqttlite.extensions.cluster.disk import DamagedError, Database, Disk, Position, is_empty, position_of
from mqttlite.extensions.cluster.engine.port import (
    Bounds,
    Engine,
    EngineError,
    EngineUnavailable,
    Fenced,
    LogFull,
    RevisionConflict,
)
from mqttlite.extensions.cluster.lease import RENEW_S, HandOver, HeldLease, Holder, LeaseView, decode_hand_over, encode
from mqttlite.extensions.cluster.options import ClusterOptions, default_node
from mqttlite.extensions.cluster.picture import Picture
from mqttlite.extensions.cluster.record import Assembler, Begin, encode_begin
from mqttlite.extensions.cluster.replicated_store import ReplicatedStore
from mqttlite.extensions.cluster.shared_files import SharedFiles
from mqttlite.extensions.cluster.standby import ForeignDataError, SnapshotNeeded, Standby
from mqttlite.extensions.cluster.trim import is_filling, trim_before
from mqttlite.store.sqlite.files import DATABASE

LOOK_S: Final = 0.1
"""The interval in which a machine that follows looks at the lease."""

RETRY_S: Final = 0.5
"""How long to wait before something that the engine did not do is asked for again."""

STATUS_S: Final = 2.0
"""The interval in which a machine says how far it is, if that has changed."""

ALIVE_S: Final = 10.0
"""The interval in which it says so if nothing has changed."""

SILENT_S: Final = 3 * ALIVE_S
"""A machine that said nothing for so long counts as gone, until it says something."""

_log = logging.getLogger("mqttlite.cluster")


class Node:
    """`start` and `close` belong together; between them `serve_next`, then `end` when the broker has stopped, again
    and again."""

    def __init__(self, options: ClusterOptions, disk: Disk, engine: Engine, files: SharedFiles | None = None) -> None:
        self.name: Final = options.node or default_node(socket.gethostname())
        self._options: Final = options
        self._disk: Final = disk
        self._engine: Final = engine
        self._files: Final = files
        self._loop: Final = asyncio.get_running_loop()
        self._lease: Final = LeaseView(self.name, self._loop.time())
        self._run: Final = secrets.token_hex(8)
        self.role: status.Role = "starts"
        self.picture: Picture | None = None
        """How far this machine is; None while its database is not open."""
        self.over: Final = asyncio.Event()
        """Set when this machine must stop to serve: see `is_lost`."""
        self.is_lost: bool = False
        """Whether another machine may serve already. Otherwise an operator has asked for another one."""
        self.successor: str = ""
        """The machine that is to serve next; empty: any."""
        self.bounds: Bounds = Bounds(1, 0, 0, options.log_bytes)
        """What the log held when this machine last looked."""
        self.is_silent: bool = False
        """Whether the engine gave no answer to the last question about the log."""
        self.on_looked: Callable[[], None] = lambda: None
        """Called after each look at the log while this machine serves."""
        self.on_follows: Callable[[], None] = lambda: None
        """Called each time this machine begins to follow the log."""
        self.nodes: Final[dict[str, status.NodeStatus]] = {}
        """What each machine said last, by its name. See `roles`."""
        self._heard_at: Final[dict[str, float]] = {}
        self._held: HeldLease | None = None
        self._tasks: Final[list[asyncio.Task[None]]] = []
        """Those of the whole life of the node."""
        self._serving_tasks: Final[list[asyncio.Task[None]]] = []
        """Those of one turn."""
        self._database: Database | None = None
        """The open one."""
        self._log_id = ""
        self._is_damaged = False
        """Whether the database was found damaged while it was in use."""
        self._build: Final = version()
        self._position = 0
        self._durable = 0
        self._said: tuple[object, ...] = ()
        self._said_at = 0.0

    def start(self) -> None:
        """Begin to look at the lease, and to say how far this machine is."""
        for work in (self._watch(), self._tell_status()):
            self._begin_task(self._tasks, work)

    def _begin_task(self, tasks: list[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(_log_failure)
        tasks.append(task)

    async def close(self) -> None:
        """End all that `start` began."""
        await self.end()
        self.role = "stopped"
        with contextlib.suppress(EngineError):
            await self._tell()
        await _cancel(self._tasks)
        await self._engine.close()

    @property
    def turn(self) -> int:
        """How often the lease has changed hands."""
        return 0 if self._lease.holder is None else self._lease.holder.turn

    def roles(self) -> dict[str, status.Role]:
        """What each machine does, by its name."""
        now = self._loop.time()
        return {
            name: each.role if now - self._heard_at[name] < SILENT_S else "silent" for name, each in self.nodes.items()
        }

    def followers(self) -> list[str]:
        """The other machines that could take over."""
        return [name for name, role in self.roles().items() if role == "follows" and name != self.name]

    def renewed_ago(self) -> float:
        """How long ago this machine renewed its lease, in seconds; 0 if it has none."""
        return 0.0 if self._held is None else self._held.age(self._loop.time())

    # ------------------------------------------------------------------ follow

    async def serve_next(self) -> ReplicatedStore:
        """Follow the log until it is this machine's turn to serve; return the store to serve with.

        Raises `ForeignDataError` if the database is not of this cluster, `StoreError` for one that cannot be used, and
        `CodecError` if another machine is of a newer version.
        """
        await self._asked(lambda: self._engine.ensure_log(keys.LOG, self._options.log_bytes))
        self._log_id = await self._asked(lambda: keys.log_id(self._engine))
        needs_snapshot = False
        while True:
            standby = await self._open_standby(needs_snapshot)
            self.picture = standby.picture
            self.role = "follows"
            self.on_follows()
            following = [self._loop.create_task(standby.follow())]
            begin = 0
            try:
                begin = await self._take_turn(standby, following[0])
                needs_snapshot = False
            except SnapshotNeeded:
                needs_snapshot = True
            except DamagedError as error:
                self._on_damaged(error)
            except ForeignDataError as error:
                raise ForeignDataError(f"data_dir: {self._disk.name} {error}") from None
            finally:
                await _cancel(following)
                await self._close_database()
            store = await self._store(begin) if begin else None
            if store is not None:
                return store
            await self._give_back()

    async def _store(self, begin: int) -> ReplicatedStore | None:
        """None if another machine has written to the log meanwhile."""
        if not await self._fetch_files():
            return None
        database = self._database = self._disk.open()
        if position_of(database) != (begin, self._log_id):
            await self._close_database()
            return None
        self.picture = Picture(database, Position(begin, self._log_id))
        self.picture.on_damaged = self._on_damaged
        self.role = "serves"
        self._begin_task(self._serving_tasks, self._keep_log_short())
        if self._files is not None:
            self._begin_task(self._serving_tasks, self._files.keep_put())
        return ReplicatedStore(self._engine, keys.LOG, self.picture, begin, self._on_fenced)

    async def _fetch_files(self) -> bool:
        """Get the files that other machines have changed; False if the lease is lost meanwhile."""
        while self._files is not None and not self.is_lost:
            try:
                await self._files.fetch()
                break
            except (EngineError, OSError) as error:
                _log.warning("files of the machine before could not be fetched, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
        return not self.is_lost

    async def _open_standby(self, needs_snapshot: bool) -> Standby:
        """Open the database, which may need a snapshot first."""
        while True:
            bounds = await self._asked(lambda: self._engine.bounds(keys.LOG))
            if self._is_damaged:
                self._is_damaged = False
                self._disk.put_aside()
            try:
                database = self._database = self._disk.open()
                position = position_of(database)
            except DamagedError as error:
                await self._close_database()
                self._on_damaged(error)
                continue
            is_seed = position is None and not is_empty(database)
            problem = await self._problem(bounds, position, is_seed)
            if problem:
                await self._close_database()
                raise ForeignDataError(f"data_dir: {self._disk.name} {problem}")
            if not is_seed:
                self._disk.mark()
            position = position or Position(0, self._log_id)
            if position.sequence >= bounds.first - 1 and not needs_snapshot:
                return Standby(self._engine, keys.LOG, database, position, self.name, is_seed, self._on_begin)
            await self._close_database()
            await self._fetch_snapshot(max(1, bounds.first - 1))
            needs_snapshot = False

    def _on_damaged(self, error: DamagedError) -> None:
        _log.error("the database is damaged, and is kept aside; this machine starts again without it: %s", error)
        self._is_damaged = True
        if self.role == "serves":
            self._lose("its database is damaged")

    async def _problem(self, bounds: Bounds, position: Position | None, is_seed: bool) -> str:
        """Why the database cannot be used with this log; empty if it can."""
        if position is not None and not self._disk.is_marked:
            return f"may have what a broker alone wrote there: name another folder, or move its {DATABASE} away"
        if is_seed and bounds.last and not await self._has_begun_the_log():
            return (
                f"has data of a broker that is not of the cluster {self._options.name!r}: name another folder, or move "
                f"its {DATABASE} away"
            )
        if position is not None and position.log_id != self._log_id:
            return "has another log than the engine: these are other servers than before, or they lost their files"
        if position is not None and position.sequence > bounds.last:
            return (
                f"has the log of the cluster {self._options.name!r} up to {position.sequence}, and the engine has it "
                f"only up to {bounds.last}: these are other servers than before, or they lost their files"
            )
        return ""

    async def _has_begun_the_log(self) -> bool:
        """Whether the log begins with this machine, which was interrupted before it served."""
        found = await self._asked(lambda: self._engine.read(keys.LOG, 1, 1))
        begin = Assembler().add(1, found[0].blob) if found and found[0].sequence == 1 else None
        return isinstance(begin, Begin) and begin.is_seed and begin.node == self.name

    async def _fetch_snapshot(self, least: int) -> None:
        """Replace the database by a snapshot, which must have the log at least up to `least`."""
        self.role = "waits for a snapshot"
        _log.warning("the log does not have all that this machine lacks: it waits for a snapshot")
        while True:
            try:
                if await snapshot.position_of(self._engine) >= least:
                    await snapshot.fetch(self._engine, self._disk)
                    await asyncio.sleep(RETRY_S)  # if it is not new enough all the same, not again at once
                    return
            except (EngineError, OSError) as error:
                _log.warning("there is no snapshot yet, trying again: %s", error)
            await asyncio.sleep(RETRY_S)

    def _on_begin(self, sequence: int, node: str) -> None:
        _log.info("the machine %s serves, from %d in the log on", node, sequence)

    # ------------------------------------------------------------------ take over

    async def _take_turn(self, standby: Standby, following: asyncio.Task[None]) -> int:
        """Wait until the lease is free, take it, and write a `Begin`; return its sequence once the database has
        everything up to it. 0 if another machine was faster. Raises what `following` raises."""
        while not self._lease.is_free(self._loop.time()):
            await asyncio.wait([following], timeout=LOOK_S)
            if following.done():
                following.result()
            if self._lease.is_late(self._loop.time()):
                try:
                    await self._engine.get(keys.LEASE)
                except EngineUnavailable:
                    self._lease.excuse(self._loop.time())
        if not await self._take_lease():
            return 0
        self.role = "takes over"
        self._disk.mark()
        begin = await self._begin(standby.is_seed)
        if begin:
            reached = self._loop.create_task(standby.picture.reached(begin))
            await asyncio.wait([following, reached], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                reached.cancel()
                following.result()
        return 0 if self.is_lost else begin

    async def _take_lease(self) -> bool:
        sent_at = self._loop.time()
        holder = Holder(self.name, self._run, self._lease.turn(), self._options.addresses)
        try:
            revision = await self._engine.put(keys.LEASE, encode(holder), self._lease.expected)
        except EngineError:  # another machine was faster, or it will be seen that this one has it
            await asyncio.sleep(RETRY_S)
            return False
        self.over.clear()
        self.is_lost = False
        self.successor = ""
        self._held = HeldLease(holder, revision, sent_at)
        self._begin_task(self._serving_tasks, self._renew(self._held))
        return True

    async def _begin(self, is_seed: bool) -> int:
        """Write a `Begin` at the end of the log; return its sequence, or 0 if the lease is lost meanwhile."""
        record = encode_begin(secrets.randbits(63), self.name, is_seed)
        last: int = (await self._asked(lambda: self._engine.bounds(keys.LOG))).last
        while not self.is_lost:
            try:
                return await self._engine.append(keys.LOG, last, record)
            except Fenced as error:
                at = last + 1
                found = await self._asked(lambda: self._engine.read(keys.LOG, at, 1))  # noqa: B023 awaited here
                if found and found[0].sequence == at and found[0].blob == record:
                    return at
                last = error.last
            except LogFull:
                await self._shorten_log()
            except EngineUnavailable as error:
                _log.warning("the log cannot be written yet: %s", error)
                await asyncio.sleep(RETRY_S)
        return 0

    # ------------------------------------------------------------------ serve

    def successor_address(self) -> str:
        """Where clients find the machine that is to serve next; empty if that is not known."""
        found = self.nodes.get(self.successor)
        return found.addresses[0] if found is not None and found.addresses else ""

    async def end(self) -> None:
        """The broker has stopped: close the database, and give back the lease."""
        await self._close_database()
        await self._give_back()

    async def _close_database(self) -> None:
        picture, self.picture = self.picture, None
        if picture is not None:
            await picture.close()
        database, self._database = self._database, None
        if database is not None:
            await self._disk.close(database)

    async def _give_back(self) -> None:
        """Let another machine have the lease at once, if this one still has it."""
        await _cancel(self._serving_tasks)
        held, self._held = self._held, None
        if held is None or self.is_lost:
            return
        left = Holder("", self._run, held.holder.turn, successor=self.successor)
        with contextlib.suppress(EngineError):
            await self._engine.put(keys.LEASE, encode(left), held.revision)

    def _on_fenced(self) -> None:
        self._lose("another machine writes the log")

    def _lose(self, why: str) -> None:
        if not self.is_lost:
            _log.error("this machine stops to serve: %s", why)
            self.is_lost = True
            self.over.set()

    def _hand_over(self, request: HandOver) -> None:
        """An operator asks for another machine to serve."""
        if self.role != "serves" or self._held is None or request.turn != self._held.holder.turn:
            return
        found = [each for each in self.followers() if request.successor in ("", each)]
        if not found:
            _log.error("a hand-over was asked for, and no other machine follows")
            return
        self.successor = max(found, key=lambda each: self.nodes[each].position)
        _log.info("handing over to %s", self.successor)
        self.over.set()

    async def _renew(self, held: HeldLease) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            sent_at = self._loop.time()
            try:
                held.renew(await self._engine.put(keys.LEASE, encode(held.holder), held.revision), sent_at)
            except RevisionConflict:
                try:
                    entry = await self._engine.get(keys.LEASE)
                except EngineUnavailable:
                    continue
                if entry is None or not held.is_still(entry):
                    self._lose("another machine has the lease")
                    return
                held.renew(entry.revision, sent_at)  # the answer to an earlier renewal was lost
            except EngineUnavailable:
                if held.is_over(self._loop.time()) and (await self._engine.reach()).may_be_cut_off:
                    self._lose("most servers of the engine do not answer here, so another machine may serve")
                    return

    async def _keep_log_short(self) -> None:
        while True:
            await asyncio.sleep(STATUS_S)
            await self._shorten_log()

    async def _shorten_log(self) -> None:
        """Trim the log, or make a snapshot: for a machine that needs one, or because nothing else lets the log be
        trimmed."""
        picture = self.picture
        assert picture is not None, "the database is open"
        try:
            bounds = self.bounds = await self._engine.bounds(keys.LOG)
            kept = await snapshot.position_of(self._engine)
            is_waited_for = any(each.role == "waits for a snapshot" for each in self.nodes.values())
            durable = [each.durable for each in self.nodes.values() if each.role != "waits for a snapshot"]
            is_full = is_filling(bounds.size_bytes, bounds.max_bytes)
            before = trim_before(durable, kept, bounds.size_bytes, bounds.max_bytes)
            if is_waited_for and not is_full:  # what is behind the snapshot is still to be read
                before = min(before, kept + 1)
            if before > bounds.first:
                await self._engine.trim(keys.LOG, before)
            if (is_waited_for and kept < max(1, bounds.first - 1)) or (
                is_full and before <= bounds.first and kept < picture.position
            ):
                await snapshot.make(self._engine, self._disk, picture.position)
            self.is_silent = False
        except (EngineError, OSError) as error:
            self.is_silent = isinstance(error, EngineUnavailable)
            _log.warning("the log could not be made shorter, trying again: %s", error)
        self.on_looked()

    # ------------------------------------------------------------------ always

    async def _watch(self) -> None:
        async for entry in self._engine.watch(""):
            if entry.key == keys.LEASE:
                self._lease.see(entry, self._loop.time())
            elif entry.key == keys.HAND_OVER and entry.value is not None:
                request = decode_hand_over(entry.value)
                if request is not None:
                    self._hand_over(request)
            elif entry.key.startswith(keys.NODES):
                found = status.decode_node(entry.value)
                if found is None:
                    self.nodes.pop(entry.key.removeprefix(keys.NODES), None)
                else:
                    self.nodes[found.node] = found
                    self._heard_at[found.node] = self._loop.time()
                    if found.node == self.name and found.run != self._run and self._said:
                        _log.error(
                            "two machines have the name %s: set cluster.node to another on one of them", self.name
                        )

    async def _tell_status(self) -> None:
        while True:
            with contextlib.suppress(EngineError):  # the next time
                await self._tell()
            await asyncio.sleep(STATUS_S)

    async def _tell(self) -> None:
        """Write the status if it has changed, or to show that this machine is alive."""
        picture = self.picture
        if picture is not None:
            if picture.durable < picture.position:
                try:
                    await picture.checkpoint()
                except OSError as error:
                    _log.warning("the database could not be made safe, trying again: %s", error)
            self._position, self._durable = picture.position, picture.durable
            self.bounds = await self._engine.bounds(keys.LOG)
        said = self.role, self._position, self._durable
        if said == self._said and self._loop.time() - self._said_at < ALIVE_S:
            return
        now = status.NodeStatus(
            node=self.name,
            run=self._run,
            role=self.role,
            position=self._position,
            durable=self._durable,
            addresses=self._options.addresses,
            build=self._build,
            at=time.time(),
        )
        key = keys.NODES + self.name
        entry = await self._engine.get(key)
        await self._engine.put(key, status.encode(now), 0 if entry is None else entry.revision)
        self._said, self._said_at = said, self._loop.time()

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask the engine until it answers."""
        while True:
            try:
                return await ask()
            except EngineUnavailable as error:
                _log.warning("the engine does not answer, trying again: %s", error)
                await asyncio.sleep(RETRY_S)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of this machine's work has ended", exc_info=error)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    tasks.clear()
