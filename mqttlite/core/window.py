"""The messages that a client was sent and has not acknowledged, and the packet identifiers in use for them.

A message has its packet identifier from the moment in which it is sent until it is acknowledged, over any number of
connections. Invariant: `inflight`, `resend` and `released` share no identifier; and while anything is in `resend`, all
that is in flight was sent on an earlier connection, too.
"""

from typing import Final, final

from mqttlite.core.inflight import Inflight, Unacknowledged
from mqttlite.core.memory import INFLIGHT_BYTES, MemoryAccount
from mqttlite.core.message import Delivery
from mqttlite.core.packet_ids import PacketIds

_NONE: Final[dict[int, Unacknowledged]] = {}
"""Never added to: it stands for what is to be sent again where there is nothing."""

_FEW: Final = 256
"""As many identifiers in use are looked at one by one to find the next gap among them; of more, the gap is walked."""


@final
class Window:
    __slots__ = (
        "_max_bytes",
        "_memory",
        "_size",
        "_unused_ids",
        "high_water",
        "inflight",
        "next_id",
        "quota",
        "released",
        "resend",
        "resend_bytes",
    )

    def __init__(self, memory: MemoryAccount, max_bytes: int) -> None:
        self._memory: Final = memory
        self._max_bytes: Final = max_bytes
        self.inflight: Final = Inflight(memory)
        """Sent on this connection and not yet acknowledged (QoS 1) or received (QoS 2)."""
        self.resend: dict[int, Unacknowledged] = _NONE
        """Sent on an earlier connection, not acknowledged, and not yet sent again; by packet identifier, in order."""
        self.resend_bytes: int = 0
        """The memory of those, as if no other session held them."""
        self.released: Final = PacketIds()
        """QoS 2 identifiers whose message arrived, and whose PUBCOMP has not."""
        self.quota: int = 0
        """How many more messages the client's Receive Maximum allows now."""
        self.high_water: int = 0
        """The most that was unacknowledged at a time since the connection began."""
        self._size = 0
        self.next_id: int = 1
        """The packet identifier to take next, or to pass over if it is in use."""
        self._unused_ids = 0  # as far as known, from the next one on

    def open(self, size: int) -> None:
        """The client is connected, and takes that many unacknowledged messages."""
        self._size = size
        self.quota = size - len(self.released)
        self.high_water = len(self.released)

    def close(self) -> list[Unacknowledged]:
        """The connection is over: what was in flight is to be sent again, before what waited for that; the former."""
        if not len(self.inflight):
            return []
        again = self.inflight.take_all()
        came_back = list(again.values())
        for each in came_back:
            self.resend_bytes += INFLIGHT_BYTES + each.message().memory_bytes
        again.update(self.resend)
        self.resend = again
        self.inflight.watched = 0
        return came_back

    @property
    def is_open(self) -> bool:
        """Whether another message may be sent."""
        return self.quota > 0 and self.inflight.size_bytes <= self._max_bytes

    @property
    def size_bytes(self) -> int:
        """The memory of the unacknowledged messages."""
        return self.resend_bytes + self.inflight.size_bytes

    def take_id(self) -> int:
        """An identifier that is not in use [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]."""
        if not self._unused_ids:
            self._find_unused_ids()
        packet_id = self.next_id
        self.next_id = packet_id + 1 if packet_id < 65_535 else 1
        self._unused_ids -= 1
        return packet_id

    def take_ids(self, count: int) -> int:
        """The first of `count` consecutive identifiers that are not in use; 0 if the next ones are not."""
        if self._unused_ids < count:
            self._find_unused_ids()
            if self._unused_ids < count:
                return 0
        first_id = self.next_id
        self.next_id = first_id + count if first_id + count <= 65_535 else 1
        self._unused_ids -= count
        return first_id

    def fill(self, count: int) -> None:
        """Count `count` more unacknowledged messages."""
        self.quota -= count
        used = self._size - self.quota
        if used > self.high_water:
            self.high_water = used

    def find(self, packet_id: int) -> Unacknowledged | None:
        """The message that a client answers. It may wait to be sent again: then it is in flight from now on."""
        found = self.inflight.find(packet_id)
        if found is None and packet_id in self.resend:
            found = self.pop_resend(packet_id)
            self.inflight.put(packet_id, found)
            self.quota -= 1
        return found

    def pop_resend(self, packet_id: int) -> Unacknowledged:
        """Take out a message that is to be sent again."""
        message = self.resend.pop(packet_id)
        self.resend_bytes -= self._memory.let_go(message.message(), INFLIGHT_BYTES)
        return message

    def restore(self, packet_id: int, delivery: Delivery, sequence: int) -> None:
        """Put back a message that an earlier broker sent."""
        if self.resend is _NONE:
            self.resend = {}
        self.resend[packet_id] = Unacknowledged(delivery, None, 1, delivery.qos, sequence)
        self.resend_bytes += self._memory.hold(delivery.message, INFLIGHT_BYTES)
        self.continue_at(packet_id + 1 if packet_id < 65_535 else 1)

    def continue_at(self, packet_id: int) -> None:
        """The next identifier to take is this one, or the first behind it that is not in use."""
        self.next_id = packet_id
        self._unused_ids = 0

    def _find_unused_ids(self) -> None:
        """Pass over the identifiers that are in use, and see how many behind them are not.

        What it looks at is in use or will be given out next, so that over time each identifier costs a look or two.
        """
        inflight = self.inflight.by_id()
        packet_id = self.next_id
        while packet_id in inflight or packet_id in self.resend or self.released.has(packet_id):
            packet_id = packet_id + 1 if packet_id < 65_535 else 1
        self.next_id = packet_id
        end = 65_536
        if len(inflight) + len(self.resend) + len(self.released) <= _FEW:
            for used in (inflight, self.resend, self.released.all()):
                for each in used:
                    if packet_id < each < end:
                        end = each
        else:
            end = packet_id + 1
            while end < 65_536 and not (end in inflight or end in self.resend or self.released.has(end)):
                end += 1
        self._unused_ids = end - packet_id
