"""Subscribers over HTTP: each is a client of the core on a `LocalLink`, with the identity and grants of its caller.

What is written to the socket lives in `sse` and `ws_json`. Invariant: the core delivers to such a session as to any
other, so that limits, back-pressure, rules, telemetry and `why` treat it as one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mqttlite.core.requested_filters import PROPERTY as FILTER_PROPERTY
from mqttlite.gateway.caller import LISTENER, Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.waker import Waker
from mqttlite.net.local_link import LocalClient, LocalLink
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import parse_filter
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Connack, Packet, Publish, Suback, Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, ReasonCode

WINDOW: Final = 1_000
"""Messages of QoS 1 that a session is sent and has not acknowledged."""

STREAM: Final = "sse"
SOCKET: Final = "ws-json"
"""The transports in telemetry, metrics and the log."""

RETAINED_ALWAYS: Final = 0
RETAINED_IF_NEW: Final = 1
RETAINED_NEVER: Final = 2
"""When a subscription brings retained messages (5.0 §3.8.3.1)."""

_FORBIDDEN: Final = frozenset(
    {ReasonCode.BANNED, ReasonCode.NOT_AUTHORIZED, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID},
)
"""Why the core refuses a subscriber for good, and not for now."""

MAX_FILTERS: Final = 100
"""Topic filters of one request: a URL has no room for many more."""


class HttpSession:
    """One subscriber. `wake` is called when there is something to read, or the session is over."""

    __slots__ = ("_context", "_early", "_packet_id", "caller", "is_durable", "link", "session_present")

    def __init__(self, context: GatewayContext, caller: Caller, transport: str, wake: Callable[[], None]) -> None:
        self.caller: Final = caller
        self.link: Final = LocalLink(context.core, context.loop_driver, wake, LISTENER, transport, caller.peer)
        self.session_present: bool = False
        self.is_durable: bool = False
        self._context: Final = context
        self._early: list[Publish] = []
        """Messages that came before the answer to the first SUBSCRIBE: what a durable session is sent again."""
        self._packet_id = 0

    def connect(self, client_id: str = "", session_expiry_s: int = 0) -> None:
        """Begin, or go on with the session of that client identifier. Raises `Problem`."""
        self.is_durable = session_expiry_s > 0
        caller = self.caller
        client = LocalClient(
            client_id=client_id,
            username=caller.username,
            grants=caller.grants,
            clean_start=not self.is_durable,
            session_expiry_s=session_expiry_s,
            quotas=self._context.quotas,
            mount_point=self._context.mount_point.prefix,
            is_told=True,
            sees_publishers=caller.may(Role.VIEWER),
        )
        try:
            self.link.connect(WINDOW, client)
        except ConnectionRefusedError as error:
            code = Code.NOT_AUTHORIZED if self.link.connection.reason_code in _FORBIDDEN else Code.BUSY
            raise Problem(code, f"the broker does not take the subscriber: {error}") from None
        self.session_present = self.link.connection.session_present

    @property
    def client_id(self) -> str:
        """The client identifier by which the broker knows it."""
        return self.link.connection.client_id

    @property
    def caller_key(self) -> str:
        """Names its caller."""
        return self.caller.key

    @property
    def is_revoked(self) -> bool:
        """Whether its caller's API key, or the certificate of its connection, is revoked."""
        caller = self.caller
        if caller.certificate is not None and caller.certificate.is_revoked:
            return True
        return caller.how.startswith("key ") and not self._context.api_keys.holds(caller.how.removeprefix("key "))

    @property
    def is_over(self) -> bool:
        return self.link.gone

    @property
    def close_detail(self) -> str:
        """Why it is over, in words."""
        return self.link.connection.close_detail or "its last subscription was ended"

    def dropped(self) -> int:
        """Messages that were dropped for it, since its connection began or while it was away."""
        session, outbox = self.link.connection.session, self.link.connection.outbox
        return sum(outbox.drops.values()) + (0 if session is None else sum(session.drops.values()))

    def next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def subscribe(self, filters: Sequence[bytes], qos: int, where: str = "", retained: int = RETAINED_IF_NEW) -> int:
        """Send SUBSCRIBE; the packet identifier of its answer.

        `where` is a filter on the messages' content; empty: all. `retained` is MQTT's Retain Handling.
        """
        packet_id = self.next_packet_id()
        requests = tuple(SubscriptionRequest(each, qos, retain_handling=retained) for each in filters)
        properties = Properties(user_properties=[(FILTER_PROPERTY, where)]) if where else NONE
        self.link.send(Subscribe(packet_id, requests, properties))
        return packet_id

    def unsubscribe(self, filters: Sequence[bytes]) -> int:
        """Send UNSUBSCRIBE; the packet identifier of its answer."""
        packet_id = self.next_packet_id()
        self.link.send(Unsubscribe(packet_id, tuple(filters)))
        return packet_id

    def read(self) -> Iterator[Packet]:
        """What there is to read: messages and answers."""
        early, self._early = self._early, []
        yield from early
        while (packet := self.link.receive()) is not None:
            if isinstance(packet, Ack) and packet.packet_type == PUBREL:
                self.link.send(Ack(PUBCOMP, packet.packet_id))
            elif not isinstance(packet, Connack):
                yield packet

    async def subscribed(
        self, filters: Sequence[bytes], qos: int, readable: Waker, where: str, retained: int = RETAINED_IF_NEW
    ) -> None:
        """Subscribe before anything else, and wait for the answer. Raises `Problem` where a filter is refused."""
        packet_id = self.subscribe(filters, qos, where, retained)
        while True:
            readable.clear()
            while (packet := self.link.receive()) is not None:
                if isinstance(packet, Publish):
                    self._early.append(packet)
                elif isinstance(packet, Suback) and packet.packet_id == packet_id:
                    check_answer(packet, filters)
                    return
            if self.link.gone:
                raise Problem(Code.BUSY, f"the subscription ended: {self.close_detail}")
            await readable.wait()

    def acknowledge(self, packet: Publish) -> None:
        """The subscriber has a message."""
        if packet.qos:
            self.link.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))

    def acknowledge_id(self, packet_id: int) -> None:
        """The subscriber has the QoS 1 message of that identifier."""
        self.link.send(Ack(PUBACK, packet_id))

    def number_of(self, packet_id: int) -> int:
        """The number of a message that was sent and is not acknowledged; 0 if there is none of that identifier."""
        session = self.link.connection.session
        if session is None:
            return 0
        window = session.window
        found = window.resend.get(packet_id) or window.inflight.by_id().get(packet_id)
        return 0 if found is None else found.message().number

    def end_revoked(self) -> None:
        """Its credentials were revoked."""
        what = "API key" if self.caller.how.startswith("key ") else "certificate"
        core = self._context.core
        core.end_unauthorized(self.link.connection, f"the {what} was revoked", self._context.clock())
        self._context.loop_driver.wake()

    def end_unsubscribed(self) -> None:
        """End a stream without a subscription: no message can come. Its kept session stays; a WebSocket goes on."""
        session = self.link.connection.session
        if self.link.transport == STREAM and session is not None and not session.subscriptions:
            self.link.leave()
            self.link.finish()

    def end(self) -> None:
        """The subscriber is gone; harmless where the session is over. A durable one waits for it."""
        if not self.link.gone:
            self.link.leave()


def check_answer(answer: Suback, filters: Sequence[bytes]) -> None:
    """Raises `Problem` where a filter was refused."""
    for code, topic_filter in zip(answer.reason_codes, filters, strict=True):
        if code >= SUBACK_FAILURE:
            raise refusal(code, topic_filter, answer.properties.reason_string)


def refusal(code: int, topic_filter: bytes, why: str | None) -> Problem:
    """Why a topic filter is refused."""
    name = topic_filter.decode(errors="replace")[:200]
    if code == ReasonCode.NOT_AUTHORIZED:
        return Problem(Code.NOT_AUTHORIZED, f"the caller may not subscribe to {name!r}: {why or 'denied'}")
    if code == ReasonCode.QUOTA_EXCEEDED:
        return Problem(Code.QUOTA_EXCEEDED, f"no subscription to {name!r}: {why or 'a limit is reached'}")
    if code == ReasonCode.TOPIC_FILTER_INVALID and why:  # the filter in `where` cannot be read
        return Problem(Code.BAD_REQUEST, f"no subscription to {name!r}: {why}")
    return Problem(Code.INVALID_TOPIC, f"no subscription to {name!r}: {why or f'refused with 0x{code:02X}'}")


def filters_of(names: Sequence[str]) -> list[bytes]:
    """Topic filters in bytes: an invalid one would end the session. Raises `Problem`."""
    if not names:
        raise Problem(Code.INVALID_VALUE, "filter is missing: ?filter=a/%2B/b names the topics")
    if len(names) > MAX_FILTERS:
        raise Problem(Code.INVALID_VALUE, f"{len(names)} filters: {MAX_FILTERS} at most")
    found: list[bytes] = []
    for name in dict.fromkeys(names):
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            raise Problem(Code.BAD_REQUEST, "a topic filter is no UTF-8") from None
        if b"\0" in encoded or len(encoded) > 65_535:
            raise Problem(Code.INVALID_TOPIC, "a topic filter has at most 65535 bytes, and no U+0000")
        try:
            check_filter(encoded)
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, str(error)) from None
        why = parse_filter(encoded).filter_refusal
        if why:
            raise Problem(Code.INVALID_TOPIC, why)
        found.append(encoded)
    return found
