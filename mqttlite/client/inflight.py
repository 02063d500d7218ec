"""Messages on their way out at QoS 1 and 2, across connections: what is sent, acknowledged, and sent again.

Bytes leave through `write`; answers arrive at a `Waiter` (an asyncio future in the client, anything in a test).
Invariant: at most `max_inflight` messages are held, of which the server's Receive Maximum are unacknowledged.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar, final

from mqttlite.client.errors import MqttError, PublishRefused
from mqttlite.client.limits import ServerLimits
from mqttlite.client.message import PublishOutcome
from mqttlite.wire.constants import PUBREL, V5
from mqttlite.wire.encode import encode_ack
from mqttlite.wire.packets import Ack
from mqttlite.wire.reason_codes import ReasonCode

_HIGHEST_ID: Final = 65_535


class Waiter(Protocol):
    """A caller that waits for the outcome of a message; it may have gone away (`done`) before the outcome is known."""

    def done(self) -> bool: ...
    def set_result(self, result: PublishOutcome, /) -> None: ...
    def set_exception(self, error: MqttError, /) -> None: ...


@final
class PacketIds:
    """Packet identifiers, handed out in a circle so that a late answer does not meet a new question."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        """A free identifier. Raises `MqttError` when all 65 535 wait for an answer."""
        if len(self._used) == _HIGHEST_ID:
            raise MqttError("All 65 535 packet identifiers wait for an answer from the server.")
        packet_id = self._last
        while True:
            packet_id = packet_id % _HIGHEST_ID + 1
            if packet_id not in self._used:
                break
        self._last = packet_id
        self._used.add(packet_id)
        return packet_id

    def release(self, packet_id: int) -> None:
        self._used.discard(packet_id)


WaiterT = TypeVar("WaiterT", bound=Waiter, covariant=True)


@final
class Outgoing(Generic[WaiterT]):
    """One message: its frame without the packet identifier, who waits for it, and how far it got."""

    __slots__ = (
        "dup",
        "head",
        "holds_room",
        "packet_id",
        "qos",
        "received",
        "retain",
        "sent",
        "tail",
        "topic",
        "waiter",
    )

    def __init__(
        self, topic: str, head: bytes, tail: bytes, qos: int, retain: bool, waiter: WaiterT, holds_room: bool = True
    ) -> None:
        self.topic: Final = topic
        self.head: Final = head
        self.tail: Final = tail
        self.qos: Final = qos
        self.retain: Final = retain
        self.waiter: Final = waiter
        self.holds_room: Final = holds_room
        """Whether it is one of the messages that the client bounds by `max_inflight`."""
        self.packet_id: int = 0
        self.sent: bool = False
        self.dup: bool = False
        self.received: PublishOutcome | None = None
        """The reason code of PUBREC: from here on the message is the server's, and only PUBREL is sent again."""

    def frame(self) -> bytes:
        head = bytes((self.head[0] | 8,)) + self.head[1:] if self.dup else self.head
        return head + self.packet_id.to_bytes(2, "big") + self.tail


@final
class Window:
    """The messages in flight and those that wait for room at the server.

    `on_room` is called once for each message that leaves and held room.
    """

    def __init__(self, ids: PacketIds, version: int, on_room: Callable[[], None]) -> None:
        self._ids: Final = ids
        self._version: Final = version
        self._on_room: Final = on_room
        self._held: dict[int, Outgoing[Waiter]] = {}  # all of them, in the order of `place`
        self._unsent: OrderedDict[int, Outgoing[Waiter]] = OrderedDict()  # those not sent in this connection
        self._write: Callable[[bytes], object] | None = None
        self._limits = ServerLimits()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def unacknowledged(self) -> int:
        """How many were sent in this connection and not settled."""
        return len(self._held) - len(self._unsent)

    def place(self, outgoing: Outgoing[Waiter]) -> None:
        """Take a message in; it goes out at once when the server has room."""
        outgoing.packet_id = self._ids.take()
        self._held[outgoing.packet_id] = outgoing
        self._unsent[outgoing.packet_id] = outgoing
        self._pump()

    def withdraw(self, outgoing: Outgoing[Waiter]) -> None:
        """Nobody waits any more: forget a message that was never sent. Harmless for others."""
        if self._held.get(outgoing.packet_id) is outgoing and not outgoing.sent:
            self._forget(outgoing)

    def suspend(self) -> None:
        """The connection is gone; what was sent must be sent again."""
        self._write = None

    def resume(self, write: Callable[[bytes], object], limits: ServerLimits, *, session_present: bool) -> None:
        """A new connection: send again what the server has not acknowledged [MQTT-4.4.0-1].

        Where the server kept the session, as a duplicate, or PUBREL where that was next. Where it did not, messages
        start afresh, but those it said PUBREC to are delivered: they may not be sent again [MQTT-4.3.3-6]. And those
        that nobody waits for any more are not: one of them may be why the connection was lost, each time.
        """
        self._write, self._limits = write, limits
        self._unsent.clear()
        for outgoing in list(self._held.values()):
            if outgoing.received is None and outgoing.waiter.done() and not session_present:
                self._forget(outgoing)
            elif outgoing.received is None:
                outgoing.dup = outgoing.sent and session_present
                self._unsent[outgoing.packet_id] = outgoing
            elif session_present:
                write(encode_ack(PUBREL, outgoing.packet_id, self._version))
            else:
                self._settle(outgoing, outgoing.received)
        self._pump()

    def fail(self, error: MqttError) -> None:
        """Nothing will be sent or acknowledged any more."""
        for outgoing in list(self._held.values()):
            self._refuse(outgoing, error)

    def on_puback(self, ack: Ack) -> None:
        """Settle a QoS 1 message; a late or unknown PUBACK is harmless."""
        outgoing = self._sent(ack.packet_id)
        if outgoing is None or outgoing.qos != 1:
            return
        if ack.reason_code >= 0x80:
            self._refuse(outgoing, _refused(outgoing, ack))
        else:
            self._settle(outgoing, PublishOutcome(ack.reason_code, ack.properties))
        self._pump()

    def on_pubrec(self, ack: Ack) -> None:
        """The server has a QoS 2 message: release it, or hear why it does not take it [MQTT-4.3.3-4]."""
        assert self._write is not None, "an answer came without a connection"
        outgoing = self._sent(ack.packet_id)
        if outgoing is None or outgoing.qos != 2:
            if ack.reason_code < 0x80:
                code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self._version == V5 else 0
                self._write(encode_ack(PUBREL, ack.packet_id, self._version, code))
        elif ack.reason_code >= 0x80:
            self._refuse(outgoing, _refused(outgoing, ack))
            self._pump()
        else:
            outgoing.received = PublishOutcome(ack.reason_code, ack.properties)
            self._write(encode_ack(PUBREL, ack.packet_id, self._version))

    def on_pubcomp(self, ack: Ack) -> None:
        """Settle a QoS 2 message; a late or unknown PUBCOMP is harmless."""
        outgoing = self._sent(ack.packet_id)
        if outgoing is not None and outgoing.received is not None:
            self._settle(outgoing, outgoing.received)
            self._pump()

    def _sent(self, packet_id: int) -> Outgoing[Waiter] | None:
        return None if packet_id in self._unsent else self._held.get(packet_id)

    def _pump(self) -> None:
        """Send while the server has room."""
        if self._write is None:
            return
        while self._unsent and self.unacknowledged < self._limits.receive_maximum:
            _packet_id, outgoing = self._unsent.popitem(last=False)
            refusal = self._limits.refusal(outgoing.qos, outgoing.retain, len(outgoing.head) + 2 + len(outgoing.tail))
            if refusal is not None:
                self._refuse(outgoing, PublishRefused(outgoing.topic, *refusal))
                continue
            outgoing.sent = True
            self._write(outgoing.frame())

    def _settle(self, outgoing: Outgoing[Waiter], outcome: PublishOutcome) -> None:
        self._forget(outgoing)
        if not outgoing.waiter.done():
            outgoing.waiter.set_result(outcome)

    def _refuse(self, outgoing: Outgoing[Waiter], error: MqttError) -> None:
        self._forget(outgoing)
        if not outgoing.waiter.done():
            outgoing.waiter.set_exception(error)

    def _forget(self, outgoing: Outgoing[Waiter]) -> None:
        del self._held[outgoing.packet_id]
        self._unsent.pop(outgoing.packet_id, None)
        self._ids.release(outgoing.packet_id)
        if outgoing.holds_room:
            self._on_room()


def _refused(outgoing: Outgoing[Waiter], ack: Ack) -> PublishRefused:
    return PublishRefused(outgoing.topic, ack.reason_code, ack.properties.reason_string or "", ack.properties)
