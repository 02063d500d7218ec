"""How much of the log may go. Pure.

Invariant: what is trimmed is in two databases after a power cut of all machines, or in one and in the snapshot that the
engine keeps.
"""

from collections.abc import Collection
from typing import Final

COPIES: Final = 2
"""How many copies outside of the log must have what is trimmed."""

FULL_SHARE: Final = 0.5
"""From this share of its limit on, the log no longer waits for machines that are behind: they start from a snapshot."""


def is_filling(size_bytes: int, max_bytes: int) -> bool:
    """Whether the log is so long that it no longer waits for machines that are behind."""
    return size_bytes >= max_bytes * FULL_SHARE


def trim_before(durable: Collection[int], snapshot: int, size_bytes: int, max_bytes: int) -> int:
    """The sequence below which the log is not needed; 0 if all of it is.

    `durable` has the position of each known machine after a power cut, `snapshot` that of the snapshot, 0 without one.
    """
    copies = sorted([*durable, *([snapshot] if snapshot else [])], reverse=True)
    if len(copies) < COPIES:
        return 0
    everybody = min(durable, default=0)
    return 1 + (copies[COPIES - 1] if is_filling(size_bytes, max_bytes) else min(everybody, copies[COPIES - 1]))
