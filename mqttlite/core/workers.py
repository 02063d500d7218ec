"""What one worker of a broker knows of the others, and what it tells them.

A broker may be several processes. A client's session lives with one of them, its home, chosen by its identifier; a
connection that comes in elsewhere moves there. A worker tells the others which filters it has subscribers for, and is
sent messages that match: once, however many subscribers there are. What leaves is in `Turn.outgoing`, in order.
Invariant: what was said last of a filter in `Turn.interests` is so.
"""

import zlib
from collections import deque
from typing import Final, final

from mqttlite.core.connection import Postponed
from mqttlite.core.forwards import Batch, Forward, Interest, Outgoing
from mqttlite.core.limits import MAX_STAMPS, STAMPS_S
from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.core.turn import Turn

_LATER_S: Final = 1e-6
"""Clocks of loops stand still for a moment: what comes after is later by so much at least."""


@final
class Workers:
    """The view of worker `index` of `count`."""

    __slots__ = ("_forgotten", "_stamps", "_turn", "_wanted", "asked", "count", "index", "postponed", "tag")

    def __init__(self, index: int, count: int, turn: Turn) -> None:
        self.index: Final = index
        self.count: Final = count
        self._turn: Final = turn
        self._wanted: Final[dict[bytes, int]] = {}
        self._stamps: Final[dict[bytes, tuple[float, int]]] = {}
        self._forgotten: Final[deque[tuple[float, bytes]]] = deque()
        self.tag = 0
        self.asked = 0
        """How many workers the latest message went to that tell, under `tag`, what became of it."""
        self.postponed: Final[dict[int, Postponed]] = {}
        """Acknowledgements that wait for an `Outcome`, by tag."""

    @property
    def others(self) -> list[int]:
        return [worker for worker in range(self.count) if worker != self.index]

    def home(self, client_id: bytes) -> int:
        """The worker where a client's session lives."""
        return zlib.crc32(client_id) % self.count

    # ------------------------------------------------------------------ interests

    def want(self, topic_filter: bytes) -> None:
        """There is one more subscription here: the first of its filter is told."""
        wanted = self._wanted.get(topic_filter, 0)
        self._wanted[topic_filter] = wanted + 1
        if wanted == 0:
            self._turn.interests.append(Interest(topic_filter, 1, 1))

    def unwant(self, topic_filter: bytes) -> None:
        """There is one less: the last is told."""
        wanted = self._wanted[topic_filter] - 1
        if wanted:
            self._wanted[topic_filter] = wanted
        else:
            del self._wanted[topic_filter]
            self._turn.interests.append(Interest(topic_filter, 0, 0))

    def tell_share(self, name: bytes, members: int, online: int) -> None:
        """The members of a shared subscription here are other than before."""
        self._turn.interests.append(Interest(name, members, online))

    # ------------------------------------------------------------------ messages

    def send(self, outgoing: Outgoing, size: int) -> None:
        self._turn.outgoing.append(outgoing)
        self._turn.pending_bytes += size

    def forward(
        self, message: Message, remotes: list[int], chosen: dict[int, list[bytes]], retain: bool, asks: bool
    ) -> None:
        """Send a message to the workers that have subscribers, and what is retained to all.

        `chosen` are shared subscriptions whose next member is at another worker.
        """
        self.asked = 0
        stamp = self._stamps.get(message.topic, (0.0, 0))[0] if retain else 0.0
        workers = self.others if retain else sorted({*remotes, *chosen})
        if asks:
            self.tag += 1
            self.asked = len(workers)
        for worker in workers:
            plain = retain or worker in remotes
            shares = chosen.get(worker, [])
            tag = self.tag if asks else 0
            self.send(Forward(worker, tag, message, plain, retain, stamp, shares), message.size())

    def tell_removed(self, topic: bytes) -> None:
        """What was retained of a topic is so no longer, though nobody is told of a message."""
        removal = Message(topic, b"", 0, True)
        for worker in self.others:
            self.send(Forward(worker, 0, removal, False, True, self._stamps[topic][0], []), removal.size())

    def forward_batch(self, remotes: list[int], qos: int, version: int, head: int, size: int, packets: bytes) -> None:
        """Send packets to the workers that have subscribers; at QoS 1 and 2 those tell what became of them."""
        self.asked = 0
        if qos:
            self.tag += 1
            self.asked = len(remotes)
        batch = Batch(remotes, self.tag if qos else 0, qos, version, head, size, packets)
        self.send(batch, len(packets) * len(remotes))

    def undecided(self, session: Session, packet_id: int) -> Postponed | None:
        """The acknowledgement that is still to be decided for a client's own QoS 2 identifier, if there is one."""
        for postponed in self.postponed.values():
            if postponed.session is session and postponed.qos == 2 and postponed.ids.has(packet_id):
                return postponed
        return None

    # ------------------------------------------------------------------ which retained message is the latest

    def stamp(self, topic: bytes) -> None:
        """A message is retained here, or removed, later than all that is known of its topic."""
        known = self._stamps.get(topic, (0.0, 0))[0]
        self.is_latest(topic, max(self._turn.now, known + _LATER_S), self.index)

    def is_latest(self, topic: bytes, stamp: float, worker: int) -> bool:
        """Whether a retained message, or the removal of one, is later than what is known of its topic; then noted.

        Two workers may retain at once, and each hears of the other's later: all of them must keep the same.
        """
        known = self._stamps.get(topic)
        if known is not None and known > (stamp, worker):
            return False
        self._stamps[topic] = (stamp, worker)
        if known is None:
            self._forgotten.append((stamp, topic))
        while self._forgotten[0][0] < stamp - STAMPS_S:
            noted, old = self._forgotten.popleft()
            at = self._stamps[old][0]
            if at > noted:  # it came or went again since
                self._forgotten.append((at, old))
            else:  # by now everybody has heard of it
                del self._stamps[old]
        if len(self._stamps) > MAX_STAMPS:
            del self._stamps[self._forgotten.popleft()[1]]
        return True

    @property
    def stamps(self) -> int:
        """Topics whose latest retained message is remembered."""
        return len(self._stamps)
