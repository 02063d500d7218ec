"""A set of packet identifiers of QoS 2 messages that wait for their next packet, in order of arrival.

Clients and the broker count identifiers up and acknowledge in order. So the identifiers of a session are usually a
single range, whose cost does not depend on its length. Invariant: identifiers outside the range arrived before it.
"""

from typing import Final, final

from mqttlite.wire.blocks import leading

_NONE: Final[dict[int, None]] = {}
"""Never added to. Shared while there are no identifiers outside the range, because a dictionary takes 64 bytes."""


@final
class PacketIds:
    __slots__ = ("_count", "_first", "_others")

    def __init__(self) -> None:
        self._first = 0
        self._count = 0
        self._others: dict[int, None] = _NONE

    def __len__(self) -> int:
        return self._count + len(self._others)

    def has(self, packet_id: int) -> bool:
        return 0 <= packet_id - self._first < self._count or packet_id in self._others

    def has_any(self, first: int, count: int) -> bool:
        """Whether the set has one of the `count` identifiers from `first` on."""
        if self._count and first < self._first + self._count and self._first < first + count:
            return True
        return bool(self._others) and any(packet_id in self._others for packet_id in range(first, first + count))

    def all(self) -> list[int]:
        """All identifiers, in order of arrival."""
        packet_ids = list(self._others)
        if self._count:
            packet_ids += range(self._first, self._first + self._count)
        return packet_ids

    def add(self, first: int, count: int = 1) -> None:
        """Add `count` identifiers from `first` on, none of which is in the set."""
        if self._count and first == self._first + self._count:
            self._count += count
            return
        self._scatter()
        self._first = first
        self._count = count

    def discard(self, packet_id: int) -> bool:
        """Remove an identifier. Return whether it was in the set."""
        if packet_id == self._first and self._count:
            self._first += 1
            self._count -= 1
            return True
        if not self.has(packet_id):
            return False
        if packet_id not in self._others:
            self._scatter()
        del self._others[packet_id]
        return True

    def take_leading(self, data: bytes, at: int, acks: bytes) -> int:
        """Remove identifiers from the start of the range that are acknowledged in `data` from `at` on. Return how many.

        `acks` is the table of expected acknowledgements.
        """
        count = leading(data, at, acks, self._first, self._count)
        self._first += count
        self._count -= count
        return count

    def _scatter(self) -> None:
        """Turn the range into single identifiers."""
        if self._count:
            if self._others is _NONE:
                self._others = {}
            self._others.update(dict.fromkeys(range(self._first, self._first + self._count)))
            self._count = 0
