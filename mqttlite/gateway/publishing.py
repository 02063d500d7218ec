"""Publishes for HTTP and WebSocket callers, and returns the outcome counted by the fan-out.

The core asks whether a caller's `Source` may publish, as for clients of MQTT. Invariant: an outcome is returned
after the message is in the session of every receiver, and on disk if it must be.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from mqttlite.core.inbound.inbound import Ticket
from mqttlite.core.reasons import (
    BUFFER_FULL,
    NO_SUBSCRIBERS,
    OVERLOAD_LOW_PRIORITY,
    OVERLOAD_QOS0,
    PACKET_TOO_LARGE,
    QUEUE_FULL,
    RATE_LIMITED,
)
from mqttlite.core.route.tally import NOT_AUTHORIZED_CODE, POLICY_REFUSES, QUOTA_EXCEEDED, TOPIC_NAME_INVALID, Tally
from mqttlite.core.source import Publisher
from mqttlite.gateway.caller import Caller
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.wire.constants import MAX_STRING_BYTES, NEVER_EXPIRES, PUBLISH
from mqttlite.wire.errors import PeerError, TopicNameInvalid
from mqttlite.wire.properties import NONE, Properties, encode_properties
from mqttlite.wire.reason_codes import ReasonCode

MAX_USER_PROPERTIES: Final = 100
"""Of one message."""

ACKS: Final = "acks"
"""The user property with what a publisher has finished."""

REFUSED: Final = 0x80
"""Codes from here on are refusals."""

MAX_ACKS: Final = 100
"""Of one message: as many groups in one commit."""

_STREAM: Final = b"$stream/"
_COMMAND: Final = b"$stream/$"
"""The topics of streams, and of commands about them."""

_ELSEWHERE: Final = {
    b"$queue": "$queue/…: over HTTP nothing is published to a queue; acknowledge with POST "
    "/v1/projects/{project}/subscriptions/{subscription}:acknowledge, and look after queues with /api/v1/queues and "
    "/api/v1/dead-letters",
    b"$CONTROL": "$CONTROL/…: over HTTP nothing is published there; POST /api/v1/dynamic-security/commands takes "
    "commands",
}
"""The requests that replace what MQTT clients publish, by first level."""


class MessageProperties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a message beside its payload (5.0 §3.3.2.3)."""

    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: str | None = None
    """In base64."""
    expiry_s: int | None = None
    user_properties: dict[str, str] = {}


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message in JSON."""

    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    encoding: Literal["json", "text", "base64"] = "json"
    """`json`: the payload is that JSON; `text` and `base64`: it is what the string says."""
    qos: int = 0
    retain: bool = False
    properties: MessageProperties | None = None
    acks: list[str] = []
    """What the caller has finished in groups of streams, in the commit of the message: user properties `acks`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be published."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default=NONE, repr=False)
    has_acks: bool = False
    """Whether it is refused as a whole if what its caller has finished is refused."""


BACKPRESSURE: Final = frozenset((QUEUE_FULL, BUFFER_FULL, RATE_LIMITED, OVERLOAD_LOW_PRIORITY, OVERLOAD_QOS0))
"""The drop reasons that end by themselves, when receivers read or the load falls."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message."""

    message_id: int
    delivered_to: int
    """Receivers to which it is on its way; a shared subscription is one."""
    queued_for: int
    dropped_for: dict[str, int]
    """Receivers that do not get it, by reason."""
    reached: int

    @property
    def dropped(self) -> bool | Literal["backpressure"]:
        """Whether it has no receiver, or was dropped for one. `backpressure`: mostly because a receiver or the broker
        takes no more messages now."""
        return "backpressure" if self.reason in BACKPRESSURE else self.reason is not None

    @property
    def reason(self) -> str | None:
        """Why it was dropped, for most of them."""
        if not self.reached:
            return NO_SUBSCRIBERS
        return max(self.dropped_for, key=self.dropped_for.__getitem__) if self.dropped_for else None

    def json(self) -> bytes:
        """As routes answer it."""
        if self.reached and not self.dropped_for:
            return b'{"message_id":"%d","delivered_to":%d,"queued_for":%d,"dropped":false,"reason":null}' % (
                *(self.message_id, self.delivered_to, self.queued_for),
            )
        reason = str(self.reason)
        dropped = b'"backpressure"' if reason in BACKPRESSURE else b"true"
        return b'{"message_id":"%d","delivered_to":%d,"queued_for":%d,"dropped":%s,"reason":"%s"}' % (
            *(self.message_id, self.delivered_to, self.queued_for),
            *(dropped, reason.encode()),
        )


class Publishing:
    """One for each gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        self._core: Final = context.core
        self._loop_driver: Final = context.loop_driver
        self.topic_of: Final = context.mount_point.topic_of

    async def publish(self, caller: Caller, draft: Draft) -> Outcome:
        """Publish a message and wait until every receiver has it. Raises `Problem`."""
        ticket = self.offer(caller, draft)
        await self._loop_driver.finish(ticket)
        return self.outcome(caller, draft, ticket)

    def offer(self, caller: Caller, draft: Draft) -> Ticket:
        """Hand a message to the core. Raises `Problem`."""
        if draft.has_acks and (not draft.topic.startswith(_STREAM) or draft.topic.startswith(_COMMAND)):
            topic = draft.topic.decode(errors="replace")[:200]
            raise Problem(
                Code.INVALID_VALUE, f"acks: only a message to $stream/<name> finishes others, not one to {topic!r}"
            )
        try:
            return self._core.publish(
                *(draft.topic, draft.payload, draft.qos, draft.retain, self._context.clock(), draft.properties),
                caller.source,
            )
        except TopicNameInvalid as error:
            first_level = draft.topic.partition(b"/")[0]
            raise Problem(Code.INVALID_TOPIC, _ELSEWHERE.get(first_level, str(error))) from None

    def outcome(self, caller: Caller, draft: Draft, ticket: Ticket) -> Outcome:
        """Return the outcome of a message. Raises `Problem` if it was refused."""
        tally = ticket.tally
        if tally.is_refused or (draft.has_acks and tally.code >= REFUSED):
            raise self._refusal(caller, draft.topic, tally)
        return Outcome(ticket.message_id(), tally.sent, tally.queued, tally.dropped, tally.reached)

    def admit(self, caller: Caller, messages: int, size: int) -> Caller:
        """The caller of a request with many messages, which are charged together and wait for room together. Raises
        `Problem`."""
        source = caller.source
        refused = self._core.admit(source, messages, size, self._context.clock())
        if refused is not None:
            raise self._refusal(caller, b"", refused)
        if not isinstance(source, Publisher):
            return caller
        blocks_until = self._context.clock() + self._context.config.limits.max_block_s
        return replace(caller, source=source.for_request(blocks_until))

    def _refusal(self, caller: Caller, name: bytes, tally: Tally) -> Problem:
        code = tally.code
        topic = name.decode(errors="replace")[:200]
        if code == NOT_AUTHORIZED_CODE:
            if tally.refusal:
                return Problem(Code.NOT_AUTHORIZED, tally.refusal)
            why = self._core.permissions.told(caller.source, "publish", name)
            return Problem(Code.NOT_AUTHORIZED, f"the caller may not publish to {topic!r}: {why or 'denied'}")
        if code == POLICY_REFUSES:
            return Problem(Code.POLICY_REFUSES, tally.refusal)
        if code == ReasonCode.PAYLOAD_FORMAT_INVALID:
            return Problem(Code.PAYLOAD_INVALID, tally.refusal)
        if code == TOPIC_NAME_INVALID:
            why = caller.source.topic_limits.refusal(name)
            return Problem(Code.INVALID_TOPIC, why or f"the broker does not serve the topic {topic!r}")
        if PACKET_TOO_LARGE in tally.dropped:
            return Problem(Code.TOO_LARGE, tally.refusal)
        if code == QUOTA_EXCEEDED:
            why = tally.refusal or "there is no room for one more retained or delayed message"
            return Problem(Code.QUOTA_EXCEEDED, why, headers={"Retry-After": "1"})
        return Problem(Code.BUSY, f"the broker does not take the message (0x{code:02X})")


def draft_of(topic: bytes, body: MessageBody) -> Draft:
    """The message that a body in JSON describes. Raises `Problem`."""
    check_qos(body.qos)
    properties = properties_of(body.properties)
    if body.acks:  # at QoS 0 the caller would not hear what became of them
        return Draft(topic, payload_of(body), max(body.qos, 1), body.retain, with_acks(properties, body.acks), True)
    return Draft(topic, payload_of(body), body.qos, body.retain, properties)


def with_acks(properties: Properties, acks: Sequence[str]) -> Properties:
    """The properties with what the caller has finished. Raises `Problem`."""
    if len(acks) > MAX_ACKS:
        raise Problem(Code.INVALID_VALUE, f"{len(acks)} acks: {MAX_ACKS} at most")
    return checked(with_user_properties(properties, [(ACKS, each) for each in acks]))


def with_user_properties(properties: Properties, more: Sequence[tuple[str, str]]) -> Properties:
    """The properties of a caller's message with more user properties."""
    return Properties(
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        message_expiry_interval=properties.message_expiry_interval,
        user_properties=[*properties.user_properties, *more],
    )


def check_qos(qos: int) -> None:
    """Raises `Problem`."""
    if not 0 <= qos <= 2:
        raise Problem(Code.INVALID_VALUE, f"qos is {qos}: it may be 0, 1 or 2")


def payload_of(body: MessageBody) -> bytes:
    """The bytes of a payload in JSON. Raises `Problem`."""
    raw = bytes(body.payload)
    if body.encoding == "json":
        return raw
    try:
        text = msgspec.json.decode(raw, type=str)
        return text.encode() if body.encoding == "text" else base64.b64decode(text, validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise Problem(Code.INVALID_VALUE, f"payload is no string in {body.encoding}, as encoding says") from None


def properties_of(given: MessageProperties | None) -> Properties:
    """The properties of MQTT. Raises `Problem`."""
    if given is None:
        return NONE
    if len(given.user_properties) > MAX_USER_PROPERTIES:
        raise Problem(
            Code.INVALID_VALUE, f"{len(given.user_properties)} user properties: {MAX_USER_PROPERTIES} at most"
        )
    try:
        encoded = given.correlation_data
        correlation = None if encoded is None else base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(Code.INVALID_VALUE, "properties.correlation_data is not base64") from None
    return checked(
        Properties(
            content_type=given.content_type,
            response_topic=given.response_topic,
            correlation_data=correlation,
            message_expiry_interval=given.expiry_s,
            user_properties=list(given.user_properties.items()),
        )
    )


def checked(properties: Properties) -> Properties:
    """Properties that a PUBLISH may have. Raises `Problem`."""
    expiry_s = properties.message_expiry_interval
    if expiry_s is not None and not 0 <= expiry_s <= NEVER_EXPIRES:
        raise Problem(Code.INVALID_VALUE, f"expiry_s is {expiry_s}: it may be 0 to {NEVER_EXPIRES}")
    response_topic = properties.response_topic
    if response_topic is not None and (not response_topic or "+" in response_topic or "#" in response_topic):
        raise Problem(Code.INVALID_VALUE, "response_topic is no topic name: it is empty or has a wildcard")
    texts = [text for pair in properties.user_properties for text in pair]
    texts += [each for each in (properties.content_type, response_topic) if each is not None]
    for text in texts:
        try:
            is_wrong = "\0" in text or len(text.encode()) > MAX_STRING_BYTES
        except UnicodeEncodeError:
            is_wrong = True
        if is_wrong:
            raise Problem(Code.INVALID_VALUE, f"a property is no text of MQTT: {text[:40]!r}")
    if properties.correlation_data is not None and len(properties.correlation_data) > MAX_STRING_BYTES:
        raise Problem(Code.INVALID_VALUE, f"correlation_data has more than {MAX_STRING_BYTES} bytes")
    try:
        encode_properties(properties, PUBLISH)
    except (PeerError, ValueError) as error:
        raise Problem(Code.INVALID_VALUE, f"properties: {error}") from None
    return properties
