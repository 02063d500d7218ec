"""What the broker has done so far and holds now, summed up. Who publishes it, and under which names, is not known here.

Nothing is counted for it where messages pass: connections and sessions count for themselves, and a `Survey` reads
them, a slice at a time. Invariant: a connection is counted once, while it is there or among those that ended.
"""

from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection
from mqttlite.core.reasons import count
from mqttlite.core.session import Session

SLICE: Final = 100
"""Connections and sessions to look at in one pass of the loop: less than half a millisecond."""

_ACK_BYTES: Final = 4
"""An acknowledgement, where it has no reason code."""


class Totals:
    """Sums over connections. A PUBLISH is a message; a packet is anything."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connects",
        "drops",
        "packets_received",
        "packets_sent",
        "publish_bytes_received",
        "publish_bytes_sent",
        "received_qos0",
        "received_qos1",
        "received_qos2",
        "sent_qos0",
        "sent_qos1",
        "sent_qos2",
    )

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.received_qos0 = 0
        self.received_qos1 = 0
        self.received_qos2 = 0
        self.sent_qos0 = 0
        self.sent_qos1 = 0
        self.sent_qos2 = 0
        self.publish_bytes_received = 0
        self.publish_bytes_sent = 0
        self.connects = 0
        self.drops: dict[str, int] = {}

    @property
    def messages_received(self) -> int:
        return self.received_qos0 + self.received_qos1 + self.received_qos2

    @property
    def messages_sent(self) -> int:
        return self.sent_qos0 + self.sent_qos1 + self.sent_qos2

    def copy(self) -> "Totals":
        copied = Totals()
        for name in Totals.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.drops = dict(self.drops)
        return copied

    def keep_up_with(self, former: "Totals") -> None:
        """Fall behind nothing that was said before: a connection may end between two slices of a survey, and a client
        come back with what it missed."""
        for name in Totals.__slots__:
            if name != "drops":
                setattr(self, name, max(getattr(self, name), getattr(former, name)))
        for reason, messages in former.drops.items():
            self.drops[reason] = max(messages, self.drops.get(reason, 0))

    def add(self, connection: Connection) -> None:
        """Add what a connection has counted.

        Acknowledgements are not: each message of QoS 1 stands for one, each of QoS 2 for three.
        """
        outbox = connection.outbox
        received = connection.received_qos0 + connection.received_qos1 + connection.received_qos2
        sent = outbox.sent_qos0 + outbox.sent_qos1 + outbox.sent_qos2
        acks_received = outbox.sent_qos1 + 2 * outbox.sent_qos2 + connection.received_qos2
        acks_sent = connection.received_qos1 + 2 * connection.received_qos2 + outbox.sent_qos2
        self.bytes_received += connection.bytes_received
        self.bytes_sent += outbox.bytes_sent
        self.received_qos0 += connection.received_qos0
        self.received_qos1 += connection.received_qos1
        self.received_qos2 += connection.received_qos2
        self.sent_qos0 += outbox.sent_qos0
        self.sent_qos1 += outbox.sent_qos1
        self.sent_qos2 += outbox.sent_qos2
        self.packets_received += received + acks_received + connection.requests
        self.packets_sent += sent + acks_sent + outbox.answers
        if received:
            others = connection.request_bytes + _ACK_BYTES * acks_received
            self.publish_bytes_received += max(0, connection.bytes_received - others)
        if sent:
            self.publish_bytes_sent += max(0, outbox.bytes_sent - outbox.answer_bytes - _ACK_BYTES * acks_sent)
        if connection.version:
            self.connects += 1
        if connection.session is not None:
            self.add_drops(connection.session.drops)
            self.add_drops(outbox.drops)
        else:
            self.add_drops(connection.drops)

    def add_drops(self, drops: dict[str, int]) -> None:
        for reason, messages in drops.items():
            count(self.drops, reason, messages)


class Survey:
    """One look at everything: call `step` until it says that all was seen."""

    def __init__(self, core: Broker, connections: list[Connection], ended: Totals) -> None:
        self.totals: Final = ended.copy()
        self.totals.add_drops(core.router.drops.by_reason)
        self.inflight = 0
        self.queued = 0
        self.queued_bytes = 0
        self._connections: Final = connections
        self._sessions: Final = core.sessions.values()
        self._at = 0

    def step(self) -> bool:
        """Look at the next of them; True when there are no more."""
        start, self._at = self._at, self._at + SLICE
        for connection in self._connections[start : self._at]:
            self.totals.add(connection)
        for session in self._sessions[start : self._at]:
            self._add_session(session)
        return self._at >= max(len(self._connections), len(self._sessions))

    def _add_session(self, session: Session) -> None:
        self.inflight += len(session.inflight) + len(session.released)
        self.queued += session.queued
        self.queued_bytes += session.queued_bytes
        if session.outbox is None:  # else its connection tells what was dropped
            self.totals.add_drops(session.drops)
