"""Keeps the log readable, and small, whatever comes over the network.

Who may connect may be refused, thousands of times a second, and each refusal is a line. Invariant: of lines of one
kind no more than `LINES_PER_S` leave in a second, and what was left out is counted in the next that does.
"""

import logging
from typing import Final

LINES_PER_S: Final = 100
"""Warnings and errors of one kind: more than anybody reads, and 1 GB a day at the worst."""


class Calm(logging.Filter):
    """For a handler. A kind is the place in the code that a line comes from; lines below a warning are all let through,
    for they are about clients that were let in."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: Final[dict[tuple[str, int], _Kind]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        place = record.pathname, record.lineno
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = _Kind()
        if record.created >= kind.until or record.created < kind.until - 1:  # the clock may have been set back
            kind.until = record.created + 1
            kind.lines = 0
        kind.lines += 1
        if kind.lines > LINES_PER_S:
            kind.left_out += 1
            return False
        if kind.left_out:
            record.msg = f"{record.msg} ({kind.left_out} more like this were left out before)"
            kind.left_out = 0
        return True


class _Kind:
    __slots__ = ("left_out", "lines", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.lines = 0
        self.left_out = 0
