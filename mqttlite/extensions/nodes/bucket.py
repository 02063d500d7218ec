"""The bucket in NATS with the documents that all nodes have: a key for each, with its revision.

A small document is the value of its key. A larger one is a file of the engine, which the value names by its digest.
Invariant: what `content` returns has the digest that the value of the key tells.
"""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from mqttlite.extensions.cluster.engine.port import EngineError, FileDamaged

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.engine.port import Engine

KEYS: Final = "shared."
"""Keys of documents begin with it; the name of the document follows."""

FILES: Final = "shared-"
"""Names of the files of large documents begin with it; the digest follows."""

MAX_INLINE_BYTES: Final = 262_144
"""The largest document that is the value of its key: NATS takes a megabyte, and keeps 64 MiB of keys."""

MAX_DOCUMENT_BYTES: Final = 67_108_864
"""The largest file of users. A larger one of schemas or topics is not shared."""

MAX_FILES_BYTES: Final = 536_870_912
"""The room for the files of large documents: the older one goes when the newer one is whole."""


class BrokenDocument(Exception):
    """A value that no node has stored. The text says what is wrong with it."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    version: Literal[1]
    node: str
    at: float
    digest: str
    content: bytes | None
    """None: it is a file."""


class Found(NamedTuple):
    """A document in the bucket: its revision, the node that stored it, and its digest."""

    name: str
    revision: int
    node: str
    digest: str
    inline: bytes | None


class Bucket:
    """The documents that `node` and the other nodes have."""

    def __init__(self, engine: "Engine", node: str) -> None:
        self._engine: Final = engine
        self._node: Final = node
        self._large: Final[dict[str, str]] = {}
        """The digests of documents that are files, by name."""

    async def get(self, name: str) -> Found | None:
        """The present document; None if there is none. Raises `EngineError` and `BrokenDocument`."""
        entry = await self._engine.get(KEYS + name)
        if entry is None or entry.value is None:
            return None
        try:
            stored = msgspec.msgpack.decode(entry.value, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BrokenDocument(f"its revision {entry.revision} was stored by no node") from None
        if stored.content is not None and digest_of(name, stored.content) != stored.digest:
            raise BrokenDocument(f"its revision {entry.revision} has another digest than node {stored.node} stored")
        if stored.content is None:
            self._large[name] = stored.digest
        return Found(name, entry.revision, stored.node, stored.digest, stored.content)

    async def content(self, found: Found) -> bytes:
        """The content of a document. Raises `EngineError`."""
        if found.inline is not None:
            return found.inline
        with _temporary() as path:
            await self._engine.get_file(FILES + found.digest, path)
            content = await asyncio.to_thread(path.read_bytes)
        if await asyncio.to_thread(digest_of, found.name, content) != found.digest:
            raise FileDamaged(FILES + found.digest)
        return content

    async def put(self, name: str, content: bytes, revision: int) -> int:
        """Store the next document after that of a revision (0: there is none), and return its revision. Raises
        `EngineError`; it is stored as well if NATS has it although its answer was lost."""
        digest = await asyncio.to_thread(digest_of, name, content)
        former, is_large = self._large.get(name), len(content) > MAX_INLINE_BYTES
        if is_large and former != digest:
            with _temporary() as path:
                await asyncio.to_thread(path.write_bytes, content)
                await self._engine.put_file(FILES + digest, path)
        value = msgspec.msgpack.encode(_Stored(1, self._node, time.time(), digest, None if is_large else content))
        try:
            stored = await self._engine.put(KEYS + name, value, revision)
        except EngineError:
            entry = await self._engine.get(KEYS + name)
            if entry is None or entry.value != value:
                raise
            stored = entry.revision
        self._large.pop(name, None)
        if is_large:
            self._large[name] = digest
        if former is not None and former != digest:
            with suppress(EngineError):
                await self._engine.delete_file(FILES + former)
        return stored


def digest_of(name: str, content: bytes) -> str:
    """Names a document with its content: documents of other names have others."""
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()


@contextmanager
def _temporary() -> Iterator[Path]:
    """A file that only this user may read."""
    number, name = tempfile.mkstemp(prefix="mqttlite-")
    os.close(number)
    try:
        yield Path(name)
    finally:
        os.unlink(name)
