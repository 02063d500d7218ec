"""`ReplicatedStore`: a commit is done when the log has it; then it goes into the file of this machine, too.

Invariant: an attempt whose success is unknown is made again with the same records at the same place, or finds that
another machine has written there. So the log has each commit once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from mqttlite.core.changes import Change
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.engine.port import Engine, EngineUnavailable, Fenced, LogFull
from mqttlite.extensions.cluster.codec import encode
from mqttlite.extensions.cluster.disk import DamagedError
from mqttlite.extensions.cluster.picture import Picture
from mqttlite.extensions.cluster.record import encode_commit
from mqttlite.store.sqlite.records import wall_offset


class _Attempt:
    """A commit on its way to the log."""

    def __init__(self, changes: list[Change], records: list[bytes]) -> None:
        self.changes: Final = changes
        self.records: Final = records
        self.done = 0
        """How many of the records the log has."""
        self.size_bytes: Final = sum(map(len, records))


class ReplicatedStore:
    """A `Store` for the machine that serves. `incarnation` is the sequence of its `Begin`, up to which `picture` has
    the log. `on_fenced` is called once when another machine has begun to write the log: then nothing more is
    committed."""

    pages: Final = True

    def __init__(
        self, engine: Engine, log: str, picture: Picture, incarnation: int, on_fenced: Callable[[], None]
    ) -> None:
        self._engine: Final = engine
        self._log_name: Final = log
        self.picture: Final = picture
        self._incarnation: Final = incarnation
        self._on_fenced: Final = on_fenced
        self.sequence: int = incarnation
        """Of the last record in the log."""
        self._number = 0
        """Of the latest commit."""
        self._attempt: _Attempt | None = None
        self._is_fenced = False

    def commit(self, changes: list[Change]) -> "asyncio.Task[None]":
        """Implements `Store`. It raises `OSError` while the log cannot be written, or the file for too long."""
        return asyncio.get_running_loop().create_task(self._commit(changes))

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        """Implements `Store`: waits until the file has all commits that are done."""
        return self.picture.page(key, first, count)

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        """Implements `Store`, as `page`."""
        return self.picture.entries(key, first, end, count)

    def load(self) -> Iterator[list[Change]]:
        """Implements `Store`."""
        return self.picture.load()

    # ------------------------------------------------------------------ the log

    async def _commit(self, changes: list[Change]) -> None:
        if self._is_fenced:
            raise OSError("another machine serves")
        if self.picture.is_too_far_behind:
            raise OSError("the database of this machine is too far behind the log, because it cannot be written")
        attempt = self._attempt
        if attempt is None or attempt.changes is not changes:
            self._number += 1
            records = encode_commit(self._incarnation, self._number, encode(changes, wall_offset()))
            attempt = self._attempt = _Attempt(changes, records)
        while attempt.done < len(attempt.records):
            await self._append_next(attempt)
        self._attempt = None
        with contextlib.suppress(DamagedError):  # the log has it, and this machine is about to stop
            self.picture.add(changes, self.sequence, attempt.size_bytes)

    async def _append_next(self, attempt: _Attempt) -> None:
        """Append the next record. Raises `OSError` if it is unknown whether it is there.

        One at a time: of two that are under way, the second could follow a record that is not the first.
        """
        try:
            await self._engine.append(self._log_name, self.sequence, attempt.records[attempt.done])
        except Fenced:
            await self._look_behind(attempt)
        except (EngineUnavailable, LogFull) as error:
            raise OSError(str(error)) from None
        else:
            self._passed(attempt)

    async def _look_behind(self, attempt: _Attempt) -> None:
        """The log has a record behind the last that is known to be there: the next of this commit, of which it was
        unknown whether it is there, or another machine's. Raises `OSError` for that, and while it is unknown."""
        try:
            found = await self._engine.read(self._log_name, self.sequence + 1, 1)
        except EngineUnavailable as error:
            raise OSError(str(error)) from None
        if not found:
            raise OSError("the log has no answer yet")
        if found[0].sequence == self.sequence + 1 and found[0].blob == attempt.records[attempt.done]:
            self._passed(attempt)
            return
        self._is_fenced = True
        self._on_fenced()
        raise OSError("another machine serves")

    def _passed(self, attempt: _Attempt) -> None:
        self.sequence += 1
        attempt.done += 1
