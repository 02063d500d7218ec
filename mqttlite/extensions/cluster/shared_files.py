"""The files beside the database that commands and the HTTP API write, such as users and topics: the machine that serves
puts what has changed into the engine, and the next one fetches it before it serves.

They are the `*.json` files of the data directory, as for backups. Invariant: no change is lost without a word. A file
here that has changed since it was put or fetched is the next to be put, unless another machine has changed it too: then
that machine's takes its place, and it is kept beside as `<name>.json.replaced` until the next one is.
"""

import asyncio
import contextlib
import hashlib
import logging
import re
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.engine.port import Engine, EngineError, FileDamaged, NoSuchFile
from mqttlite.extensions.cluster import keys
from mqttlite.extensions.cluster.trouble import Trouble
from mqttlite.files.atomic_file import save
from mqttlite.store.sqlite import beside

PUT_S: Final = 1.0
"""The interval in which the serving machine looks for changed files: what a crash may undo of such changes."""

KNOWN_FILE: Final = "cluster-files"
"""What was put or fetched: the digests of files, by name."""

TRIES: Final = 3
"""How often a file is fetched that the engine does not have whole. Then this machine goes on with its own."""

_PREFIX: Final = "beside-"
"""The engine's names of these files are it and their digests."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

_log = logging.getLogger("mqttlite.cluster")


class SharedFiles:
    """Of the machine with this data directory."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._known: dict[str, str] = {}
        self._looked_at: Final[dict[str, tuple[int, int]]] = {}
        """The time and size of files when they were last read."""
        self._failures: Final[dict[str, int]] = {}
        """How often the engine did not have a file whole, by its name."""
        self._trouble: Final = Trouble(
            _log, "changed files cannot be given to the other machines", "the other machines have all changed files"
        )
        self._refused: Final[set[str]] = set()
        """The names that are not shared, and were logged."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._known = msgspec.json.decode((directory / KNOWN_FILE).read_bytes(), type=dict[str, str])

    async def fetch(self) -> None:
        """Replace the files that other machines have changed. Raises `EngineError` and `OSError`: fetch again."""
        for entry in await self._engine.entries(keys.FILES):
            name, digest = entry.key.removeprefix(keys.FILES), (entry.value or b"").decode(errors="replace")
            path = self._directory / f"{name}.json"
            if self._known.get(name) == digest or not self._is_shared(f"{name}.json") or not _DIGEST.fullmatch(digest):
                continue
            try:
                await self._fetch(name, digest, path)
                self._failures.pop(name, None)
            except (NoSuchFile, FileDamaged) as error:
                self._failures[name] = self._failures.get(name, 0) + 1
                if self._failures[name] < TRIES:
                    raise
                del self._failures[name]
                _log.error("%s was changed on another machine, and is not here: %s", path.name, error)

    async def _fetch(self, name: str, digest: str, path: Path) -> None:
        fetched = path.with_name(f"{path.name}.fetched")
        try:
            await self._engine.get_file(_PREFIX + digest, fetched)
            content = await asyncio.to_thread(fetched.read_bytes)
        finally:
            fetched.unlink(missing_ok=True)
        await asyncio.to_thread(self._keep_changed, name, digest, path)
        await asyncio.to_thread(save, path, content)
        _log.info("%s was changed on another machine, and is the same here now", path.name)
        await self._know(name, digest)

    def _keep_changed(self, name: str, digest: str, path: Path) -> None:
        """Keep a file beside that has changed here too, and is about to be replaced."""
        try:
            present = path.read_bytes()
        except FileNotFoundError:
            return
        if _digest(name, present) not in (self._known.get(name), digest):
            kept = path.with_name(f"{path.name}.replaced")
            save(kept, present)
            _log.warning("%s was changed here and on another machine: what was here is in %s", path.name, kept.name)

    def _is_shared(self, file_name: str) -> bool:
        """Whether files of this name are shared. Of one that is not, the log says so once."""
        is_shared = beside.NAME.fullmatch(file_name) is not None
        if not is_shared and file_name not in self._refused:
            self._refused.add(file_name)
            _log.warning("%r is not shared with the other machines: no file of a broker has such a name", file_name)
        return is_shared

    async def keep_put(self) -> None:
        """Put files that have changed, until it is cancelled."""
        while True:
            try:
                await self._put_changed()
                self._trouble.worked()
            except (EngineError, OSError) as error:
                self._trouble.failed(error)
            await asyncio.sleep(PUT_S)

    async def _put_changed(self) -> None:
        for path in sorted(self._directory.glob("*.json")):
            if not self._is_shared(path.name):
                continue
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
