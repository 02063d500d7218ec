"""The engine on three NATS servers with JetStream.

Each log is a stream with one subject. An append is a message with `Nats-Expected-Last-Sequence`: the stream's leader
compares it with its last sequence, including messages that it has proposed to the others and that are still on their
way. It answers when a majority has the message and, with `sync_interval: always`, has called fsync.

**Linear reads.** Any server that has a copy may answer a read, and it may lag. But a copy is a prefix of the one order
of records. So a read is complete when the copy reaches the highest sequence that this connection knows; if it does not,
the read is made again. An heir knows the sequence of its own first append, so it reads all that came before it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar, final

import msgspec
from nats.aio.msg import Msg

from mqttlite.engine.nats.connection import (
    ANSWER_TIMEOUT_S,
    ApiError,
    NatsConnection,
    connect,
    status_of,
)
from mqttlite.engine.nats.files import NatsFiles
from mqttlite.engine.nats.fitness import Look, check, greetings_of, look_at
from mqttlite.engine.nats.keys import NatsKeys
from mqttlite.engine.nats.servers import NatsOptions
from mqttlite.engine.nats.streams import (
    NO_STREAM,
    StreamGone,
    StreamInfo,
    ensure_stream,
    info_of,
    lead_elsewhere,
    purge,
)
from mqttlite.engine.nats.tail import Tail, TailMessage, Waiting
from mqttlite.engine.port import (
    MAX_READ_BYTES,
    Bounds,
    EngineUnfit,
    Entry,
    Fenced,
    LogFull,
    Reach,
    Record,
    check_blob,
    check_key,
    check_name,
)

T = TypeVar("T")

WRONG_SEQUENCE: Final = frozenset({10071, 10164})
STORE_FAILED: Final = 10077
"""The stream could not store a message: usually its limit of bytes."""

LAGGING_RETRY_S: Final = 0.02
"""A copy that lags is asked again, or another one, after this time."""

MAX_READ: Final = 256
"""Records of one read of a follower."""

END_OF_BATCH: Final = 204


@final
class NatsEngine:
    """A connection to the servers. It implements `Engine`; `open` makes it."""

    def __init__(self, connection: NatsConnection, options: NatsOptions) -> None:
        self._connection = connection
        self._cluster = options.cluster
        self._servers = options.servers
        self._keys = NatsKeys(connection, options.cluster)
        self._files = NatsFiles(connection, options.cluster)
        self._known: dict[str, int] = {}
        self._trimmed: dict[str, int] = {}
        self._bucket: tuple[int, int] | None = None
        """The size of files, and the copies, of what is made again if the servers lose it: keys and files of nodes, and
        nothing of a cluster."""

    @classmethod
    async def open(cls, options: NatsOptions, *, creates: bool = True) -> "NatsEngine":
        """Check the servers, connect, and create what the cluster needs, unless one only looks at a cluster.

        Raises `EngineUnavailable`, which may pass, and `EngineUnfit`, which does not.
        """
        check_name(options.cluster)
        await check(options)
        connection = await connect(options, options.login)
        try:
            engine = cls(connection, options)
            if creates:
                await engine._keys.ensure()
                await engine._files.ensure(options.max_file_bytes)
        except BaseException:
            await connection.close()
            raise
        return engine

    @classmethod
    async def open_bucket(cls, options: NatsOptions, copies: int) -> "NatsEngine":
        """Connect for keys and files only, to servers that need not be three, and of which each may be the only one.

        Raises as `open` does.
        """
        check_name(options.cluster)
        connection = await connect(options, options.login)
        try:
            engine = cls(connection, options)
            engine._bucket = options.max_file_bytes, copies
            await engine._ensure_bucket(*engine._bucket)
        except BaseException:
            await connection.close()
            raise
        return engine

    async def ensure_log(self, log: str, max_bytes: int) -> None:
        check_name(log)
        await ensure_stream(
            self._connection, self._stream(log), self._subject(log), max_bytes, allow_direct=True, deny_delete=True
        )
        self._begin(log)

    async def use_log(self, log: str) -> None:
        check_name(log)
        try:
            await info_of(self._connection, self._stream(log))
        except ApiError as error:
            if error.number == NO_STREAM:
                raise EngineUnfit(f"there is no cluster named {self._cluster!r} on this engine") from error
            raise self._connection.unavailable(str(error)) from error
        self._begin(log)

    async def append(self, log: str, expected: int, blob: bytes) -> int:
        check_blob(blob)
        known = self._known[log]
        try:
            sequence = await self._connection.store(
                self._subject(log), blob, {"Nats-Expected-Last-Sequence": str(expected)}
            )
        except ApiError as error:
            if error.number in WRONG_SEQUENCE:
                raise Fenced(log, expected, _last_in(error, known)) from error
            if error.number == STORE_FAILED and "maximum bytes" in str(error):
                raise LogFull(log) from error
            raise self._connection.unavailable(str(error)) from error
        self._note(log, sequence)
        return sequence

    async def read(self, log: str, first: int, count: int) -> list[Record]:
        known = self._known[log]
        first = max(first, self._trimmed[log])
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while True:
                    records, has_more = await self._read_of_any_copy(log, first, count)
                    end = records[-1].sequence if records else first - 1
                    if has_more or end >= known or (await self.bounds(log)).first > known:
                        break
                    await asyncio.sleep(LAGGING_RETRY_S)
        except TimeoutError:
            raise self._connection.unavailable("the copy that answers a read lags behind") from None
        self._note(log, end)
        return records

    async def bounds(self, log: str) -> Bounds:
        known = self._known[log]
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while True:
                    info = await self._info(log)
                    if info.state.last_seq >= known:
                        break
                    await asyncio.sleep(LAGGING_RETRY_S)
        except TimeoutError:
            raise self._connection.unavailable("a server leads the log that no longer should") from None
        state = info.state
        self._note(log, state.last_seq)
        first = state.first_seq if state.messages else state.last_seq + 1
        return Bounds(first, state.last_seq, state.bytes, info.config.max_bytes, info.away())

    async def follow(self, log: str, first: int) -> AsyncGenerator[Record, None]:
        # The copy that answers may not have heard of the last trim yet.
        first = max(first, self._trimmed[log])

        async def read(first: int) -> list[TailMessage]:
            return [
                TailMessage(sequence, self._subject(log), {}, blob, 0)
                for sequence, blob in await self.read(log, first, MAX_READ)
            ]

        async for message in Tail(self._connection, self._stream(log), self._subject(log), first, read).messages():
            if not isinstance(message, Waiting):
                self._note(log, message.sequence)
                yield Record(message.sequence, message.data)

    async def trim(self, log: str, before: int) -> None:
        try:
            await purge(self._connection, self._stream(log), {"seq": before})
        except ApiError as error:
            raise self._connection.unavailable(str(error)) from error
        self._trimmed[log] = max(self._trimmed[log], min(before, self._known[log] + 1))

    async def put(self, key: str, value: bytes, revision: int) -> int:
        check_key(key)
        check_blob(value)
        return await self._keys.put(key, value, revision)

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        return await self._in_bucket(lambda: self._keys.get(key))

    async def entries(self, prefix: str) -> list[Entry]:
        return await self._keys.entries(prefix)

    def watch(self, prefix: str) -> AsyncGenerator[Entry, None]:
        return self._keys.watch(prefix)

    async def reach(self) -> Reach:
        found = await asyncio.gather(*map(look_at, self._servers))
        self._connection.use_another()
        return Reach(len(found), found.count(Look.ANSWERS), found.count(Look.REFUSES))

    async def lead_elsewhere(self, log: str, server: str) -> None:
        (greeting,) = await greetings_of((server,))
        if greeting is None:
            return
        try:
            await lead_elsewhere(self._connection, self._stream(log), greeting.server_name)
            await self._keys.lead_elsewhere(greeting.server_name)
        except ApiError as error:
            raise self._connection.unavailable(str(error)) from error

    async def put_file(self, name: str, path: Path) -> None:
        check_name(name)
        await self._in_bucket(lambda: self._files.put(name, path))

    async def get_file(self, name: str, path: Path) -> None:
        check_name(name)
        await self._in_bucket(lambda: self._files.get(name, path))

    async def delete_file(self, name: str) -> None:
        check_name(name)
        await self._files.delete(name)

    async def close(self) -> None:
        await self._connection.close()

    async def _ensure_bucket(self, max_file_bytes: int, copies: int) -> None:
        await self._keys.ensure(copies)
        await self._files.ensure(max_file_bytes, copies)

    async def _in_bucket(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask; if the bucket of nodes is gone, make it again and ask once more."""
        try:
            return await ask()
        except StreamGone:
            if self._bucket is None:
                raise
            await self._ensure_bucket(*self._bucket)
            return await ask()

    async def _read_of_any_copy(self, log: str, first: int, count: int) -> tuple[list[Record], bool]:
        """What one copy has, and whether it has more than it was allowed to send."""
        request = msgspec.json.encode({"seq": first, "batch": count, "max_bytes": MAX_READ_BYTES})
        received: asyncio.Queue[Msg | None] = asyncio.Queue()
        records: list[Record] = []
        with self._connection.receiving(received.put_nowait) as reply:
            await self._connection.send(f"$JS.API.DIRECT.GET.{self._stream(log)}", request, reply)
            while True:
                message = await received.get()
                if message is None:
                    raise self._connection.unavailable("the connection was lost during a read")
                headers = message.headers or {}
                status = status_of(message)
                if status == END_OF_BATCH:
                    return records, int(headers.get("Nats-Num-Pending", "0")) > 0
                if status == 404:
                    return records, False
                if status:
                    raise self._connection.unavailable(headers.get("Description", f"status {status}"))
                sequence = int(headers["Nats-Sequence"])
                if records and sequence != records[-1].sequence + 1:
                    raise self._connection.unavailable("a record is missing in the copy that answers a read")
                records.append(Record(sequence, message.data))

    async def _info(self, log: str) -> StreamInfo:
        try:
            return await info_of(self._connection, self._stream(log))
        except ApiError as error:
            raise self._connection.unavailable(str(error)) from error

    def _begin(self, log: str) -> None:
        self._known.setdefault(log, 0)
        self._trimmed.setdefault(log, 1)

    def _note(self, log: str, sequence: int) -> None:
        self._known[log] = max(self._known[log], sequence)

    def _stream(self, log: str) -> str:
        return f"{self._cluster}-log-{log}"

    def _subject(self, log: str) -> str:
        return f"{self._cluster}.log.{log}"


def _last_in(error: ApiError, known: int) -> int:
    """The sequence that a refusal names; the highest that we know if it names none."""
    found = re.search(r"wrong last sequence: (\d+)", str(error))
    return int(found[1]) if found else known
