"""aiohttp's protocol of a connection, with a limit of interim answers (1xx).

A server may send any number of them before its answer, and aiohttp reads all that a chunk has before anything else
runs: an endpoint that answered 102 for ever held the loop up for seconds. Invariant: between two answers that end a
request there are at most `MAX_INTERIM` others, and no call reads more than `PIECE_BYTES` of them.
"""

from typing import Any, Final

from aiohttp import ClientPayloadError
from aiohttp.client_proto import ResponseHandler

MAX_INTERIM: Final = 10
"""Servers send one or two (100, 103)."""

PIECE_BYTES: Final = 4_096
"""Some 200 of the shortest answers, which take three milliseconds."""

_SWITCHING_PROTOCOLS: Final = 101


class LimitedAnswers(ResponseHandler):
    """One connection."""

    _interim = 0

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            if self._interim > MAX_INTERIM:
                return
            super().data_received(data[at : at + PIECE_BYTES])

    def feed_data(self, data: Any, size: int = 0) -> None:
        status = data[0].code
        if self._interim > MAX_INTERIM:
            return
        if not 100 <= status <= 199 or status == _SWITCHING_PROTOCOLS:
            self._interim = 0
        else:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self.close()  # which forgets an exception
                self.set_exception(ClientPayloadError(f"more than {MAX_INTERIM} interim answers"))
                return
        super().feed_data(data, size)
