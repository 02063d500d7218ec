"""`KnownFile`: which revision of each document the files here have, kept over restarts.

Invariant: what is in it was true of the files; a crash leaves an older revision than they have, which is harmless.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.extensions.nodes.held_document import HeldDocument, KnownDocument
from mqttlite.files.atomic_file import save

KNOWN_FILE: Final = "nodes-shared"
"""In the data directory: which revision of each document the files here have. No `*.json`, of which backups and the
machines of a cluster have copies: beside an older copy of another file it would say of that that it was edited."""

_log = logging.getLogger("mqttlite.nodes")


class KnownFile:
    """Without `data_dir` nothing is known of what there was before the start."""

    def __init__(self, data_dir: str | None) -> None:
        self._path: Final = None if data_dir is None else Path(data_dir, KNOWN_FILE)
        self._saving: Final = asyncio.Lock()
        self.saved: Mapping[str, KnownDocument] = self._load()
        """By the name of a document."""

    def _load(self) -> dict[str, KnownDocument]:
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, KnownDocument])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.error(
                "%s cannot be used, so files that differ from those of other nodes give way: %s", KNOWN_FILE, error
            )
            return {}

    async def save(self, documents: Iterable[HeldDocument], name: str = "", known: KnownDocument | None = None) -> None:
        """What is known of files that were seen. With a name, `known` is known of that document."""
        if self._path is None:
            return
        async with self._saving:
            changed = dict(self.saved)
            for each in documents:
                if each.is_verified and each.known is not None:
                    changed[each.name] = each.known
            if known is not None:
                changed[name] = known
            if changed == self.saved:
                return
            try:
                await asyncio.to_thread(save, self._path, msgspec.json.encode(changed))
                self.saved = changed
            except OSError as error:
                _log.error("%s cannot be written: %s", self._path, error.strerror)
