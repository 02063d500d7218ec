"""The numbers that identify a message under way: in the store, and for consumers (`ack-id`)."""

from typing import Final

from mqttlite.core.message import Message
from mqttlite.delivery.queues.deliveries import Entry

_ATTEMPTS_SHIFT: Final = 40
"""In the store, the packet identifier of a queue's message is its attempts plus one, shifted, plus its sequence. So
consecutive messages with equal attempts have consecutive identifiers, and are stored as one run."""

_SEQUENCES: Final = (1 << _ATTEMPTS_SHIFT) - 1
_CHECK: Final = 1_000_000
"""The modulus for the part of the message's number in an `ack-id`, because sequences restart when a queue is
deleted."""

_EPOCH: Final = 7_919
"""Added for each epoch: a prime number, so that a million epochs differ."""


def mark_of(sequence: int, attempts: int) -> int:
    """The number in the store for a message under way."""
    return (attempts + 1) << _ATTEMPTS_SHIFT | (sequence & _SEQUENCES)


def attempts_of(mark: int) -> int:
    """The opposite."""
    return (mark >> _ATTEMPTS_SHIFT) - 1


def ack_id_of(entry: Entry, attempt: int, epoch: int) -> str:
    """The id that consumers use for an attempt. A seek back begins a new epoch with new ids, so that earlier consumers
    of a message cannot acknowledge it."""
    return f"{entry.sequence}-{attempt}-{_check_of(entry.message, epoch)}"


def parse_ack_id(ack_id: str) -> tuple[int, int, int] | None:
    """The sequence, attempt and check number of an `ack-id`; None if it is invalid."""
    parts = ack_id.split("-", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def is_of(message: Message, epoch: int, check: int) -> bool:
    """Whether an `ack-id` with this check number belongs to the message."""
    return _check_of(message, epoch) == check


def _check_of(message: Message, epoch: int) -> int:
    return (message.number + epoch * _EPOCH) % _CHECK
