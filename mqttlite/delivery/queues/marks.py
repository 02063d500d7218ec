"""The numbers by which a message of a queue is named while it is under way: in the store, and to consumers."""

from typing import Final

from mqttlite.core.message import Message
from mqttlite.delivery.queues.deliveries import Entry

_ATTEMPTS_SHIFT: Final = 40
"""In the store, the packet identifier of a queue's message: one more than its attempts, above its sequence. So those of
messages that follow one another with as many attempts do so too, and are written as one run."""

_SEQUENCES: Final = (1 << _ATTEMPTS_SHIFT) - 1
_CHECK: Final = 1_000_000
"""What an `ack-id` has of the message's number, for sequences may begin anew when a queue was deleted."""

_EPOCH: Final = 7_919
"""What an epoch adds to that: a prime number, so that a million of them differ."""


def mark_of(sequence: int, attempts: int) -> int:
    """What the store keeps of a message that is under way."""
    return (attempts + 1) << _ATTEMPTS_SHIFT | (sequence & _SEQUENCES)


def attempts_of(mark: int) -> int:
    """The opposite."""
    return (mark >> _ATTEMPTS_SHIFT) - 1


def ack_id_of(entry: Entry, attempt: int, epoch: int) -> str:
    """By which consumers name an attempt to deliver a message. After a seek that began another epoch it is another: who
    had the message before cannot acknowledge it now."""
    return f"{entry.sequence}-{attempt}-{_check_of(entry.message, epoch)}"


def parse_ack_id(ack_id: str) -> tuple[int, int, int] | None:
    """The sequence, the attempt and what is checked of an `ack-id`; None for what is none."""
    parts = ack_id.split("-", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def is_of(message: Message, epoch: int, check: int) -> bool:
    """Whether an `ack-id` with that check names the message."""
    return _check_of(message, epoch) == check


def _check_of(message: Message, epoch: int) -> int:
    return (message.number + epoch * _EPOCH) % _CHECK
