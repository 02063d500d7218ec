"""The messages that were sent to a client and not acknowledged, and the packet identifiers in use for them.

A message keeps its packet identifier from sending to acknowledgement, over any number of connections. Invariant:
`inflight`, `resend` and `released` share no identifier, and none of `kept` is given out again; while `resend` is not
empty, all messages in flight were also sent on an earlier connection.
"""

from typing import Final, final

from mqttlite.core.memory import INFLIGHT_BYTES, MemoryAccount
from mqttlite.core.message import Delivery
from mqttlite.core.session.inflight import Inflight, Unacknowledged
from mqttlite.core.session.packet_ids import PacketIds

_NONE: Final[dict[int, Unacknowledged]] = {}
"""Never added to. Shared by windows without messages to resend."""

_NONE_KEPT: Final[dict[int, Delivery]] = {}
"""The same for windows without kept identifiers."""

_FEW: Final = 256
"""Up to this many identifiers in use are compared one by one to find the next gap. With more, the gap is walked."""


@final
class Window:
    __slots__ = (
        "_max_bytes",
        "_memory",
        "_size",
        "_unused_ids",
        "high_water",
        "inflight",
        "kept",
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
        """The memory of `resend`, as if no other session held the messages."""
        self.released: Final = PacketIds()
        """QoS 2 identifiers whose message was received and whose PUBCOMP has not arrived."""
        self.kept: dict[int, Delivery] = _NONE_KEPT
        """Messages that their origin names by their packet identifier until it is done with them, also after PUBACK."""
        self.quota: int = 0
        """How many more messages the client's Receive Maximum allows now."""
        self.high_water: int = 0
        """The most messages that were unacknowledged at one time since the connection began."""
        self._size = 0
        self.next_id: int = 1
        """The next packet identifier to try."""
        self._unused_ids = 0  # known to be unused, from the next one on

    def open(self, size: int) -> None:
        """The client is connected, and takes `size` unacknowledged messages."""
        self._size = size
        self.quota = size - len(self.released)
        self.high_water = len(self.released)

    def close(self) -> list[Unacknowledged]:
        """The connection ended: move the messages in flight to the front of `resend`, and return them."""
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
    def size(self) -> int:
        """How many unacknowledged messages the client takes."""
        return self._size

    @property
    def is_open(self) -> bool:
        """Whether another message may be sent."""
        return self.quota > 0 and self.inflight.size_bytes <= self._max_bytes

    @property
    def size_bytes(self) -> int:
        """The memory of the unacknowledged messages."""
        return self.resend_bytes + self.inflight.size_bytes

    @property
    def may_keep(self) -> bool:
        """Whether the identifier of another message may be kept: as many as there may be unacknowledged messages."""
        return len(self.kept) < self._size

    def keep(self, packet_id: int, delivery: Delivery) -> None:
        """Do not give this identifier out again until `forget`."""
        if self.kept is _NONE_KEPT:
            self.kept = {}
        self.kept[packet_id] = delivery

    def forget(self, packet_id: int, delivery: Delivery) -> bool:
        """The origin is done with a message whose identifier is kept. False if it is not kept any more."""
        if self.kept.get(packet_id) is not delivery:
            return False
        del self.kept[packet_id]
        return True

    def take_kept(self) -> list[Delivery]:
        """The connection ended: forget all kept identifiers, and return their messages."""
        kept, self.kept = self.kept, _NONE_KEPT
        return list(kept.values())

    def take_id(self) -> int:
        """Take an unused identifier [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]."""
        if not self._unused_ids:
            self._find_unused_ids()
        packet_id = self.next_id
        self.next_id = packet_id + 1 if packet_id < 65_535 else 1
        self._unused_ids -= 1
        return packet_id

    def take_ids(self, count: int) -> int:
        """Take `count` consecutive unused identifiers. Return the first, or 0 if the next ones are not all unused."""
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
        """The message that a client answers. One that waits to be resent is in flight from now on."""
        found = self.inflight.find(packet_id)
        if found is None and packet_id in self.resend:
            found = self.pop_resend(packet_id)
            self.inflight.put(packet_id, found)
            self.quota -= 1
        return found

    def pop_resend(self, packet_id: int) -> Unacknowledged:
        """Remove and return a message that waits to be resent."""
        message = self.resend.pop(packet_id)
        self.resend_bytes -= self._memory.let_go(message.message(), INFLIGHT_BYTES)
        return message

    def restore(self, packet_id: int, delivery: Delivery, sequence: int) -> None:
        """Restore a message that an earlier broker sent."""
        if self.resend is _NONE:
            self.resend = {}
        self.resend[packet_id] = Unacknowledged(delivery, None, 1, delivery.qos, sequence)
        self.resend_bytes += self._memory.hold(delivery.message, INFLIGHT_BYTES)
        self.continue_at(packet_id + 1 if packet_id < 65_535 else 1)

    def continue_at(self, packet_id: int) -> None:
        """Continue with this identifier, or the first unused one after it."""
        self.next_id = packet_id
        self._unused_ids = 0

    def _find_unused_ids(self) -> None:
        """Skip identifiers in use, and find how many unused ones follow.

        It visits only identifiers that are in use or will be given out next, so each costs one or two visits over time.
        """
        inflight = self.inflight.by_id()
        packet_id = self.next_id
        kept = self.kept
        while packet_id in inflight or packet_id in self.resend or packet_id in kept or self.released.has(packet_id):
            packet_id = packet_id + 1 if packet_id < 65_535 else 1
        self.next_id = packet_id
        end = 65_536
        if len(inflight) + len(self.resend) + len(kept) + len(self.released) <= _FEW:
            for used in (inflight, self.resend, kept, self.released.all()):
                for each in used:
                    if packet_id < each < end:
                        end = each
        else:
            end = packet_id + 1
            while end < 65_536 and not (end in inflight or end in self.resend or end in kept or self.released.has(end)):
                end += 1
        self._unused_ids = end - packet_id
