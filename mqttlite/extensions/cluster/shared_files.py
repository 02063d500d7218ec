"""The files beside the database that commands and the HTTP API write, such as users and topics: the machine that serves
puts what has changed into the engine, and the next one fetches it before it serves.

They are the `*.json` files of the data directory, as for backups. Invariant: a file here that has changed since it was
put or fetched is not replaced; it is newer than what the engine has, and the next to be put.
"""

import asyncio
import contextlib
import hashlib
import logging
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.atomic_file import save
from mqttlite.extensions.cluster import keys
from mqttlite.extensions.cluster.engine.port import Engine, EngineError

PUT_S: Final = 1.0
"""The interval in which the serving machine looks for changed files: what a crash may undo of such changes."""

KNOWN_FILE: Final = "cluster-files"
"""What was put or fetched: the digests of files, by name."""

_PREFIX: Final = "beside-"
"""The engine's names of these files are it and their digests."""

_log = logging.getLogger("mqttlite.cluster")


class SharedFiles:
    """Of the machine with this data directory."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._known: dict[str, str] = {}
        self._looked_at: Final[dict[str, tuple[int, int]]] = {}
        """The time and size of files when they were last read."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._known = msgspec.json.decode((directory / KNOWN_FILE).read_bytes(), type=dict[str, str])

    async def fetch(self) -> None:
        """Replace the files that other machines have changed. Raises `EngineError` and `OSError`."""
        for entry in await self._engine.entries(keys.FILES):
            name, digest = entry.key.removeprefix(keys.FILES), (entry.value or b"").decode()
            if self._known.get(name) == digest:
                continue
            path = self._directory / f"{name}.json"
            fetched = path.with_name(f"{path.name}.fetched")
            try:
                await self._engine.get_file(_PREFIX + digest, fetched)
                content = await asyncio.to_thread(fetched.read_bytes)
            finally:
                fetched.unlink(missing_ok=True)
            await asyncio.to_thread(save, path, content)
            _log.info("%s was changed on another machine, and is the same here now", path.name)
            await self._know(name, digest)

    async def keep_put(self) -> None:
        """Put files that have changed, until it is cancelled."""
        while True:
            try:
                await self._put_changed()
            except (EngineError, OSError) as error:
                _log.warning("files could not be given to the other machines, trying again: %s", error)
            await asyncio.sleep(PUT_S)

    async def _put_changed(self) -> None:
        for path in sorted(self._directory.glob("*.json")):
            state = path.stat()
            seen = state.st_mtime_ns, state.st_size
            name = path.stem
            if self._looked_at.get(name) == seen:
                continue
            digest = _digest(name, await asyncio.to_thread(path.read_bytes))
            if self._known.get(name) != digest:
                await self._put(name, digest, path)
                await self._know(name, digest)
            self._looked_at[name] = seen

    async def _put(self, name: str, digest: str, path: Path) -> None:
        """Give the engine a file, say which it is, then remove the one before: a crash leaves one that is whole."""
        await self._engine.put_file(_PREFIX + digest, path)
        entry = await self._engine.get(keys.FILES + name)
        await self._engine.put(keys.FILES + name, digest.encode(), 0 if entry is None else entry.revision)
        if entry is not None and entry.value is not None and entry.value.decode() != digest:
            await self._engine.delete_file(_PREFIX + entry.value.decode())

    async def _know(self, name: str, digest: str) -> None:
        self._known[name] = digest
        await asyncio.to_thread(save, self._directory / KNOWN_FILE, msgspec.json.encode(self._known))


def _digest(name: str, content: bytes) -> str:
    """Names a file with its content: files of other names have others."""
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()
