"""Subscribers over HTTP: each has a `LocalSession` of the core, with the identity and grants of its caller.

`sse` and `ws_json` write to the socket. Invariant: the core delivers to such a session as to any
other, so that limits, back-pressure, rules, telemetry and `why` treat it as one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mqttlite.gateway.caller import LISTENER, Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.waker import Waker
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, encoded_filter
from mqttlite.topics.namespaces import Namespaces
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Suback, SubscriptionRequest
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


class HttpSession(LocalSession):
    """One subscriber. `wake` is called when there is something to read, or the session is over."""

    __slots__ = ("_context", "caller")

    def __init__(self, context: GatewayContext, caller: Caller, transport: str, wake: Callable[[], None]) -> None:
        super().__init__(context.core, context.loop_driver, wake, LISTENER, transport, caller.peer)
        self.caller: Final = caller
        self._context: Final = context

    def begin(self, client_id: str = "", session_expiry_s: int = 0) -> None:
        """Begin, or go on with the session of that client identifier. Raises `Problem`."""
        caller = self.caller
        client = LocalClient(
            client_id=client_id,
            username=caller.username,
            grants=caller.grants,
            clean_start=not session_expiry_s,
            session_expiry_s=session_expiry_s,
            quotas=self._context.quotas,
            mount_point=self._context.mount_point.prefix,
            is_told=True,
            sees_publishers=caller.may(Role.VIEWER),
        )
        try:
            self.connect(client, WINDOW)
        except ConnectionRefusedError as error:
            code = Code.NOT_AUTHORIZED if self.link.connection.reason_code in _FORBIDDEN else Code.BUSY
            raise Problem(code, f"the broker does not take the subscriber: {error}") from None

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
    def close_detail(self) -> str:
        """Why it is over, in words."""
        return self.link.connection.close_detail or "its last subscription was ended"

    async def subscribed(self, requests: Sequence[SubscriptionRequest], where: str, readable: Waker) -> None:
        """Subscribe, and wait for the answer. `where` is a filter on the messages' content; empty: all. Raises
        `Problem` where a filter is refused."""
        packet_id = self.subscribe(requests, where or None)
        while True:
            readable.clear()
            answer = self.answer_to(packet_id)
            if isinstance(answer, Suback):
                for code, request in zip(answer.reason_codes, requests, strict=True):
                    if code >= SUBACK_FAILURE:
                        raise refusal(code, request.topic_filter, answer.properties.reason_string)
                return
            if self.is_over:
                raise Problem(Code.BUSY, f"the subscription ended: {self.close_detail}")
            await readable.wait()

    def acknowledge_id(self, packet_id: int) -> None:
        """The subscriber has the QoS 1 message of that identifier."""
        self.link.send(Ack(PUBACK, packet_id))

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


def requests_of(filters: Sequence[bytes], qos: int, retained: int = RETAINED_IF_NEW) -> list[SubscriptionRequest]:
    """Subscriptions to these topic filters. `retained` is MQTT's Retain Handling."""
    return [SubscriptionRequest(each, qos, retain_handling=retained) for each in filters]


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


def filters_of(names: Sequence[str], namespaces: Namespaces) -> list[bytes]:
    """Topic filters in bytes: an invalid one would end the session. Raises `Problem`."""
    if not names:
        raise Problem(Code.INVALID_VALUE, "filter is missing: ?filter=a/%2B/b names the topics")
    if len(names) > MAX_FILTERS:
        raise Problem(Code.INVALID_VALUE, f"{len(names)} filters: {MAX_FILTERS} at most")
    found: list[bytes] = []
    for name in dict.fromkeys(names):
        try:
            found.append(encoded_filter(name, namespaces))
        except UnicodeEncodeError:
            raise Problem(Code.BAD_REQUEST, "a topic filter is no UTF-8") from None
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, str(error)) from None
    return found
