"""Checks the limit on open files for a listener: whether one more connection leaves enough files for everything else.

Neither event loop reports a shortage usefully: libuv silently closes a connection without a file, and asyncio stops to
accept for a second. Invariant: the log reports the beginning and the end of a shortage, the latter with a count.
"""

import asyncio
import contextlib
import logging
import os
import sys
from typing import Final

RESERVED_FILES: Final = 64
"""Open files reserved for other uses: password files, telemetry, the copy of a socket during a TLS handshake, and the
connections that uvloop accepts before we check. A quarter of the limit if that is below 256."""

CHECK_S: Final = 5.0
"""How long no connection must have been refused before a shortage counts as over."""

_log = logging.getLogger("mqttlite.net")


class FileLimit:
    """The limit for the connections of one listener. Before `open` and after `close` there is always room."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._limit = sys.maxsize
        self._probe: int | None = None
        """A file to duplicate: the duplicate gets the lowest free number."""
        self._turned_away = 0
        self._turned_away_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Read the system's limit. Raises `OSError` if no file is left."""
        self._limit = _soft_limit()
        self._probe = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """Stop, and log the end of a shortage. Harmless if it is not open."""
        if self._probe is not None:
            os.close(self._probe)
            self._probe = None
        if self._timer is not None:
            self._timer.cancel()
            self._report_end()

    def has_room(self) -> bool:
        """Whether one more connection leaves `RESERVED_FILES`."""
        if self._probe is None:
            return True
        try:
            lowest = os.dup(self._probe)
        except OSError:
            return False
        os.close(lowest)
        return lowest < self._limit - min(RESERVED_FILES, self._limit // 4)

    def turn_away(self) -> None:
        """Count a refused connection."""
        self._turned_away += 1
        if self._timer is None:
            _log.warning(
                "%s: the limit of %d open files is reached (ulimit -n, LimitNOFILE=): new connections are closed",
                self._name,
                self._limit,
            )
            self._watch()

    def _watch(self) -> None:
        self._turned_away_before = self._turned_away
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _check(self) -> None:
        if self.has_room() and self._turned_away == self._turned_away_before:
            self._report_end()
        else:
            self._watch()

    def _report_end(self) -> None:
        _log.warning("%s: %d connections were closed at the limit of open files", self._name, self._turned_away)
        self._timer = None
        self._turned_away = 0


def _soft_limit() -> int:
    with contextlib.suppress(ImportError):  # Windows has no such limit
        import resource

        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return soft
    return sys.maxsize
