"""The bridges that were added while the broker ran, in a file of the data directory, so that a restart has them.

Invariant: the file has a bridge before it begins to connect, and has it no more before its session ends.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.config import ConfigError
from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.files import atomic_file

FILE_NAME: Final = "bridges.json"
"""Only the user of the broker may read it, for it has passwords. Backups contain it, as all `*.json`."""


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    bridges: list[BridgeOptions]


class AddedBridges:
    """`data_dir` is None for a broker that keeps nothing."""

    def __init__(self, data_dir: str | None) -> None:
        self._path: Final = None if not data_dir else Path(data_dir, FILE_NAME)

    def load(self) -> list[BridgeOptions]:
        """Raises `ConfigError`."""
        if self._path is None or not self._path.exists():
            return []
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Content).bridges
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"data_dir: {self._path} cannot be used: {error}") from None

    def save(self, bridges: Iterable[BridgeOptions]) -> None:
        """Raises `OSError`."""
        if self._path is not None:
            atomic_file.save(self._path, msgspec.json.format(msgspec.json.encode(_Content(list(bridges)))) + b"\n")
