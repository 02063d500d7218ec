"""How many seeds of a long search one run plays: a sixteenth, and another one each day.

Most searches also have a short form with fixed seeds, which each run plays. With `MQTTLITE_ROUNDS=all` one run plays
all seeds: use it after a change of what is searched.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

PARTS: Final = 16

ROUNDS: Final = os.environ.get("MQTTLITE_ROUNDS", "")

T = TypeVar("T")


def todays(seeds: Sequence[T], parts: int = PARTS) -> Sequence[T]:
    """One seed of each `parts`, or one of all where there are fewer; which one depends on the date."""
    if ROUNDS == "all":
        return seeds
    parts = min(parts, len(seeds))
    return seeds[turn(datetime.now(UTC).toordinal()) % parts :: parts]


def turn(day: int) -> int:
    """The number of a day, made such that a file that runs every second or fourth day (`turns.py`) comes to each seed,
    too."""
    return day + day // 4


def rounds(count: int) -> int:
    """The number of examples for hypothesis, which makes new ones in each run."""
    return count if ROUNDS == "all" else max(1, count // PARTS)
