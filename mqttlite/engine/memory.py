"""The model of the engine, in one process: for tests and the simulator. Nothing here is durable.

`MemoryServers` is what three servers agree on, and `connect` makes a connection to it. Without faults and delays each
request takes place and is answered at once, before anything else runs, so two runs are equal.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, TypeVar, final

from mqttlite.engine.port import (
    MAX_READ_BYTES,
    Bounds,
    EngineError,
    EngineUnavailable,
    EngineUnfit,
    Entry,
    Fenced,
    LogFull,
    NoSuchFile,
    Reach,
    Record,
    RevisionConflict,
    check_blob,
    check_key,
    check_name,
)

T = TypeVar("T")

LEAST_STEP_S: Final = 1e-6
"""Requests of one connection arrive this far apart at least, so that delays never change their order."""


class Outcome(Enum):
    """What becomes of a request."""

    ANSWERED = auto()
    """It takes place, and the answer arrives."""

    ANSWER_LOST = auto()
    """It takes place, and the caller gets `EngineUnavailable`."""

    REQUEST_LOST = auto()
    """It never takes place, and the caller gets `EngineUnavailable`."""

    LATE = auto()
    """The caller gets `EngineUnavailable`, and it takes place when `deliver_late` is called."""


def _no_delay() -> float:
    return 0.0


def _answered() -> Outcome:
    return Outcome.ANSWERED


@final
class _Log:
    """Records from `first` on, and their limit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.first = 1
        self.blobs: list[bytes] = []
        self.size_bytes = 0
        self.max_bytes = 0

    @property
    def last(self) -> int:
        return self.first + len(self.blobs) - 1

    def append(self, expected: int, blob: bytes) -> int:
        if expected != self.last:
            raise Fenced(self._name, expected, self.last)
        if self.size_bytes + len(blob) > self.max_bytes:
            raise LogFull(self._name)
        self.blobs.append(blob)
        self.size_bytes += len(blob)
        return self.last

    def read(self, first: int, count: int) -> list[Record]:
        start = max(first - self.first, 0)
        found: list[Record] = []
        size = 0
        for place, blob in enumerate(self.blobs[start : start + count], self.first + start):
            size += len(blob)
            if found and size > MAX_READ_BYTES:
                break
            found.append(Record(place, blob))
        return found

    def trim(self, before: int) -> None:
        gone = min(max(before - self.first, 0), len(self.blobs))
        self.size_bytes -= sum(map(len, self.blobs[:gone]))
        del self.blobs[:gone]
        self.first += gone


@final
class MemoryServers:
    """What the servers agree on, and the faults that a test sets.

    `is_available` says whether there is a majority. `delay` gives the seconds that a request takes to arrive, and the
    seconds that its answer takes; `outcome` what becomes of it. Both are asked for each request in the order of the
    calls, so a seeded generator makes a schedule that can be played again.
    """

    def __init__(self, delay: Callable[[], float] = _no_delay, outcome: Callable[[], Outcome] = _answered) -> None:
        self.delay = delay
        self.outcome = outcome
        self.logs: dict[str, _Log] = {}
        self.keys: dict[str, Entry] = {}
        self.files: dict[str, bytes] = {}
        self.away: tuple[str, ...] = ()
        """The servers that are away, of which requests notice nothing while there is a majority."""
        self.asked_to_lead_elsewhere: list[str] = []
        """The servers that were asked to lead no more."""
        self._revision = 0
        self._is_available = True
        self._late: deque[Callable[[], object]] = deque()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_available(self) -> bool:
        return self._is_available

    @is_available.setter
    def is_available(self, is_available: bool) -> None:
        self._is_available = is_available
        self.wake()

    def connect(self) -> "MemoryEngine":
        """Make one more connection."""
        return MemoryEngine(self)

    def deliver_late(self) -> None:
        """Let each request whose outcome is `LATE` take place, in the order of the calls. Its caller learns nothing."""
        while self._late:
            with suppress(EngineError):
                self._late.popleft()()
        self.wake()

    def keep_late(self, request: Callable[[], object]) -> None:
        """Keep a request for `deliver_late`."""
        self._late.append(request)

    def change(self, key: str, value: bytes | None, revision: int) -> int:
        """Set or delete a key if it has this revision."""
        entry = self.keys.get(key)
        present = entry.revision if entry is not None and entry.value is not None else 0
        if present != revision:
            raise RevisionConflict(key, revision)
        self._revision += 1
        self.keys[key] = Entry(key, value, self._revision)
        return self._revision

    async def wait_for_change(self) -> None:
        """Wait until something has changed, or until a connection or the majority came back."""
        change = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        try:
            await change
        finally:
            with suppress(ValueError):
                self._waiting.remove(change)

    def wake(self) -> None:
        """End each `wait_for_change`."""
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)


@final
class MemoryEngine:
    """One connection to `MemoryServers`. It implements `Engine`. While `is_cut_off` it reaches no server."""

    def __init__(self, servers: MemoryServers) -> None:
        self._servers = servers
        self._is_cut_off = False
        self._is_closed = False
        self._arrival = 0.0

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off

    @is_cut_off.setter
    def is_cut_off(self, is_cut_off: bool) -> None:
        self._is_cut_off = is_cut_off
        self._servers.wake()

    @property
    def _is_reaching(self) -> bool:
        return not self._is_cut_off and not self._is_closed and self._servers.is_available

    async def ensure_log(self, log: str, max_bytes: int) -> None:
        check_name(log)

        def ensure() -> None:
            self._servers.logs.setdefault(log, _Log(log)).max_bytes = max_bytes

        await self._ask(ensure, changes=True)

    async def use_log(self, log: str) -> None:
        def use() -> None:
            if log not in self._servers.logs:
                raise EngineUnfit(f"the engine has no log {log!r}")

        await self._ask(use)

    async def append(self, log: str, expected: int, blob: bytes) -> int:
        check_blob(blob)
        return await self._ask(lambda: self._servers.logs[log].append(expected, blob), changes=True)

    async def read(self, log: str, first: int, count: int) -> list[Record]:
        return await self._ask(lambda: self._servers.logs[log].read(first, count))

    async def bounds(self, log: str) -> Bounds:
        def bounds() -> Bounds:
            found = self._servers.logs[log]
            return Bounds(found.first, found.last, found.size_bytes, found.max_bytes, self._servers.away)

        return await self._ask(bounds)

    async def follow(self, log: str, first: int) -> AsyncGenerator[Record, None]:
        while not self._is_closed:
            records = self._servers.logs[log].read(first, 1) if self._is_reaching else []
            if not records:
                await self._servers.wait_for_change()
                continue
            first = records[0].sequence + 1
            if delay := self._servers.delay():
                await asyncio.sleep(delay)
            yield records[0]

    async def trim(self, log: str, before: int) -> None:
        await self._ask(lambda: self._servers.logs[log].trim(before), changes=True)

    async def put(self, key: str, value: bytes, revision: int) -> int:
        check_key(key)
        check_blob(value)
        return await self._ask(lambda: self._servers.change(key, value, revision), changes=True)

    async def get(self, key: str) -> Entry | None:
        check_key(key)

        def get() -> Entry | None:
            entry = self._servers.keys.get(key)
            return entry if entry is not None and entry.value is not None else None

        return await self._ask(get)

    async def entries(self, prefix: str) -> list[Entry]:
        def entries() -> list[Entry]:
            found = self._servers.keys.values()
            return [each for each in found if each.value is not None and each.key.startswith(prefix)]

        return await self._ask(entries)

    async def watch(self, prefix: str) -> AsyncGenerator[Entry, None]:
        looked_at = 0
        seen: set[str] = set()
        while not self._is_closed:
            entries = list(self._servers.keys.values()) if self._is_reaching else []
            changed = sorted((each for each in entries if each.revision > looked_at), key=lambda each: each.revision)
            for entry in changed:
                looked_at = entry.revision
                if entry.key.startswith(prefix) and (entry.value is not None or entry.key in seen):
                    seen.add(entry.key)
                    yield entry
            if not changed:
                await self._servers.wait_for_change()

    async def reach(self) -> Reach:
        if self._is_cut_off:
            return Reach(3, 0, 0)
        return Reach(3, 3, 0) if self._servers.is_available else Reach(3, 1, 2)

    async def lead_elsewhere(self, log: str, server: str) -> None:
        check_name(log)
        await self._ask(lambda: self._servers.asked_to_lead_elsewhere.append(server))

    async def put_file(self, name: str, path: Path) -> None:
        check_name(name)
        content = path.read_bytes()  # noqa: ASYNC240 - nothing else may run meanwhile, so that two runs are equal

        def put() -> None:
            self._servers.files[name] = content

        await self._ask(put)

    async def get_file(self, name: str, path: Path) -> None:
        check_name(name)

        def get() -> bytes:
            if name not in self._servers.files:
                raise NoSuchFile(name)
            return self._servers.files[name]

        _write_whole(path, await self._ask(get))

    async def delete_file(self, name: str) -> None:
        check_name(name)
        await self._ask(lambda: self._servers.files.pop(name, None))

    async def close(self) -> None:
        self._is_closed = True
        self._servers.wake()

    async def _ask(self, request: Callable[[], T], *, changes: bool = False) -> T:
        """Let a request arrive, take place and be answered, as delays and outcome say. One that `changes` something is
        seen by those who wait for that."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        outcome = self._servers.outcome()

        def arrive() -> None:
            if answer.done():  # the caller was cancelled; what it asked is on its way all the same
                with suppress(EngineError):
                    self._take_place(request, outcome, changes)
                return
            try:
                answer.set_result(self._take_place(request, outcome, changes))
            except EngineError as error:
                answer.set_exception(error)

        if arrive_s := self._servers.delay():
            self._arrival = max(self._arrival + LEAST_STEP_S, loop.time() + arrive_s)
            loop.call_at(self._arrival, arrive)
        else:
            arrive()
        with suppress(EngineError):
            await answer
        if answer_s := self._servers.delay():
            await asyncio.sleep(answer_s)
        if self._is_cut_off or self._is_closed:
            raise self._unavailable()
        return answer.result()

    def _take_place(self, request: Callable[[], T], outcome: Outcome, changes: bool) -> T:
        if not self._is_reaching or outcome is Outcome.REQUEST_LOST:
            raise self._unavailable()
        if outcome is Outcome.LATE:
            self._servers.keep_late(request)
            raise self._unavailable()
        try:
            result = request()
        except EngineError:
            if outcome is Outcome.ANSWER_LOST:
                raise self._unavailable() from None
            raise
        if changes:
            self._servers.wake()
        if outcome is Outcome.ANSWER_LOST:
            raise self._unavailable()
        return result

    def _unavailable(self) -> EngineUnavailable:
        return EngineUnavailable("the model of the engine gave no answer")


def _write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)
