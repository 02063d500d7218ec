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
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from mqttlite.engine.addresses import default_node
from mqttlite.engine.port import Bounds, Engine, EngineError, EngineUnavailable, Fenced, LogFull
from mqttlite.extensions.cluster import keys, snapshot, status
from mqttlite.extensions.cluster.disk import DamagedError, Database, Disk, Position, is_empty, position_of
from mqttlite.extensions.cluster.lease import LeaseView, decode_hand_over
from mqttlite.extensions.cluster.log_room import LogRoom
from mqttlite.extensions.cluster.machines import Machines
from mqttlite.extensions.cluster.options import ClusterOptions
from mqttlite.extensions.cluster.overview import Overview
from mqttlite.extensions.cluster.picture import Picture
from mqttlite.extensions.cluster.record import Assembler, Begin, encode_begin
from mqttlite.extensions.cluster.replicated_store import ReplicatedStore
from mqttlite.extensions.cluster.shared_files import SharedFiles
from mqttlite.extensions.cluster.standby import ForeignDataError, SnapshotNeeded, Standby
from mqttlite.extensions.cluster.turn import CATCH_UP_S, Turn
from mqttlite.store.sqlite.files import DATABASE, NoRoom

LOOK_S: Final = 0.1
"""How late a machine that follows may see that the lease has run out."""

RETRY_S: Final = 0.5
"""How long to wait before something that the engine did not do is asked for again."""

CHECK_S: Final = 10.0
"""The interval in which a machine that follows looks whether it could serve."""

LEAD_S: Final = 5.0
"""The interval in which the machine that serves looks whether the server of the engine beside it leads."""

RECHECK_S: Final = 2.0
"""The same, while it could not."""

_log = logging.getLogger("mqttlite.cluster")


class Node:
    """`start` and `close` belong together; between them `serve_next`, then `end` when the broker has stopped, again
    and again."""

    def __init__(
        self,
        options: ClusterOptions,
        disk: Disk,
        engine: Engine,
        files: SharedFiles | None = None,
        could_serve: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`could_serve` says why this machine could not, for example because its port is in use; empty if it could."""
        self.name: Final = options.node or default_node(socket.gethostname())
        run = secrets.token_hex(8)
        self._options: Final = options
        self._disk: Final = disk
        self._engine: Final = engine
        self._files: Final = files
        self._could_serve: Final = could_serve
        self._loop: Final = asyncio.get_running_loop()
        self._lease: Final = LeaseView(self.name, self._loop.time())
        self._lease_seen: Final = asyncio.Event()
        """Set when the lease has changed."""
        self.machines: Final = Machines(engine, self.name, run, options.addresses)
        self.turn: Final = Turn(engine, self.name, run, options.addresses, self._lease, self.machines)
        self.log_room: Final = LogRoom(engine, disk, options.log_bytes)
        self._role: status.Role = "starts"
        self._problem = ""
        """Why this machine could not serve."""
        self.picture: Picture | None = None
        """How far this machine is; None while its database is not open."""
        self.on_follows: Callable[[], None] = lambda: None
        """Called each time this machine begins to follow the log."""
        self._tasks: Final[list[asyncio.Task[None]]] = []
        """Those of the whole life of the node."""
        self._serving_tasks: Final[list[asyncio.Task[None]]] = []
        """Those of one turn."""
        self._giving_back: asyncio.Task[None] | None = None
        """Gives back the lease before the broker has ended."""
        self._database: Database | None = None
        """The open one."""
        self._log_id = ""
        self._is_damaged = False
        """Whether the database was found damaged while it was in use."""
        self._position = 0
        self._durable = 0

    @property
    def role(self) -> status.Role:
        """What this machine does."""
        return self._role

    @role.setter
    def role(self, role: status.Role) -> None:
        self._role = role
        self.machines.wake()

    @property
    def turns(self) -> int:
        """How often the lease has changed hands."""
        return 0 if self._lease.holder is None else self._lease.holder.turn

    def overview(self) -> Overview:
        """The cluster as this machine knows it, without asking the engine."""
        holder, bounds = self._lease.holder, self.log_room.bounds
        return Overview(
            serving="" if holder is None else holder.node,
            turn=self.turns,
            first=bounds.first,
            last=bounds.last,
            log_bytes=bounds.size_bytes,
            max_log_bytes=bounds.max_bytes,
            servers_away=bounds.away,
            snapshot=self.log_room.snapshot,
            machines=self.machines.states(),
        )

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
        await _cancel(self._tasks)
        await self.machines.say_goodbye(self._position, self._durable)
        await self._engine.close()

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
            await self._check()
            self.on_follows()
            following = self._loop.create_task(standby.follow())
            checking: list[asyncio.Task[None]] = []
            self._begin_task(checking, self._keep_checking())
            begin = 0
            try:
                begin = await self._take_turn(standby, following, checking)
                needs_snapshot = False
            except SnapshotNeeded:
                needs_snapshot = True
            except DamagedError as error:
                self._on_damaged(error)
            except ForeignDataError as error:
                raise ForeignDataError(f"data_dir: {self._disk.name} {error}") from None
            finally:
                await _cancel([following, *checking])
                await self._close_database()
            store = await self._store(begin) if begin else None
            if store is not None:
                return store
            await self._give_back()

    async def _store(self, begin: int) -> ReplicatedStore | None:
        """None if another machine has written to the log meanwhile."""
        if not await self._fetch_files():
            return None
        try:
            database = self._database = self._disk.open()
        except NoRoom as error:
            await self._give_back()  # another machine may have room
            await self._wait_for_room(error)
            return None
        if position_of(database) != (begin, self._log_id):
            await self._close_database()
            return None
        self.picture = Picture(database, Position(begin, self._log_id))
        self.picture.on_damaged = self._on_damaged
        self.role = "serves"
        self._begin_task(self._serving_tasks, self.log_room.keep(lambda: self._position, self.machines.said.values))
        if self._files is not None:
            self._begin_task(self._serving_tasks, self._files.keep_put())
        if self._options.engine is not None:
            self._begin_task(self._serving_tasks, self._lead_elsewhere(self._options.engine.address))
        return ReplicatedStore(self._engine, keys.LOG, self.picture, begin, self._on_fenced)

    async def _fetch_files(self) -> bool:
        """Get the files that other machines have changed; False if the lease is lost meanwhile."""
        while self._files is not None and not self.turn.is_lost:
            try:
                await self._files.fetch()
                break
            except (EngineError, OSError) as error:
                _log.warning("files of the machine before could not be fetched, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
        return not self.turn.is_lost

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
            except NoRoom as error:
                await self._wait_for_room(error)
                continue
            is_seed = position is None and not is_empty(database)
            problem = await self._mismatch(bounds, position, is_seed)
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

    async def _wait_for_room(self, error: NoRoom) -> None:
        """The disk is full: wait a while. The process goes on, so that the engine's server beside it does."""
        if self._problem != str(error):
            _log.error("this machine waits for room on its disk: %s", error)
        self._problem = str(error)
        self.role = "cannot serve"
        await asyncio.sleep(RECHECK_S)

    def _on_damaged(self, error: DamagedError) -> None:
        _log.error("the database is damaged, and is kept aside; this machine starts again without it: %s", error)
        self._is_damaged = True
        if self.role == "serves":
            self.turn.lose("its database is damaged")

    async def _mismatch(self, bounds: Bounds, position: Position | None, is_seed: bool) -> str:
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

    async def _check(self) -> None:
        """Look whether this machine could serve."""
        problem = "" if self._could_serve is None else await self._could_serve()
        failure = "" if self.picture is None else await self.picture.look()
        if failure:
            problem = f"the database cannot be written: {failure}"
        before, self._problem = self._problem, problem
        self.role = "cannot serve" if self._problem else "follows"
        if self._problem and self._problem != before:
            _log.error("this machine follows, and could not serve: %s", self._problem)
        elif before and not self._problem:
            _log.warning("this machine could serve again")

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S if self._problem else CHECK_S)
            await self._check()

    async def _take_turn(
        self, standby: Standby, following: asyncio.Task[None], checking: list[asyncio.Task[None]]
    ) -> int:
        """Wait until the lease is free and this machine could serve, take the lease, and write a `Begin`; return its
        sequence once the database has everything up to it. 0 if another machine was faster. Raises what `following`
        raises."""
        while self._problem or not self._lease.is_free(self._loop.time()):
            await self._wait_for_lease(following)
            if self._lease.is_late(self._loop.time()):
                try:
                    entry = await self._engine.get(keys.LEASE)
                except EngineUnavailable:
                    self._lease.excuse(self._loop.time())
                else:
                    if entry is not None:
                        self._lease.see(entry, self._loop.time())
        await _cancel(checking)
        if not await self.turn.take():
            await asyncio.sleep(RETRY_S)
            return 0
        self._begin_task(self._serving_tasks, self.turn.renew())
        self.role = "takes over"
        self._disk.mark()
        begin = await self._begin(standby)
        if begin:
            reached = self._loop.create_task(standby.picture.reached(begin))
            while not (following.done() or reached.done() or standby.picture.failure or self.turn.is_lost):
                await asyncio.wait([following, reached], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not reached.done():  # if its disk is full, another machine may do better
                reached.cancel()
                begin = 0
            if following.done():
                following.result()
        return 0 if self.turn.is_lost else begin

    async def _wait_for_lease(self, following: asyncio.Task[None]) -> None:
        """Wait until the lease has changed, or may have run out. Raises what `following` raises."""
        self._lease_seen.clear()
        seen = self._loop.create_task(self._lease_seen.wait())
        wait_s = LOOK_S if self._problem else max(LOOK_S, self._lease.late_in(self._loop.time()))
        await asyncio.wait([following, seen], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        seen.cancel()
        if following.done():
            following.result()

    async def _begin(self, standby: Standby) -> int:
        """Write a `Begin` at the end of the log; return its sequence, or 0 if the lease is lost meanwhile."""
        record = encode_begin(secrets.randbits(63), self.name, standby.is_seed)
        last: int = (await self._asked(lambda: self._engine.bounds(keys.LOG))).last
        while not self.turn.is_lost:
            try:
                return await self._engine.append(keys.LOG, last, record)
            except Fenced as error:
                at = last + 1
                found = await self._asked(lambda: self._engine.read(keys.LOG, at, 1))  # noqa: B023 awaited here
                if found and found[0].sequence == at and found[0].blob == record:
                    return at
                last = error.last
            except LogFull:
                await self.log_room.make_room(standby.picture.position, self.machines.said.values())
            except EngineUnavailable as error:
                _log.warning("the log cannot be written yet: %s", error)
                await asyncio.sleep(RETRY_S)
        return 0

    # ------------------------------------------------------------------ serve

    def successor_address(self) -> str:
        """Where clients find the machine that is to serve next; empty if that is not known."""
        addresses = self.machines.addresses_of(self.turn.successor)
        return addresses[0] if addresses else ""

    def settled(self) -> None:
        """The broker stops, and has committed what it keeps: another machine need not wait for the rest."""
        if self._giving_back is None and not self.turn.is_lost:
            self.role = "starts"
            self._giving_back = self._loop.create_task(self._give_back())

    async def end(self) -> None:
        """The broker has stopped: close the database, and give back the lease."""
        giving_back, self._giving_back = self._giving_back, None
        if giving_back is not None:
            await giving_back
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
        await _cancel(self._serving_tasks)
        await self.turn.give_back()

    def _on_fenced(self) -> None:
        if self.turn.is_held:  # otherwise it was given back, and the broker is about to end
            self.turn.lose("another machine writes the log")

    async def _lead_elsewhere(self, server: str) -> None:
        """Let the server of the engine on this machine lead nothing: when the machine is lost, the next one need not
        wait for another leader, too."""
        while True:
            await asyncio.sleep(LEAD_S)
            with contextlib.suppress(EngineError):
                await self._engine.lead_elsewhere(keys.LOG, server)

    # ------------------------------------------------------------------ always

    async def _watch(self) -> None:
        async for entry in self._engine.watch(""):
            if entry.key == keys.LEASE:
                self._lease.see(entry, self._loop.time())
                self._lease_seen.set()
            elif entry.key == keys.HAND_OVER and entry.value is not None:
                request = decode_hand_over(entry.value)
                self.machines.hurry(CATCH_UP_S)
                if request is not None and self.role == "serves" and self.turn.is_asked(request):
                    self._begin_task(self._serving_tasks, self.turn.hand_over(request, entry.revision))
            elif entry.key.startswith(keys.NODES):
                self.machines.see(entry)

    async def _tell_status(self) -> None:
        while True:
            try:
                await self._tell()
            except EngineError:
                await asyncio.sleep(RETRY_S)
            await self.machines.next_time()

    async def _tell(self) -> None:
        picture = self.picture
        if picture is not None:
            if picture.durable < picture.position:
                try:
                    await picture.checkpoint()
                except OSError as error:
                    _log.warning("the database could not be made safe, trying again: %s", error)
            self._position, self._durable = picture.position, picture.durable
            await self.log_room.look()
        await self.machines.tell(self.role, self._problem, self._position, self._durable)

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
