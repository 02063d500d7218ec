"""A session whose client is this process: a consumer in the program, an HTTP subscriber, one side of a bridge.

It lives as long as its connection, or is kept under its client identifier for a time. The core delivers to it as to
any session; how its consumer waits for messages is not decided here. Invariants: only the consumer acknowledges a
message, when it wants to; what a kept session delivers is on disk with its packet identifier.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from mqttlite.core.broker import Broker
from mqttlite.core.reasons import NACKED
from mqttlite.core.route.requested_filters import PROPERTY as FILTER_PROPERTY
from mqttlite.core.source import Source
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LOCAL, LocalClient, LocalLink
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import Namespaces
from mqttlite.wire.constants import MAX_STRING_BYTES, PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

Received: TypeAlias = Publish | Suback | Unsuback | Ack
"""What a consumer reads: a message, an answer, or an acknowledgement of what it published."""

_NOTHING: Final[deque[Received]] = deque()
"""Never added to. Shared by sessions that read nothing ahead, because a deque takes 600 bytes."""


class LocalSession:
    """`on_readable` is called when there is something to read, and at the end. It must not raise.

    `listener`, `transport` and `address` name it in logs, metrics and telemetry. The session answers each PUBREL. A
    bridge, which must release the same packet identifier at the other broker first, reads `link` and answers itself.
    """

    __slots__ = ("_ahead", "_packet_id", "link")

    def __init__(
        self,
        core: Broker,
        loop_driver: LinkDriver,
        on_readable: Callable[[], None],
        listener: str = LOCAL,
        transport: str = LOCAL,
        address: str = LOCAL,
    ) -> None:
        self.link: Final = LocalLink(core, loop_driver, on_readable, listener, transport, address)
        self._ahead = _NOTHING
        """What was read before an answer."""
        self._packet_id = 0

    def connect(self, client: LocalClient, receive_maximum: int) -> None:
        """Begin, or go on with the session of that client identifier. At most `receive_maximum` messages of QoS 1 and 2
        are unacknowledged at a time. Raises `ConnectionRefusedError` if the broker does not accept it."""
        self.link.connect(client, receive_maximum)

    @property
    def client_id(self) -> str:
        """The client identifier: the one asked for, or the one that the broker assigned."""
        return self.link.connection.client_id

    @property
    def session_present(self) -> bool:
        """Whether it goes on with a session that was there before."""
        return self.link.connection.session_present

    @property
    def is_durable(self) -> bool:
        """Whether the session outlives its connection."""
        return self.link.connection.session_expiry_s > 0

    @property
    def is_over(self) -> bool:
        """Whether its connection has ended. What has come before may still be read."""
        return self.link.gone

    @property
    def source(self) -> Source | None:
        """The session as a publisher, to which No Local applies; None once it is over."""
        return self.link.connection.session

    @property
    def filters(self) -> list[bytes]:
        """Its topic filters, as the core knows them."""
        session = self.link.connection.session
        return [] if session is None else list(session.subscriptions)

    def dropped(self) -> int:
        """How many messages were dropped for it since its connection began, or while it was away."""
        session, outbox = self.link.connection.session, self.link.connection.outbox
        return sum(outbox.drops.values()) + (0 if session is None else sum(session.drops.values()))

    # ------------------------------------------------------------------ subscriptions

    def subscribe(self, requests: Sequence[SubscriptionRequest], where: str | None = None) -> int:
        """Send SUBSCRIBE, with a filter on the content of messages or without; the packet identifier of its answer."""
        packet = self._subscribe(requests, where)
        self.link.send(packet)
        return packet.packet_id

    def subscribe_at_once(self, request: SubscriptionRequest, where: str | None = None) -> Suback:
        """Subscribe to one filter, and return the answer. Must be the first request of the connection.

        The answer says what is true in memory; it is on disk after the next commit.
        """
        self.link.send_at_once(self._subscribe((request,), where))
        answer = self.link.unwritten(SUBACK)
        assert isinstance(answer, Suback)
        return answer

    def _subscribe(self, requests: Sequence[SubscriptionRequest], where: str | None) -> Subscribe:
        properties = NONE if where is None else Properties(user_properties=[(FILTER_PROPERTY, where)])
        return Subscribe(self._next_packet_id(), tuple(requests), properties)

    def unsubscribe(self, filters: Sequence[bytes]) -> int:
        """Send UNSUBSCRIBE; the packet identifier of its answer."""
        packet_id = self._next_packet_id()
        self.link.send(Unsubscribe(packet_id, tuple(filters)))
        return packet_id

    def answer_to(self, packet_id: int) -> Suback | Unsuback | None:
        """The answer to a request, if it has come. What came before it is received later, in order."""
        while (packet := self._read()) is not None:
            if isinstance(packet, Suback | Unsuback) and packet.packet_id == packet_id:
                return packet
            if self._ahead is _NOTHING:
                self._ahead = deque()
            self._ahead.append(packet)
        return None

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    # ------------------------------------------------------------------ messages

    def receive(self) -> Received | None:
        """The next message or answer; None if there is none now. After the end it stays None."""
        return self._ahead.popleft() if self._ahead else self._read()

    def _read(self) -> Received | None:
        while (packet := self.link.receive()) is not None:
            if isinstance(packet, Ack) and packet.packet_type == PUBREL:
                self.complete(packet.packet_id)
            elif isinstance(packet, Publish | Suback | Unsuback | Ack):
                return packet
        return None

    def acknowledge(self, message: Publish, reason_code: int = 0) -> None:
        """The consumer has a message, or with a code from 0x80 on refuses it. Messages may be acknowledged in any
        order. Harmless for QoS 0, and after the end: a kept session then delivers the message again."""
        if message.qos:
            self.link.send(Ack(PUBACK if message.qos == 1 else PUBREC, message.packet_id, reason_code))

    def refuse(self, message: Publish, reason_code: int = ReasonCode.UNSPECIFIED_ERROR) -> None:
        """The consumer cannot use a message. It is dropped with the reason `nacked`, and does not come again."""
        session = self.link.connection.session
        if message.qos == 0 and session is not None:
            session.drop(NACKED, 1, message.topic)
        self.acknowledge(message, reason_code)

    def complete(self, packet_id: int) -> None:
        """Answer a PUBREL: the packet identifier may be used again."""
        self.link.send(Ack(PUBCOMP, packet_id))

    def number_of(self, packet_id: int) -> int:
        """The number of a message that was sent and is not acknowledged; 0 if there is none of that identifier."""
        session = self.link.connection.session
        if session is None:
            return 0
        window = session.window
        found = window.resend.get(packet_id) or window.inflight.by_id().get(packet_id)
        return 0 if found is None else found.message().number

    def uses(self, packet_id: int) -> bool:
        """Whether a message that was sent under this identifier is not done with."""
        session = self.link.connection.session
        return self.number_of(packet_id) > 0 or (session is not None and session.window.released.has(packet_id))

    def unreleased(self) -> list[int]:
        """The identifiers of published QoS 2 messages that wait for `release`, also from earlier connections."""
        session = self.link.connection.session
        return [] if session is None else session.received.all()

    def awaits_release(self, packet_id: int) -> bool:
        """Whether that is one of `unreleased`."""
        session = self.link.connection.session
        return session is not None and session.received.has(packet_id)

    def publish(self, message: Publish) -> None:
        """Publish as a client does, with a packet identifier of the caller's choice. The acknowledgements come by
        `receive`. A kept session remembers the identifier of a QoS 2 message until `release`, also over a crash."""
        self.link.send(message)

    def release(self, packet_id: int) -> None:
        """Send PUBREL for a published message of QoS 2."""
        self.link.send(Ack(PUBREL, packet_id))

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """Close the connection; a second call is harmless. A kept session waits for the next one."""
        if not self.link.gone:
            self._ahead = _NOTHING
            self.link.leave()

    def leave(self) -> None:
        """Close the connection and end the session, kept or not. Harmless after the end of the connection."""
        if not self.link.gone:
            self._ahead = _NOTHING
            self.link.leave(session_expiry_s=0)


def waiting_in(core: Broker, client_id: str) -> int:
    """How many messages of QoS 1 and 2 a kept session has that its consumer has not acknowledged; 0 without one."""
    session = core.sessions.get(client_id)
    if session is None:
        return 0
    return len(session.queue) + len(session.window.inflight) + len(session.window.resend)


def encoded_filter(name: str, namespaces: Namespaces) -> bytes:
    """A topic filter in bytes. Raises `TopicFilterInvalid`, because an invalid one would end the connection."""
    encoded = name.encode()
    if len(encoded) > MAX_STRING_BYTES or b"\0" in encoded:
        raise TopicFilterInvalid("a topic filter has at most 65535 bytes, and no U+0000 [MQTT-4.7.3-2]")
    check_filter(encoded)
    refusal = namespaces.parse_filter(encoded).filter_refusal
    if refusal:
        raise TopicFilterInvalid(refusal)
    return encoded
