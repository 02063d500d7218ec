"""Sums up the counters of connections, and counts connects and disconnects since the start.

Messages cost nothing here: connections and sessions count, and a snapshot adds them up. Invariant: a connection is
counted once, either as open or as ended.
"""

from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection
from mqttlite.core.reasons import count
from mqttlite.event_hub import Jailed, Link, Listener
from mqttlite.wire.constants import VERSION_NAMES
from mqttlite.wire.reason_codes import ReasonCode

NO_VERSION: Final = "none"
"""The protocol version of a connection that has not sent its CONNECT yet."""

Kind = tuple[str, str, str]
"""Listener, transport and protocol version of a connection."""

_ACK_BYTES: Final = 4
"""The size of an acknowledgement without reason code."""


class Totals:
    """Totals of messages (PUBLISH packets) and of all packets."""

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
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.packets_received: int = 0
        self.packets_sent: int = 0
        self.received_qos0: int = 0
        self.received_qos1: int = 0
        self.received_qos2: int = 0
        self.sent_qos0: int = 0
        self.sent_qos1: int = 0
        self.sent_qos2: int = 0
        self.publish_bytes_received: int = 0
        self.publish_bytes_sent: int = 0
        self.connects: int = 0
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

    def raise_to(self, previous: "Totals") -> None:
        """Keep counters from falling below an earlier value, because a connection may end between two slices of a
        snapshot."""
        for name in Totals.__slots__:
            if name != "drops":
                setattr(self, name, max(getattr(self, name), getattr(previous, name)))
        for reason, messages in previous.drops.items():
            self.drops[reason] = max(messages, self.drops.get(reason, 0))

    def add(self, connection: Connection) -> None:
        """Add the counters of a connection.

        Connections do not count acknowledgements: a QoS 1 message implies one, a QoS 2 message three.
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


class ConnectionCounters(Listener):
    """Counts connections since the start, by kind and reason."""

    def __init__(self, core: Broker) -> None:
        self._core: Final = core
        self.ended: Final = Totals()
        """The totals of ended connections."""
        self.connected: Final[dict[Kind, int]] = {}
        """Clients that were accepted."""
        self.disconnected: Final[dict[str, int]] = {}
        """Accepted connections that ended, by close reason."""
        self.refused: Final[dict[tuple[str, str], int]] = {}
        """Connections that ended before they were accepted, by listener and close reason."""
        self.jailed: Final[dict[str, int]] = {}
        """How often the login jail began, by kind: `address`, `username` or `client_id`."""
        self.refused_in_jail: int = 0
        """Logins that were refused without a check."""
        self.most_online: int = 0
        """The most clients that were connected at once."""

    def on_connected(self, link: Link) -> None:
        kind = kind_of(link)
        self.connected[kind] = self.connected.get(kind, 0) + 1
        self.most_online = max(self.most_online, self._core.online)

    def on_refused(self, link: Link) -> None:
        self.ended.add(link.connection)
        refused = link.listener, str(link.connection.close_reason)
        self.refused[refused] = self.refused.get(refused, 0) + 1
        if link.connection.reason_code == ReasonCode.CONNECTION_RATE_EXCEEDED:
            self.refused_in_jail += 1

    def on_jailed(self, jailed: Jailed) -> None:
        self.jailed[jailed.what] = self.jailed.get(jailed.what, 0) + 1

    def on_closed(self, link: Link) -> None:
        self.ended.add(link.connection)
        reason = str(link.connection.close_reason)
        self.disconnected[reason] = self.disconnected.get(reason, 0) + 1


def kind_of(link: Link) -> Kind:
    """Listener, transport, and `3.1`, `3.1.1`, `5.0` or `NO_VERSION`."""
    version = link.connection.version
    return link.listener, link.transport, VERSION_NAMES[version] if version else NO_VERSION
