"""`OwnAnswers`: what the broker answers to its session for a node, and the node must not get: the session's CONNECT,
SUBSCRIBE, UNSUBSCRIBE and some PUBREL came from here."""

from collections import deque
from typing import Final

from mqttlite.wire.constants import CONNACK, PUBCOMP, SUBACK, UNSUBACK
from mqttlite.wire.framer import packet_size

_ALWAYS: Final = frozenset({CONNACK, SUBACK, UNSUBACK})


class OwnAnswers:
    """It counts what is to come, so that packets are looked at only while something is."""

    def __init__(self) -> None:
        self.due: int = 0
        """How many the broker still writes."""
        self._subacks: Final[deque[tuple[int, int]]] = deque()
        """Numbers of blobs with news, each with how many SUBACKs say that these and those before are on disk."""
        self._subacks_seen = 0
        self._subacks_asked = 0
        self._forgotten: Final[set[int]] = set()
        """Packet identifiers whose next PUBCOMP answers a PUBREL from here."""

    def begin(self) -> None:
        """A connection has begun with a CONNECT."""
        self.due = 1
        self._subacks_seen = self._subacks_asked = 0
        self._subacks.clear()
        self._forgotten.clear()

    def expect_suback(self) -> None:
        """A SUBSCRIBE is sent."""
        self.due += 1
        self._subacks_asked += 1

    def expect_unsuback(self) -> None:
        """An UNSUBSCRIBE is sent."""
        self.due += 1

    def expect_pubcomp(self, packet_id: int) -> None:
        """A PUBREL is sent."""
        self.due += 1
        self._forgotten.add(packet_id)

    def await_disk(self, number: int) -> None:
        """The blob with that number is kept when all that was subscribed until now is on disk."""
        self._subacks.append((number, self._subacks_asked))

    def kept(self, received: int) -> int:
        """The number of the latest blob whose news are on disk, with all before, of those received."""
        while self._subacks and self._subacks[0][1] <= self._subacks_seen:
            self._subacks.popleft()
        return self._subacks[0][0] - 1 if self._subacks else received

    def taken_out(self, packets: bytes) -> bytes:
        """Whole packets without these answers."""
        kept: list[bytes] = []
        start = 0
        while start < len(packets):
            end = start + packet_size(packets, start)
            kind = packets[start] >> 4
            if kind in _ALWAYS:
                self.due -= 1
                self._subacks_seen += kind == SUBACK
            elif kind == PUBCOMP and (packet_id := _packet_id(packets, start)) in self._forgotten:
                self.due -= 1
                self._forgotten.discard(packet_id)
            else:
                kept.append(packets[start:end])
            start = end
        return b"".join(kept)


def _packet_id(packets: bytes, start: int) -> int:
    """That of the acknowledgement that begins there."""
    at = start + 2
    while packets[at - 1] > 0x7F:
        at += 1
    return packets[at] << 8 | packets[at + 1]
