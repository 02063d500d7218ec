"""Where a reader of a stream begins: `@earliest`, `@latest`, `@<time>` or `@<partition>:<offset>,…` behind its
name."""

import re
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

MARK: Final = "@"
"""Stands between the name of a stream and a position."""

_PLACE: Final = r"[0-9]{1,4}:[0-9]{1,18}"
_PLACES: Final = re.compile(f"((?P<others>[^,]+),)??(?P<places>{_PLACE}(,{_PLACE})*)")
_ONLY_PLACES: Final = re.compile(f"{_PLACE}(,{_PLACE})*")
_MICROSECONDS: Final = re.compile(r"[0-9]{1,18}")
_FORMS: Final = (
    "earliest, latest, a time (2026-11-28T10:00:00Z, or microseconds of Unix time) or <partition>:<offset>,…"
)

_LEAST_MICROSECONDS: Final = 100_000_000_000_000
"""A smaller number is a time in another unit, or a date: it would be one of before March 1973."""


class Start(Enum):
    """The kinds of positions."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIME = "time"


class Position(NamedTuple):
    """`time_us` is in microseconds of Unix time. `offsets` are pairs of a partition and an offset; `start` is about the
    other partitions."""

    start: Start
    time_us: int = 0
    offsets: tuple[tuple[int, int], ...] = ()


LATEST: Final = Position(Start.LATEST)
EARLIEST: Final = Position(Start.EARLIEST)


def parse_position(text: str) -> Position:
    """The position that a text means. Raises `ValueError` with a sentence."""
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    found = _PLACES.fullmatch(text)
    if found is None:
        return _time(text)
    pairs = [each.split(":") for each in found["places"].split(",")]
    offsets = {int(partition): int(offset) for partition, offset in pairs}
    if len(offsets) < len(pairs):
        raise ValueError(f"{text[:64]!r} has two offsets of one partition")
    others = found["others"]
    begins = LATEST if not others else EARLIEST if others == "earliest" else _time(others)
    return begins._replace(offsets=tuple(offsets.items()))


def parse_places(text: str) -> list[tuple[int, int]]:
    """Pairs of a partition and an offset, of which several may be in one partition. Raises `ValueError`."""
    if not _ONLY_PLACES.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is not of the form <partition>:<offset>,…")
    pairs = [each.split(":") for each in text.split(",")]
    return [(int(partition), int(offset)) for partition, offset in pairs]


def _time(text: str) -> Position:
    if _MICROSECONDS.fullmatch(text) and int(text) >= _LEAST_MICROSECONDS:
        return Position(Start.TIME, int(text))
    try:
        if text.isdecimal():
            raise ValueError
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:64]!r} is no position: it is {_FORMS}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // _ONE
    return Position(Start.TIME, max(0, micros))


_ONE: Final = datetime.resolution
