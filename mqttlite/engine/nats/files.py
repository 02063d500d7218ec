"""Files in a stream, in the layout of NATS's object store, so that its tools can read them.

A file is a row of chunks of one subject, and a message that describes it: while a file is being stored, the older one
with its own chunks is still described. Each chunk names the sequence of the chunk before it, so a chunk that got no
answer can be sent again without being stored twice. (nats-py has an object store, too: it waits for ever for a chunk
that is missing, and keeps chunks that nobody describes.)
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from secrets import token_hex
from typing import Final, ParamSpec, TypeVar, final

import msgspec

from mqttlite.engine.nats.connection import ApiError, NatsConnection
from mqttlite.engine.nats.part import Part
from mqttlite.engine.nats.streams import COPIES, NO_STREAM, StreamGone, ensure_stream, info_of, purge
from mqttlite.engine.nats.tail import Tail, Waiting
from mqttlite.engine.port import EngineUnavailable, FileDamaged, NoSuchFile

T = TypeVar("T")
P = ParamSpec("P")

CHUNK_BYTES: Final = 512 * 1024
"""One in memory at a time when storing; as much as the largest part of a record."""

PATIENCE_S: Final = 30.0
"""Without progress for so long a transfer is given up. The death of a leader takes 4 to 9 s."""

RETRY_S: Final = 0.2

NOT_FOUND: Final = 10037
WRONG_SEQUENCE: Final = frozenset({10071, 10164})
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"

DIGEST: Final = "SHA-256="


class _Description(msgspec.Struct):
    name: str
    bucket: str
    nuid: str
    size: int
    chunks: int
    digest: str = ""
    mtime: str = ""
    deleted: bool = False


class _Stored(msgspec.Struct):
    data: str = ""
    seq: int = 0


class _Found(msgspec.Struct):
    message: _Stored


@final
class NatsFiles:
    """The files of a cluster. One writer at a time for a name."""

    def __init__(self, connection: NatsConnection, bucket: str) -> None:
        self._connection = connection
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"

    async def ensure(self, max_bytes: int, copies: int = COPIES) -> None:
        """Create the bucket."""
        await ensure_stream(
            self._connection,
            self._stream,
            f"$O.{self._bucket}.>",
            max_bytes,
            num_replicas=copies,
            allow_rollup_hdrs=True,
            allow_direct=False,
        )

    async def put(self, name: str, path: Path) -> None:
        older = await self._description(name)
        await self._purge_orphans(name, older.nuid if older is not None else "")
        nuid = f"{name}~{token_hex(11)}"
        digest = hashlib.sha256()
        size = chunks = last = 0
        with await asyncio.to_thread(open, path, "rb") as file:
            while chunk := await asyncio.to_thread(_read_chunk, file, digest):
                last = await self._store(self._chunks(nuid), chunk, last)
                size += len(chunk)
                chunks += 1
        encoded = DIGEST + base64.urlsafe_b64encode(digest.digest()).decode()
        mtime = datetime.now(UTC).isoformat()
        await self._describe(_Description(name, self._bucket, nuid, size, chunks, encoded, mtime))
        if older is not None:
            await self._purge(self._chunks(older.nuid))

    async def get(self, name: str, path: Path) -> None:
        description = await self._description(name)
        if description is None:
            raise NoSuchFile(name)
        while True:
            part = await _on_disk(Part, path, description.nuid)
            was_begun = part.chunks > 0
            try:
                await self._receive(description, part)
                if DIGEST + base64.urlsafe_b64encode(part.digest).decode() == description.digest:
                    await _on_disk(part.finish)
                    return
                await _on_disk(part.discard)
            except FileDamaged:
                await _on_disk(part.discard)
                raise
            finally:
                await _on_disk(part.close)
            if not was_begun:  # otherwise it may be the disk here that has damaged it
                raise FileDamaged(name)

    async def delete(self, name: str) -> None:
        description = await self._description(name)
        if description is None:
            return
        await self._describe(_Description(name, self._bucket, "", 0, 0, deleted=True))
        await self._purge(self._chunks(description.nuid))

    async def _receive(self, description: _Description, part: Part) -> None:
        """Get the chunks that are missing. A reader that does not get on looks whether it still can. The engine may
        have been away: only chunks that are gone while the file is there are damage."""
        if part.chunks >= description.chunks:
            return
        subject = self._chunks(description.nuid)
        messages = Tail(self._connection, self._stream, subject, part.sequence + 1).messages()
        moved_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(PATIENCE_S) as patience:
                async for message in messages:
                    if isinstance(message, Waiting):
                        continue
                    await _on_disk(part.add, message.data, message.sequence)
                    if part.chunks == description.chunks:
                        return
                    moved_at = asyncio.get_running_loop().time()
                    patience.reschedule(moved_at + PATIENCE_S)
        except TimeoutError:
            pass
        finally:
            await messages.aclose()
        found = await self._insist(lambda: info_of(self._connection, self._stream, subject))
        stored = await self._stored(description.name)  # after the chunks: another transfer removes them later
        if stored is not None and stored[0].nuid == description.nuid:
            # The description is behind all chunks: a leader whose copy ends before it lags, and has not lost them.
            is_whole = found.state.last_seq >= stored[1]
            if is_whole and found.state.subjects.get(subject, 0) < description.chunks:
                raise FileDamaged(description.name)
            raise self._connection.unavailable(f"nothing of the file {description.name!r} came for {PATIENCE_S:g} s")
        raise self._connection.unavailable(f"the file {description.name!r} was replaced while it was read")

    async def _store(self, subject: str, payload: bytes, last: int) -> int:
        """Store one chunk after the last one."""

        async def store() -> int:
            try:
                return await self._connection.store(subject, payload, {EXPECTED: str(last)})
            except ApiError as error:
                if error.number not in WRONG_SEQUENCE:
                    raise
            found = await self._last_of(subject)  # it was stored, and only the answer was lost
            if found is None:
                raise self._connection.unavailable("another transfer removed the chunks of this one")
            return found.seq

        return await self._insist(store)

    async def _describe(self, description: _Description) -> None:
        subject = self._meta(description.name)
        content = msgspec.json.encode(description)
        await self._insist(lambda: self._connection.store(subject, content, {"Nats-Rollup": "sub"}))

    async def _description(self, name: str) -> _Description | None:
        stored = await self._stored(name)
        return None if stored is None else stored[0]

    async def _stored(self, name: str) -> tuple[_Description, int] | None:
        """The description of a file, and its sequence in the stream."""
        found = await self._insist(lambda: self._last_of(self._meta(name)))
        if found is None:
            return None
        description = msgspec.json.decode(base64.b64decode(found.data), type=_Description)
        return None if description.deleted else (description, found.seq)

    async def _last_of(self, subject: str) -> _Stored | None:
        request = {"last_by_subj": subject}
        try:
            return (await self._connection.ask_api(f"STREAM.MSG.GET.{self._stream}", request, _Found)).message
        except ApiError as error:
            if error.number == NOT_FOUND:
                return None
            raise

    async def _purge(self, subject: str) -> None:
        await self._insist(lambda: purge(self._connection, self._stream, {"filter": subject}))

    async def _insist(self, request: Callable[[], Awaitable[T]]) -> T:
        """Ask again and again what may be asked twice, until there is an answer. A new leader takes some seconds."""
        give_up_at = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await request()
            except ApiError as error:
                if error.number == NO_STREAM:
                    raise StreamGone(self._stream) from error
                raise self._connection.unavailable(str(error)) from error
            except EngineUnavailable:
                if self._connection.is_closed or asyncio.get_running_loop().time() > give_up_at:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _purge_orphans(self, name: str, present: str) -> None:
        """Remove the chunks of transfers that a crash ended."""
        chunks = self._chunks("")
        found = await self._insist(lambda: info_of(self._connection, self._stream, f"{chunks}*"))
        for subject in found.state.subjects:
            nuid = subject.removeprefix(chunks)
            if nuid.startswith(f"{name}~") and nuid != present:
                await self._purge(subject)

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self._bucket}.C.{nuid}"

    def _meta(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


async def _on_disk(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work in a thread. A transfer that is cancelled ends after it, so that nothing touches the files any more."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait({running})


def _read_chunk(file: BufferedIOBase, digest: "hashlib._Hash") -> bytes:
    chunk = file.read(CHUNK_BYTES)
    digest.update(chunk)
    return chunk
