"""The `ack-id`s of a queue: each names one attempt to deliver one message.

An id is the sequence and the attempt with a MAC, in hexadecimal digits. The key belongs to the queue and is stored with
it, so ids are valid over a restart, and no other queue accepts them. Invariant: only who was told an id can know it.
"""

import hmac
import secrets
from hashlib import blake2b
from typing import Final, final

from mqttlite.extensions.queues.entry import Entry

KEY_BYTES: Final = 16
MAC_BYTES: Final = 12

_ATTEMPT_BITS: Final = 16
_PLACE_BYTES: Final = 8
"""The sequence and the attempt."""

_CHARACTERS: Final = 2 * (_PLACE_BYTES + MAC_BYTES)


def new_key() -> bytes:
    """The key of a new queue."""
    return secrets.token_bytes(KEY_BYTES)


@final
class AckIds:
    """Makes and checks the ids of one queue."""

    __slots__ = ("_keyed", "key")

    def __init__(self, key: bytes) -> None:
        self.key: Final = key
        self._keyed: Final = blake2b(key=key, digest_size=MAC_BYTES)

    def of(self, entry: Entry, attempt: int, epoch: int) -> str:
        """The id of an attempt. A seek back begins a new epoch with new ids, so that earlier consumers of a message
        cannot acknowledge it. The message's number is in the MAC because a purge begins the sequences again."""
        place = (entry.sequence << _ATTEMPT_BITS | attempt).to_bytes(_PLACE_BYTES, "big")
        mac = self._keyed.copy()
        mac.update(b"%b%d %d" % (place, entry.message.number, epoch))
        return (place + mac.digest()).hex()

    def is_of(self, ack_id: str, entry: Entry, attempt: int, epoch: int) -> bool:
        """Whether this is the id of the attempt."""
        return hmac.compare_digest(self.of(entry, attempt, epoch), ack_id)


def place_of(ack_id: str) -> tuple[int, int] | None:
    """The sequence and the attempt that an id names, valid or not; None if it has no such form."""
    if len(ack_id) != _CHARACTERS or not ack_id.isascii():
        return None
    try:
        place = int(ack_id[: 2 * _PLACE_BYTES], 16)
    except ValueError:
        return None
    return place >> _ATTEMPT_BITS, place & (1 << _ATTEMPT_BITS) - 1
