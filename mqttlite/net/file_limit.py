"""The limit on open files, seen from a listener: whether one more connection leaves enough of them for the rest.

Neither loop reports it in time: libuv closes a connection for which there is no file and says nothing, asyncio accepts
nobody for a second. Invariant: of a shortage the log tells the beginning and, with its count, the end.
"""

import asyncio
import contextlib
import logging
import os
import sys
from typing import Final

RESERVED_FILES: Final = 64
"""Open files that connections leave: for password files, telemetry, the copy of a socket that a TLS handshake takes,
and the connections that uvloop accepts before it asks. Where the limit is below 256, a quarter of it."""

CHECK_S: Final = 5.0
"""How long nobody must have been turned away before a shortage counts as over: at the limit, clients come and go."""

_log = logging.getLogger("mqttlite.net")


class FileLimit:
    """The limit for the connections of one listener. Before `open` and after `close` there is room for everybody."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._limit = sys.maxsize
        self._probe: int | None = None
        """A file to copy: the copy has the lowest number that is free."""
        self._turned_away = 0
        self._turned_away_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Ask the system for its limit. Raises `OSError` where no file is left."""
        self._limit = _soft_limit()
        self._probe = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """End, with a last line if there is a shortage; harmless when it is not open."""
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
        """Count a connection for which there was no room."""
        self._turned_away += 1
        if self._timer is None:
            _log.warning(
                "%s: the limit of %d open files is reached (ulimit -n, LimitNOFILE=): new connections are closed",
                *(self._name, self._limit),
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
