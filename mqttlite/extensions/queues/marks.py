"""The numbers that identify a message under way in the store."""

from typing import Final

_ATTEMPTS_SHIFT: Final = 40
"""In the store, the packet identifier of a queue's message is its attempts plus one, shifted, plus its sequence. So
consecutive messages with equal attempts have consecutive identifiers, and are stored as one run."""

_SEQUENCES: Final = (1 << _ATTEMPTS_SHIFT) - 1


def mark_of(sequence: int, attempts: int) -> int:
    """The number in the store for a message under way."""
    return (attempts + 1) << _ATTEMPTS_SHIFT | (sequence & _SEQUENCES)


def attempts_of(mark: int) -> int:
    """The opposite."""
    return (mark >> _ATTEMPTS_SHIFT) - 1
