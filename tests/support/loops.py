"""uvloop where it is installed: the broker runs without it, and so do the tests."""

import asyncio
import os
import zlib
from collections.abc import Iterable
from typing import Final

try:
    import uvloop
except ImportError:
    HAS_UVLOOP: Final = False
    new_event_loop = asyncio.new_event_loop
else:
    HAS_UVLOOP = True
    new_event_loop = uvloop.new_event_loop

DAY: Final = os.environ.get("MQTTLITE_LOOPS", "")
"""The number of a day, on which each test of a broker with sockets runs on one of two loops; empty: on both."""


def left_for_tomorrow(tests: Iterable[str], day: str = DAY) -> set[str]:
    """Of the names of tests, `file::test[loop…]`, those that run on the other loop on that day. One that has only one
    loop is none of them. Half of the files are on each loop, and the next day on the other."""
    if not day or not HAS_UVLOOP:
        return set()
    names = set(tests)
    left = set()
    for name in names:
        loop, other = ("uvloop", "asyncio") if "[uvloop" in name else ("asyncio", "uvloop")
        twin = name.replace(f"[{loop}", f"[{other}")
        file = name.partition("::")[0]
        is_on_uvloop = (zlib.crc32(file.encode()) + int(day)) % 2 == 0
        if twin != name and twin in names and is_on_uvloop != (loop == "uvloop"):
            left.add(name)
    return left
