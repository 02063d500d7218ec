"""Keys in a stream that keeps the last message of each subject: what NATS calls a KV bucket, and its tools can read."""

import base64
from collections.abc import AsyncGenerator
from typing import Final, final

import msgspec

from mqttlite.engine.nats.connection import ApiError, NatsConnection
from mqttlite.engine.nats.streams import (
    COPIES,
    NO_STREAM,
    StreamGone,
    ensure_stream,
    info_of,
    lead_elsewhere,
)
from mqttlite.engine.nats.tail import Tail, Waiting
from mqttlite.engine.port import Entry, RevisionConflict

MAX_BYTES: Final = 64 * 1024 * 1024
"""Leases and positions of nodes need a few kB."""

NOT_FOUND: Final = 10037
WRONG_SEQUENCE: Final = frozenset({10071, 10164})

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
OPERATION: Final = "KV-Operation"
"""A header of what NATS's tools write in place of a key that they delete."""


class _Stored(msgspec.Struct):
    seq: int
    hdrs: str = ""
    data: str = ""


class _Found(msgspec.Struct):
    message: _Stored


@final
class NatsKeys:
    """The keys of a cluster."""

    def __init__(self, connection: NatsConnection, bucket: str) -> None:
        self._connection = connection
        self._bucket = bucket
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."

    async def ensure(self, copies: int = COPIES) -> None:
        """Create the bucket."""
        await ensure_stream(
            self._connection,
            self._stream,
            f"{self._prefix}>",
            MAX_BYTES,
            max_msgs_per_subject=1,
            deny_delete=True,
            allow_rollup_hdrs=True,
            num_replicas=copies,
            allow_direct=False,  # so that the leader answers, and no copy that lags
        )

    async def lead_elsewhere(self, server: str) -> None:
        """Let another server lead than the one with this name."""
        await lead_elsewhere(self._connection, self._stream, server)

    async def put(self, key: str, value: bytes, revision: int) -> int:
        try:
            return await self._store(key, value, revision)
        except RevisionConflict:
            if revision:
                raise
        entry = await self._last(key)  # a key that an operator deleted still has a revision
        if entry is None or entry.value is not None:
            raise RevisionConflict(key, revision)
        return await self._store(key, value, entry.revision)

    async def get(self, key: str) -> Entry | None:
        entry = await self._last(key)
        return entry if entry is not None and entry.value is not None else None

    async def entries(self, prefix: str) -> list[Entry]:
        """By the leader's list: what a new consumer says that it has to read may be 0 with keys in the stream."""
        try:
            info = await info_of(self._connection, self._stream, f"{self._prefix}>")
        except ApiError as error:
            raise self._connection.unavailable(str(error)) from error
        names = sorted(subject.removeprefix(self._prefix) for subject in info.state.subjects)
        found = [await self.get(name) for name in names if name.startswith(prefix)]
        return [entry for entry in found if entry is not None]

    async def watch(self, prefix: str) -> AsyncGenerator[Entry, None]:
        seen: set[str] = set()
        async for message in Tail(self._connection, self._stream, f"{self._prefix}>", 1).messages():
            if isinstance(message, Waiting):
                continue
            key = message.subject.removeprefix(self._prefix)
            if not key.startswith(prefix):
                continue
            if message.headers.get(OPERATION):
                if key in seen:
                    seen.discard(key)
                    yield Entry(key, None, message.sequence)
            else:
                seen.add(key)
                yield Entry(key, message.data, message.sequence)

    async def _store(self, key: str, value: bytes, revision: int) -> int:
        try:
            return await self._connection.store(self._prefix + key, value, {EXPECTED: str(revision)})
        except ApiError as error:
            if error.number in WRONG_SEQUENCE:
                raise RevisionConflict(key, revision) from error
            raise self._connection.unavailable(str(error)) from error

    async def _last(self, key: str) -> Entry | None:
        request = {"last_by_subj": self._prefix + key}
        try:
            found = (await self._connection.ask_api(f"STREAM.MSG.GET.{self._stream}", request, _Found)).message
        except ApiError as error:
            if error.number == NOT_FOUND:
                return None
            if error.number == NO_STREAM:
                raise StreamGone(self._stream) from error
            raise self._connection.unavailable(str(error)) from error
        is_deleted = OPERATION.encode() in base64.b64decode(found.hdrs)
        return Entry(key, None if is_deleted else base64.b64decode(found.data), found.seq)
