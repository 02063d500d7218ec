"""What an operation takes from the allocator: counts that, unlike times, are the same on a busy machine."""

import gc
import sys
import tracemalloc
from collections.abc import Callable

REPEATED = 5


def allocations(operation: Callable[[], object], parts: int = 1) -> dict[str, float]:
    """For each part of what it does: blocks that its result holds, blocks that stay for good, and bytes at the peak."""
    operation()
    gc.collect()
    gc.disable()
    try:
        return {
            "blocks_made": (_made(operation) - _made(_nothing)) / parts,
            "blocks_kept": (_kept(operation) - _kept(_nothing)) / parts,
            "peak_bytes": _peak(operation) / parts,
        }
    finally:
        gc.enable()


def _nothing() -> None:
    """What the counting itself takes."""


def _made(operation: Callable[[], object]) -> int:
    before = sys.getallocatedblocks()
    result = operation()
    made = sys.getallocatedblocks() - before
    del result
    return made


def _kept(operation: Callable[[], object]) -> float:
    """On average over a few, since a table that grows does so now and then."""
    before = sys.getallocatedblocks()
    for _ in range(REPEATED):
        operation()
    return (sys.getallocatedblocks() - before) / REPEATED


def _peak(operation: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        operation()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
