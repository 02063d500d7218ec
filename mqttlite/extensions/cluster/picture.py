"""The picture of the log: the database of this machine, into which commits go once the log has them.

Invariants: it has commits in the order of the log, and none that the log does not have; the sequence of the last one
(`POSITION`) is in the same transaction. So after any crash it lacks what the log has from there on.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, final

from mqttlite.core.changes import Change
from mqttlite.core.log_changes import LoadedOfLog
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.extensions.cluster.disk import POSITION, DamagedError, Database, Position
from mqttlite.store.sqlite.files import DamagedPicture

UNAPPLIED_BYTES: Final = 64 * 1_048_576
"""How much the log may have that the database does not. Bounds the memory that a full or slow disk costs."""

RETRY_S: Final = 0.25
"""How long to wait before a failed write is tried again."""

GATHER_S: Final = 0.02
"""How long commits are gathered before they are written, unless somebody waits for them: each write costs as much time
of a processor as many commits in one."""

T = TypeVar("T")

_log = logging.getLogger("mqttlite.cluster")


@final
class Picture:
    """`position` is how far the database has the log already."""

    def __init__(self, database: Database, position: Position) -> None:
        self._database: Final = database
        self._log_id: Final = position.log_id
        self.on_damaged: Callable[[DamagedError], None] = lambda _error: None
        """Called once when the database turns out to be damaged: nothing more is written then."""
        self._damage: DamagedError | None = None
        self.position: int = position.sequence
        """The sequence of the last commit in the database."""
        self.durable: int = position.sequence
        """The same, of those that a power cut does not undo."""
        self.failure: str = ""
        """Why the database cannot be written now; empty if it can."""
        self._unapplied: Final[deque[tuple[list[Change], int, int]]] = deque()
        """The changes, sequence and size in bytes of commits that the database does not have yet."""
        self._unapplied_bytes = 0
        self._last = position.sequence
        """The sequence of the last commit that was added."""
        self._applying: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        """Set, and replaced, each time the database has more."""
        self._is_waited_for = asyncio.Event()
        """Set while somebody waits for what was added."""

    @property
    def is_too_far_behind(self) -> bool:
        """Whether nothing more may be added for now."""
        return self._unapplied_bytes > UNAPPLIED_BYTES

    def add(self, changes: list[Change], sequence: int, size_bytes: int) -> None:
        """The log has this commit, which ends with the record `sequence`. Raises `DamagedError`."""
        if self._damage is not None:
            raise self._damage
        self._unapplied.append((changes, sequence, size_bytes))
        self._unapplied_bytes += size_bytes
        self._last = sequence
        if self._applying is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply())

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        """A page of messages (`Store.page`), once the database has all commits that were added."""
        return self._read(lambda: self._database.page(key, first, count))

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        """Some messages of a log (`Store.entries`), once the database has all commits that were added."""
        return self._read(lambda: self._database.entries(key, first, end, count))

    def load(self) -> Iterator[list[Change]]:
        """The state as changes (`Store.load`)."""
        for changes in self._database.load():
            yield [each for each in changes if not (isinstance(each, LoadedOfLog) and each.key == POSITION)]

    async def reached(self, sequence: int) -> None:
        """Wait until the database has the log up to a sequence. Raises `DamagedError`."""
        while self.position < sequence:
            await self._wait()

    async def has_room(self) -> None:
        """Wait until more may be added. Raises `DamagedError`."""
        while self.is_too_far_behind:
            await self._wait()

    async def _wait(self) -> None:
        if self._damage is not None:
            raise self._damage
        self._is_waited_for.set()
        await self._progress.wait()

    async def look(self) -> str:
        """Why the database cannot be written now; empty if it can, or was never written.

        It writes the position again, in its turn: what is written must be tried again before anything else is.
        """
        is_idle = self._applying is None and self._damage is None
        if is_idle and self.position > 0:
            self._is_waited_for.set()
            self.add([], self.position, 0)
            assert self._applying is not None, "it was begun"
            await asyncio.wait([self._applying], timeout=RETRY_S)
        return self.failure

    async def checkpoint(self) -> None:
        """Make what the database has safe from power cuts. Raises `OSError`."""
        position = self.position
        if await self._database.checkpoint():
            self.durable = position

    async def close(self) -> None:
        """Write what was added, unless that fails now: the log has it."""
        self._is_waited_for.set()
        if self._applying is not None:
            _, unfinished = await asyncio.wait([self._applying], timeout=RETRY_S)
            for task in unfinished:
                task.cancel()

    async def _apply(self) -> None:
        """Put all commits that were added into the database, as many at a time as there are."""
        while self._unapplied:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._is_waited_for.wait()
            self._is_waited_for.clear()
            batch = list(self._unapplied)
            changes = [change for each, _, _ in batch for change in each]
            sequence = batch[-1][1]
            changes.append(Position(sequence, self._log_id).change())
            try:
                await self._write(changes)
            except DamagedError as error:
                self._fail(error)
                return
            for _ in batch:
                self._unapplied_bytes -= self._unapplied.popleft()[2]
            self.position = sequence
            self._tell_progress()
        self._applying = None

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _fail(self, error: DamagedError) -> None:
        if self._damage is None:
            self._damage = error
            self._tell_progress()
            self.on_damaged(error)

    async def _write(self, changes: list[Change]) -> None:
        """Commit to the database, with as many attempts as it takes."""
        attempts = 1
        while True:
            try:
                await self._database.commit(changes)
                break
            except DamagedPicture as error:
                raise DamagedError(str(error)) from None
            except OSError as error:
                if attempts & (attempts - 1) == 0:  # the 1st, 2nd, 4th, 8th …
                    _log.error("the database cannot be written (attempt %d), trying again: %s", attempts, error)
                attempts += 1
                self.failure = str(error)
                await asyncio.sleep(RETRY_S)
        self.failure = ""
        if attempts > 1:
            _log.warning("the database was written at attempt %d", attempts)

    def _read(self, read: "Callable[[], asyncio.Future[T]]") -> "asyncio.Future[T]":
        return asyncio.get_running_loop().create_task(self._read_later(read))

    async def _read_later(self, read: "Callable[[], asyncio.Future[T]]") -> T:
        await self.reached(self._last)
        try:
            return await read()
        except DamagedPicture as error:
            self._fail(DamagedError(str(error)))
            raise
