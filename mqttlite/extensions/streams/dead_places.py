"""The dead letters of a shared group: the places of messages that no member acknowledged.

The messages stay in the log of the stream, for as long as it keeps them, so there is no second copy. Invariant: a place
is recorded in the commit in which the group passes its message.
"""

from typing import Final, final

import msgspec

from mqttlite.extensions.streams.limits import MAX_DEAD_DETAIL, MAX_DEAD_PLACES


class DeadPlace(msgspec.Struct, frozen=True, array_like=True):
    """One message that the group gave up."""

    partition: int
    offset: int
    cause: str
    detail: str
    attempts: int
    died_us: int
    """When that was, in microseconds of Unix time."""


@final
class DeadPlaces:
    """Of one group, the oldest first."""

    __slots__ = ("_places", "dropped", "total")

    def __init__(self) -> None:
        self._places: Final[dict[tuple[int, int], DeadPlace]] = {}
        self.total: int = 0
        """How many there were since the start of the broker."""
        self.dropped: int = 0
        """How many were forgotten because there were too many."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: tuple[int, int]) -> bool:
        return place in self._places

    def all(self) -> list[DeadPlace]:
        """All of them."""
        return list(self._places.values())

    def add(self, partition: int, offset: int, cause: str, detail: str, attempts: int, died_us: int) -> None:
        """The group gave up a message, for the first time or after a replay."""
        self._places.pop((partition, offset), None)
        if len(self._places) >= MAX_DEAD_PLACES:
            del self._places[next(iter(self._places))]
            self.dropped += 1
        self.total += 1
        detail = detail[:MAX_DEAD_DETAIL]
        self._places[partition, offset] = DeadPlace(partition, offset, cause, detail, attempts, died_us)

    def remove(self, partition: int, offset: int) -> bool:
        """Forget one. Return whether it was there."""
        return self._places.pop((partition, offset), None) is not None

    def encode(self) -> bytes:
        """As the store keeps them."""
        return msgspec.json.encode(self.all())

    def restore(self, data: bytes) -> None:
        """Take them from the store. A record that cannot be read loses the list, and no message."""
        try:
            places = msgspec.json.decode(data, type=list[DeadPlace])
        except msgspec.DecodeError:
            return
        for each in places:
            self._places[each.partition, each.offset] = each
