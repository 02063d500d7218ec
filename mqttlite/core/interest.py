"""What is subscribed here, for others at which messages are published: each topic filter, with the highest QoS of its
subscribers. A SUBACK waits here until they know.

Shared subscriptions are in `shares`. Those below `$` are not in it, nor those of relays, by which others listen here.
Invariant: `take` gives each filter whose QoS has changed since the last call.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

from mqttlite.core.limits import MAX_HELD_SUBACKS
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.share_interest import ShareInterest

NOBODY: Final = -1
"""In place of a QoS: the filter has no subscribers any more."""

_DOLLAR: Final = 0x24
_BITS: Final = 32
"""For the number of subscribers of one QoS."""


class Wanted(NamedTuple):
    """The retained messages of a subscription, which are sent after its SUBACK."""

    topic_filter: bytes
    qos: int
    identifiers: tuple[int, ...]
    where: MessageFilter | None


@final
class HeldSuback:
    """A SUBACK for the connection with that number. Retained messages are looked for after it: meanwhile others may
    have sent more."""

    __slots__ = ("codes", "members", "number", "packet_id", "reason", "wanted")

    def __init__(
        self,
        number: int,
        packet_id: int,
        codes: bytearray,
        reason: str,
        wanted: list[Wanted],
        members: list[tuple[int, bytes]],
    ) -> None:
        self.number: Final = number
        self.packet_id: Final = packet_id
        self.codes: Final = codes
        self.reason: str = reason
        self.wanted: Final = wanted
        self.members: Final = members
        """The filters that make the client a member of something, each with the place of its code."""

    def refuse(self, topic_filter: bytes, code: int, reason: str) -> bool:
        """Another broker has refused such a filter. False if it is not one of these."""
        found = False
        for at, member in self.members:
            if member == topic_filter:
                self.codes[at] = code
                self.reason = self.reason or reason
                found = True
        return found


@final
class Interest:
    """`relays` is how the client identifiers of relays begin, and `me` the one that this broker has at others.
    `on_news` is called when there is something to take, and must not call back."""

    __slots__ = ("_counts", "_held", "_news", "_on_news", "holds", "me", "relays", "shares", "size_bytes")

    def __init__(self, relays: str, me: str, on_news: Callable[[], None]) -> None:
        self.relays: Final = relays
        self.me: Final = me
        self.shares: Final = ShareInterest(on_news)
        self.size_bytes: int = 0
        """The bytes of all topic filters."""
        self.holds: bool = True
        """Whether SUBACKs wait."""
        self._on_news: Final = on_news
        self._counts: Final[dict[bytes, int]] = {}
        """The subscribers of each filter: three numbers in one, by QoS."""
        self._news: dict[bytes, int] = {}
        """The filters whose QoS has changed, with the new one or `NOBODY`."""
        self._held: list[HeldSuback] = []

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, client_id: str, topic_filter: bytes, qos: int) -> None:
        """Count a subscription, unless it is none that others are to know."""
        if topic_filter[0] != _DOLLAR and not client_id.startswith(self.relays):
            before = self._counts.get(topic_filter, 0)
            self._set(topic_filter, before, before + (1 << _BITS * qos))

    def remove(self, client_id: str, topic_filter: bytes, qos: int) -> None:
        """Count a subscription no longer that was added."""
        if topic_filter[0] != _DOLLAR and not client_id.startswith(self.relays):
            before = self._counts[topic_filter]
            self._set(topic_filter, before, before - (1 << _BITS * qos))

    def hold(self, held: HeldSuback) -> bool:
        """Keep a SUBACK until others know what it answers. False if there are too many, or none waits: then it goes out
        at once."""
        if not self.holds or len(self._held) >= MAX_HELD_SUBACKS:
            return False
        self._held.append(held)
        self._on_news()
        return True

    def take(self, is_due: bool = True) -> tuple[dict[bytes, int], list[HeldSuback]]:
        """The filters whose QoS has changed, with the new one or `NOBODY`, and the names of shared subscriptions with
        their summaries (`is_due` as there); and the SUBACKs that wait until others know them."""
        news, self._news = self._news, {}
        news.update(self.shares.take(is_due))
        held, self._held = self._held, []
        return news, held

    def filters(self) -> list[bytes]:
        """Each filter, without shared subscriptions."""
        return list(self._counts)

    def qos_of(self, topic_filter: bytes) -> int:
        """The highest QoS of its subscribers now, or `NOBODY`."""
        return _highest(self._counts.get(topic_filter, 0))

    def _set(self, topic_filter: bytes, before: int, after: int) -> None:
        if not before:
            self.size_bytes += len(topic_filter)
        if after:
            self._counts[topic_filter] = after
        else:
            del self._counts[topic_filter]
            self.size_bytes -= len(topic_filter)
        qos = _highest(after)
        if qos != _highest(before):
            if not self._news:
                self._on_news()
            self._news[topic_filter] = qos


def _highest(counts: int) -> int:
    """The highest QoS of which there is a subscriber, or `NOBODY`."""
    if counts >> 2 * _BITS:
        return 2
    if counts >> _BITS:
        return 1
    return 0 if counts else NOBODY
