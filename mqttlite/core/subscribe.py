"""SUBSCRIBE and UNSUBSCRIBE (5.0 §3.8, §3.10): subscriptions begin, change and end, filter by filter.

Invariant: what a SUBACK grants is in the session and in the routes before the SUBACK is on its way.
"""

from typing import Final

from mqttlite.core.capabilities import Capabilities, refuse_subscription
from mqttlite.core.changes import RemoveSubscription, SaveSubscription
from mqttlite.core.effects import Effects
from mqttlite.core.limits import RETAINED_WAITING, Limits
from mqttlite.core.retained_replay import RetainedReplay
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session
from mqttlite.core.subscription import Subscription
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import SHARED, ParsedTopic, parse_filter
from mqttlite.wire.constants import V5
from mqttlite.wire.errors import ProtocolError
from mqttlite.wire.packets import Subscribe, SubscriptionRequest
from mqttlite.wire.reason_codes import SUBACK_FAILURE

_NOT_AUTHORIZED: Final = 0x87
_QUOTA_EXCEEDED: Final = 0x97
_NO_SUBSCRIPTION_EXISTED: Final = 0x11

_RETAIN_IF_NEW: Final = 1
_RETAIN_NEVER: Final = 2


class Subscriptions:
    """What SUBSCRIBE and UNSUBSCRIBE do."""

    __slots__ = ("_effects", "_limits", "_router", "_routes")

    def __init__(self, routes: Routes, publisher: Router, effects: Effects, limits: Limits) -> None:
        self._routes: Final = routes
        self._router: Final = publisher
        self._effects: Final = effects
        self._limits: Final = limits

    def subscribe(
        self, session: Session, packet: Subscribe, version: int, capabilities: Capabilities
    ) -> tuple[bytes, list[RetainedReplay], str]:
        """The SUBACK's reason codes, one for each filter, the retained messages to send after it, its reason string.

        The reason string is the first filter's that is of a namespace which the broker does not serve, or empty.

        The filters are taken one by one, and so are their codes [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.9.3-1].
        Raises `TopicFilterInvalid` for a filter that breaks the rules, `ProtocolError` for options that contradict it;
        then nothing of the packet is done.
        """
        parsed = [_parse(request) for request in packet.requests]
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        codes = bytearray()
        retained: list[RetainedReplay] = []
        reason = ""
        waiting = session.retained_waiting
        tracer = self._effects.tracer
        for request, parts in zip(packet.requests, parsed, strict=True):
            existing = tracer is not None and request.topic_filter in session.subscriptions
            code = refuse_subscription(capabilities, parts, identifier)
            code = code or self._refusal(session, request, parts)
            reason = reason or parts.refusal
            if code == 0:
                code = request.qos  # [MQTT-3.8.4-7]
                replay = self._subscribe(session, request, parts, identifier, waiting < RETAINED_WAITING)
                if replay is not None:
                    retained.append(replay)
                    waiting += len(replay)
            if tracer is not None:
                tracer.on_subscribed(_number(session), request.topic_filter, request.qos, code, existing)
            if code >= SUBACK_FAILURE and version != V5:
                code = SUBACK_FAILURE
            codes.append(code)
        return bytes(codes), retained, reason

    def unsubscribe(self, session: Session, topic_filters: tuple[bytes, ...]) -> bytes:
        """The UNSUBACK's reason codes, in the order of the filters [MQTT-3.10.4-6] [MQTT-3.11.3-1].

        Nothing more is added for them [MQTT-3.10.4-2]; what is in flight or queued stays [MQTT-3.10.4-3]. Raises
        `TopicFilterInvalid` as `subscribe` does.
        """
        for topic_filter in topic_filters:
            check_filter(topic_filter)
            parse_filter(topic_filter)
        codes = bytearray()
        for topic_filter in topic_filters:
            subscription = session.subscriptions.pop(topic_filter, None)  # [MQTT-3.10.4-1]
            if subscription is None:
                codes.append(_NO_SUBSCRIPTION_EXISTED)
                continue
            self._routes.remove(subscription)
            session.end_retained(topic_filter)
            if self._effects.tracer is not None:
                self._effects.tracer.on_unsubscribed(_number(session), topic_filter)
            if session.durable:
                self._effects.changes.append(RemoveSubscription(session.client_id, topic_filter))
            codes.append(0)
        return bytes(codes)

    def _refusal(self, session: Session, request: SubscriptionRequest, parts: ParsedTopic) -> int:
        if not self._routes.authorizer.may_subscribe(session.role, request.topic_filter):
            return _NOT_AUTHORIZED
        known = request.topic_filter in session.subscriptions
        if not known and len(session.subscriptions) >= self._limits.max_subscriptions:
            return _QUOTA_EXCEEDED
        if not known and parts.namespace == SHARED:
            return _QUOTA_EXCEEDED if self._routes.groups_of(session) >= self._limits.max_shared_subscriptions else 0
        return 0

    def _subscribe(
        self, session: Session, request: SubscriptionRequest, parts: ParsedTopic, identifier: int, at_once: bool
    ) -> RetainedReplay | None:
        topic_filter = request.topic_filter
        wants_retained = _wants_retained(session, request, parts)
        replaced = session.subscriptions.get(topic_filter)
        subscription = Subscription(
            session.client_id,
            topic_filter,
            request.qos,
            request.no_local,
            request.retain_as_published,
            identifier,
        )
        session.subscriptions[topic_filter] = subscription
        self._routes.add(subscription, replaced)  # [MQTT-3.8.4-3]; messages on their way stay there [MQTT-3.8.4-4]
        if session.durable:
            self._effects.changes.append(SaveSubscription(session.client_id, subscription))
        if not wants_retained:
            return None
        identifiers = (identifier,) if identifier else ()
        return self._router.retained.replay(topic_filter, request.qos, identifiers, at_once)


def _number(session: Session) -> int:
    """That of the connection from which it subscribes."""
    assert session.outbox is not None
    return session.outbox.number


def _wants_retained(session: Session, request: SubscriptionRequest, parts: ParsedTopic) -> bool:
    """Whether a subscription is to be sent what is retained."""
    if parts.namespace == SHARED:
        return False  # the retained messages of a group would have no one receiver (5.0 §4.8.2)
    if request.retain_handling == _RETAIN_IF_NEW:  # [MQTT-3.3.1-10]
        return request.topic_filter not in session.subscriptions
    return request.retain_handling != _RETAIN_NEVER  # [MQTT-3.3.1-11]


def _parse(request: SubscriptionRequest) -> ParsedTopic:
    """Raises `TopicFilterInvalid`, or `ProtocolError` for No Local on a shared subscription [MQTT-3.8.3-4]."""
    check_filter(request.topic_filter)
    parts = parse_filter(request.topic_filter)
    if parts.namespace == SHARED and request.no_local:
        raise ProtocolError("No Local on a shared subscription [MQTT-3.8.3-4]")
    return parts
