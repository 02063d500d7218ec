"""The address of the latest connection of a bridge with several addresses, kept over a restart.

Invariant: the file names an address only after what this broker knew of the one before is forgotten. A crash in between
then repeats messages, and loses none.
"""

import logging
from pathlib import Path
from typing import Final

from mqttlite.extensions.bridge.options import Endpoint
from mqttlite.files import atomic_file

_log = logging.getLogger("mqttlite.bridge")


class LastAddress:
    """`path` is None if there is one address alone, or no data directory. Raises `OSError` and `UnicodeDecodeError`."""

    def __init__(self, endpoints: tuple[Endpoint, ...], path: Path | None) -> None:
        self._path: Final = path
        self._kept = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        self.endpoint: Endpoint | None = None
        """None if it is not known."""
        if len(endpoints) == 1:
            self.endpoint = endpoints[0]
        for each in endpoints:
            if _line(each) == self._kept:
                self.endpoint = each

    def keep(self) -> None:
        """Write it to the file, if it has changed."""
        if self._path is None or self.endpoint is None or _line(self.endpoint) == self._kept:
            return
        line = _line(self.endpoint)
        try:
            atomic_file.save(self._path, line.encode())
        except OSError as error:
            _log.warning("%s cannot be written, so QoS 2 may repeat after a restart: %s", self._path, error)
        else:
            self._kept = line


def _line(endpoint: Endpoint) -> str:
    path = f" {endpoint.path}" if endpoint.path else ""
    return f"{endpoint.host} {endpoint.port}{path}\n"
