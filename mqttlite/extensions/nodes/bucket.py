"""The bucket in NATS with the documents that all nodes have: a key for each.

A document has an *epoch*, a random name of the bucket's life in which it was begun, and a *number*, which grows by one
with each change, also in the next bucket after one that was lost. The revision of the key is for compare-and-set only.
A small document is the value of its key. A larger one is a file of the engine, which the value names.
Invariant: what `content` returns has the digest that the value of the key tells.
"""

import asyncio
import hashlib
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mqttlite.engine.port import EngineError, FileDamaged, NoSuchFile, RevisionConflict

if TYPE_CHECKING:
    from mqttlite.engine.port import Engine

KEYS: Final = "shared."
"""Keys of documents begin with it; the name of the document follows."""

FILES: Final = "shared-"
"""Names of the files of large documents begin with it; a part of the digest and a random name follow, so that no two
changes have one file."""

MAX_INLINE_BYTES: Final = 262_144
"""The largest document that is the value of its key: NATS takes a megabyte, and keeps 64 MiB of keys."""

MAX_DOCUMENT_BYTES: Final = 67_108_864
"""The largest file of users. A larger one of schemas or topics is not shared."""

MAX_FILES_BYTES: Final = 536_870_912
"""The room for the files of large documents: the older one goes when the newer one is whole."""


VERSION: Final = 1
"""Of the values of keys."""


class BrokenDocument(Exception):
    """A document that cannot be used. The text says what is wrong with it."""


class NewerDocument(BrokenDocument):
    """A document of a newer version of mqttlite."""


class _Versioned(msgspec.Struct, frozen=True, array_like=True):
    """What is the same in values of all versions."""

    version: int
    node: str


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    version: int
    node: str
    at: float
    epoch: str
    number: int
    digest: str
    content: bytes | None
    """None: it is a file."""
    file: str


class Found(NamedTuple):
    """A document in the bucket, the revision of its key, and the node that stored it."""

    name: str
    revision: int
    node: str
    epoch: str
    number: int
    digest: str
    inline: bytes | None
    file: str


class Bucket:
    """The documents that `node` and the other nodes have."""

    def __init__(self, engine: "Engine", node: str) -> None:
        self._engine: Final = engine
        self._node: Final = node
        self._large: Final[dict[str, str]] = {}
        """The files of large documents, by the name of the document."""

    async def get(self, name: str) -> Found | None:
        """The present document; None if there is none. Raises `EngineError` and `BrokenDocument`."""
        entry = await self._engine.get(KEYS + name)
        if entry is None or entry.value is None:
            return None
        try:
            newer = msgspec.msgpack.decode(entry.value, type=_Versioned)
            if newer.version > VERSION:
                raise NewerDocument(
                    f"node {newer.node} has stored it in version {newer.version}, and this node knows {VERSION}"
                )
            stored = msgspec.msgpack.decode(entry.value, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BrokenDocument(f"its revision {entry.revision} was stored by no node") from None
        if stored.content is not None and digest_of(name, stored.content) != stored.digest:
            raise BrokenDocument(f"its revision {entry.revision} has another digest than node {stored.node} stored")
        self._large.pop(name, None)
        if stored.content is None:
            self._large[name] = stored.file
        return Found(
            *(name, entry.revision, stored.node, stored.epoch, stored.number),
            *(stored.digest, stored.content, stored.file),
        )

    async def content(self, found: Found) -> bytes:
        """The content of a document. Raises `EngineError`, and `BrokenDocument` if its file is lost."""
        if found.inline is not None:
            return found.inline
        try:
            with _temporary() as path:
                await self._engine.get_file(found.file, path)
                content = await asyncio.to_thread(path.read_bytes)
            if await asyncio.to_thread(digest_of, found.name, content) != found.digest:
                raise FileDamaged(found.file)
        except (NoSuchFile, FileDamaged) as error:
            present = await self.get(found.name)
            if present is None or present.revision != found.revision:  # so its file went
                raise RevisionConflict(KEYS + found.name, found.revision) from None
            raise BrokenDocument(f"its content is lost: {error}") from None
        return content

    async def put(self, name: str, content: bytes, epoch: str, number: int, revision: int) -> Found:
        """Store a document in place of that of a revision of its key (0: there is none). Raises `EngineError`; it is
        stored as well if NATS has it although its answer was lost."""
        digest = await asyncio.to_thread(digest_of, name, content)
        former, file, inline = self._large.get(name), "", content if len(content) <= MAX_INLINE_BYTES else None
        if inline is None:
            file = f"{FILES}{digest[:16]}-{secrets.token_hex(8)}"
            with _temporary() as path:
                await asyncio.to_thread(path.write_bytes, content)
                await self._engine.put_file(file, path)
        stored = _Stored(VERSION, self._node, time.time(), epoch, number, digest, inline, file)
        value = msgspec.msgpack.encode(stored)
        try:
            revision = await self._engine.put(KEYS + name, value, revision)
        except EngineError:
            entry = await self._engine.get(KEYS + name)
            if entry is None or entry.value != value:
                if file and (0 if entry is None else entry.revision) != revision:  # so it never will be stored
                    await self._delete(file)
                raise
            revision = entry.revision
        self._large.pop(name, None)
        if file:
            self._large[name] = file
        if former is not None:
            await self._delete(former)
        return Found(name, revision, self._node, epoch, number, digest, inline, file)

    async def _delete(self, file: str) -> None:
        with suppress(EngineError):
            await self._engine.delete_file(file)


def digest_of(name: str, content: bytes) -> str:
    """Names a document with its content: documents of other names have others."""
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()


@contextmanager
def _temporary() -> Iterator[Path]:
    """A place for a file in a folder that only this user may read. The folder goes afterwards, with what a fetch that
    broke off has left beside the file."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as folder:
        yield Path(folder) / "document"
