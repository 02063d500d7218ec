"""Handles SUBSCRIBE and UNSUBSCRIBE (5.0 §3.8, §3.10), filter by filter.

A short packet is handled at once. A long one is a job that checks all filters, then handles them in order, then
answers; its connection waits meanwhile (`ITS_FILTERS`). Invariant: a granted subscription is in the session and the
routes before the SUBACK leaves, and a packet with a malformed filter changes nothing.
"""

from collections.abc import Sequence
from typing import Final, final

from mqttlite.core.authorizer import SUBSCRIBE as SUBSCRIBE_ACTION
from mqttlite.core.changes import RemoveSubscription, SaveSubscription
from mqttlite.core.connect.capabilities import Capabilities, refuse_subscription
from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connection import ITS_FILTERS, NOTHING, Connection
from mqttlite.core.effects import Effects
from mqttlite.core.hook import SubscriptionHook
from mqttlite.core.interest import HeldSuback, Wanted
from mqttlite.core.jobs import Job, Jobs
from mqttlite.core.limits import (
    EXPRESSIONS_PER_STEP,
    FILTER_WORK,
    FILTERS_PER_STEP,
    ITERATION_WORK,
    RETAINED_WAITING,
    Limits,
)
from mqttlite.core.message_filter import FilterCompiler, MessageFilter
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.retained.retained_replay import RetainedReplay
from mqttlite.core.route.requested_filters import RequestedFilters, requested_filters, without_filter
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.subscription import FilteredSubscription, Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.session.usage import Usage
from mqttlite.core.share_interest import members_of
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import ORDINARY, SHARED, Namespaces, ParsedTopic, split_share
from mqttlite.wire.constants import SUBSCRIBE, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError, ProtocolError
from mqttlite.wire.filters import FilterReader
from mqttlite.wire.packets import Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, describe

_NOT_AUTHORIZED: Final = 0x87
_MAY_NOT_UNSUBSCRIBE: Final = "the rules do not let it unsubscribe from this filter"
TOPIC_FILTER_INVALID: Final = 0x8F
_QUOTA_EXCEEDED: Final = 0x97
_NO_SUBSCRIPTION_EXISTED: Final = 0x11


_RETAIN_IF_NEW: Final = 1
_RETAIN_NEVER: Final = 2


@final
class Outcome:
    """The results of one SUBSCRIBE or UNSUBSCRIBE so far."""

    __slots__ = ("codes", "members", "reason", "retained", "used_up", "waiting", "wanted")

    def __init__(self, waiting: int) -> None:
        self.codes: Final = bytearray()
        """One reason code for each filter."""
        self.retained: Final[list[RetainedReplay]] = []
        """The replays of retained messages, which begin after the answer."""
        self.wanted: Final[list[Wanted]] = []
        """Those that are made when the answer has waited for others."""
        self.members: Final[list[tuple[int, bytes]]] = []
        """The filters that make the client a member of something, each with the place of its code."""
        self.waiting: int = waiting
        """How many retained messages wait for the session."""
        self.reason: str = ""
        """The reason string: why the first refused filter was refused."""
        self.used_up: Usage | None = None
        """The group whose limit of subscriptions refused the latest filter."""


@final
class Subscriptions:
    """Handles SUBSCRIBE and UNSUBSCRIBE."""

    __slots__ = ("_closing", "_compiler", "_effects", "_jobs", "_limits", "_router", "_routes", "hook")

    def __init__(
        self,
        routes: Routes,
        router: Router,
        closing: Closing,
        jobs: Jobs,
        effects: Effects,
        limits: Limits,
        compiler: FilterCompiler,
    ) -> None:
        self._compiler: Final = compiler
        self._routes: Final = routes
        self._router: Final = router
        self._closing: Final = closing
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._limits: Final = limits
        self.hook: SubscriptionHook | None = None
        """Asked about each subscription, if it is set."""

    def on_subscribe(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        """Handle a short SUBSCRIBE.

        Raises `TopicFilterInvalid` for an invalid filter, `ProtocolError` for options that contradict it,
        `PacketTooLarge` if the SUBACK is too large for the client.
        """
        filters = self.filters_of(connection, packet.properties)
        for request in packet.requests:
            check(request if filters is None else filters.base(request))
        outcome = Outcome(session.retained_waiting)
        self.subscribe(connection, session, packet.requests, packet.properties, outcome, filters)
        self.answer(connection, session, SUBSCRIBE, packet.packet_id, outcome)
        if outcome.retained:
            session.deliver_retained(outcome.retained)

    def on_unsubscribe(self, connection: Connection, session: Session, packet: Unsubscribe) -> None:
        """Handle a short UNSUBSCRIBE. Raises like `on_subscribe`."""
        topic_filters = packet.topic_filters
        if connection.peer.capabilities.filter_suffix:
            topic_filters = tuple([without_filter(topic_filter) for topic_filter in topic_filters])
        for topic_filter in topic_filters:
            check_filter(topic_filter)
            split_share(topic_filter)
        outcome = Outcome(0)
        for topic_filter in topic_filters:
            outcome.codes.append(self.unsubscribe_if_allowed(session, topic_filter))
        self._effects.work += FILTER_WORK * len(outcome.codes)
        self.answer(connection, session, 0, packet.packet_id, outcome)

    def start(self, connection: Connection, session: Session, first: int, body: bytes) -> None:
        """Start the job for a long SUBSCRIBE or UNSUBSCRIBE. Raises a `PeerError` for an error before its filters."""
        reader = FilterReader(first, body, connection.version)
        filters = self.filters_of(connection, reader.properties)
        connection.waits_for = ITS_FILTERS
        connection.deferred = True
        self._jobs.start(_LongPacket(self, self._closing, self._effects, connection, session, reader, filters))

    def filters_of(self, connection: Connection, properties: Properties) -> RequestedFilters | None:
        """The message filters of a packet; None if it cannot have any."""
        return requested_filters(connection, properties, self._compiler, self._effects)

    def subscribe(
        self,
        connection: Connection,
        session: Session,
        requests: Sequence[SubscriptionRequest],
        properties: Properties,
        outcome: Outcome,
        filters: RequestedFilters | None,
    ) -> None:
        """Subscribe to checked filters, and add the results to the outcome.

        Each filter is handled on its own and gets its own code [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.9.3-1].
        """
        identifiers = properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        capabilities = connection.peer.capabilities
        tracer = self._effects.tracer
        mount_point = connection.identity.mount_point
        namespaces = self._routes.namespaces
        for request in requests:
            if connection.is_bridge:
                request = _of_bridge(request)
            message_filter: MessageFilter | None = None
            refusal, earlier_reason = "", outcome.reason
            if filters is not None:
                requested = filters.of(request)
                request = filters.base(request)
                message_filter, refusal = requested.message_filter, requested.refusal
            if mount_point:
                request = _mounted(namespaces, request, mount_point)
            existing = tracer is not None and request.topic_filter in session.subscriptions
            parts = namespaces.parse_filter(request.topic_filter)
            code = self.judge(capabilities, session, request, parts, identifier, message_filter is not None, outcome)
            is_denied = code == _NOT_AUTHORIZED
            if is_denied:
                self._routes.permissions.deny(session, SUBSCRIBE_ACTION, request.topic_filter)
                if not outcome.reason and connection.problem_information:
                    outcome.reason = self._routes.permissions.told(session, SUBSCRIBE_ACTION, request.topic_filter)
            if code == 0 and self.hook is not None and not session.identity.is_trusted:
                code, sentence = self.hook.refusal(session, request.topic_filter, request.qos)
                outcome.reason = outcome.reason or sentence
            if outcome.used_up is not None:
                outcome.used_up.limits.count_refused(outcome.used_up.limits.subscriptions_name)
                outcome.used_up = None
            if code == 0 and parts.has_members:
                namespace = self._routes.serves(request.topic_filter)
                assert namespace is not None, "else it is refused"
                expression = "" if message_filter is None else message_filter.expression
                refusal = refusal or namespace.admit(session, parts, expression, properties.user_properties)
                message_filter = None  # the feature applies the filter
            if code == 0 and refusal:
                code = TOPIC_FILTER_INVALID
                outcome.reason = outcome.reason or refusal
            if code == 0:
                code = granted_qos(request.qos, parts)  # [MQTT-3.8.4-7]
                at_once = outcome.waiting < RETAINED_WAITING
                replay = self._subscribe(session, request, parts, identifier, at_once, message_filter, outcome)
                if parts.has_members:
                    outcome.members.append((len(outcome.codes), request.topic_filter))
                if replay is not None and (outcome.waiting or len(replay)):  # an empty one may replace an earlier one
                    outcome.retained.append(replay)
                    outcome.waiting += len(replay)
            elif not is_denied:
                why = describe(code) if earlier_reason or not outcome.reason else outcome.reason
                self._routes.permissions.tell_refused(session, SUBSCRIBE_ACTION, request.topic_filter, why)
            if tracer is not None:
                tracer.on_subscribed(connection.number, request.topic_filter, request.qos, code, existing)
            if code >= SUBACK_FAILURE and connection.version != V5:
                code = SUBACK_FAILURE
            outcome.codes.append(code)
        self._effects.work += FILTER_WORK * len(requests)

    def judge(
        self,
        capabilities: Capabilities,
        session: Session,
        request: SubscriptionRequest,
        parts: ParsedTopic,
        identifier: int,
        is_filtered: bool,
        outcome: Outcome,
    ) -> int:
        """The reason code that refuses a subscription; 0 if it is granted. The outcome gets the sentence, unless a
        permission rule has one."""
        code = refuse_subscription(capabilities, parts, identifier)
        if code:
            outcome.reason = outcome.reason or parts.filter_refusal
            return code
        routes = self._routes
        if routes.limits_topics and session.topic_limits.excludes(parts.rest):
            outcome.reason = outcome.reason or session.topic_limits.refusal(parts.rest)
            return TOPIC_FILTER_INVALID
        topic_filter = request.topic_filter
        asked = asked_filter(topic_filter, parts)
        if not routes.permissions.may_subscribe(session, asked):
            return _NOT_AUTHORIZED
        known = topic_filter in session.subscriptions
        if is_filtered and not parts.has_members and not self._has_room_for_filter(session, topic_filter):
            return _QUOTA_EXCEEDED
        if not known and not session.identity.is_relay:
            if len(session.subscriptions) >= self._limits.max_subscriptions:
                return _QUOTA_EXCEEDED
            if self._effects.memory.room_for(session.held_bytes) < 0:
                return _QUOTA_EXCEEDED
            for usage in session.queue.usages:
                refusal = usage.refusal()
                if refusal:
                    outcome.reason = outcome.reason or refusal
                    outcome.used_up = usage
                    return _QUOTA_EXCEEDED
        if parts.namespace == ORDINARY:
            return 0
        if parts.has_members and routes.serves(topic_filter) is None:
            outcome.reason = outcome.reason or f"{parts.shown}: this broker does not serve it"
            return TOPIC_FILTER_INVALID
        if not known and parts.namespace == SHARED and not session.identity.is_relay:
            return _QUOTA_EXCEEDED if routes.groups_of(session) >= self._limits.max_shared_subscriptions else 0
        return 0

    def unsubscribe_if_allowed(self, session: Session, topic_filter: bytes) -> int:
        """End a subscription by the filter that its client names, if the rules allow it. Return the code for
        UNSUBACK."""
        if session.identity.mount_point:
            topic_filter = self._routes.namespaces.mounted_filter(session.identity.mount_point, topic_filter)
        permissions = self._routes.permissions
        if permissions.restricts and not permissions.may_unsubscribe(session, self.asked(topic_filter)):
            permissions.deny(session, SUBSCRIBE_ACTION, topic_filter, reason=_MAY_NOT_UNSUBSCRIBE)
            return _NOT_AUTHORIZED
        return self.unsubscribe(session, topic_filter)

    def asked(self, topic_filter: bytes) -> bytes:
        """The filter to check against the rules for a subscription."""
        return asked_filter(topic_filter, self._routes.namespaces.parse_filter(topic_filter))

    def unsubscribe(self, session: Session, topic_filter: bytes) -> int:
        """End a subscription by its filter with mount point. Return the code for UNSUBACK [MQTT-3.10.4-6]
        [MQTT-3.11.3-1].

        It gets no new messages [MQTT-3.10.4-2]; those in flight or queued stay [MQTT-3.10.4-3].
        """
        subscription = session.pop_subscription(topic_filter)  # [MQTT-3.10.4-1]
        if subscription is None:
            return _NO_SUBSCRIPTION_EXISTED
        self._routes.remove(subscription)
        session.end_retained(topic_filter)
        if self._effects.tracer is not None and session.outbox is not None:
            self._effects.tracer.on_unsubscribed(session.outbox.number, topic_filter)
        if session.durable:
            self._effects.record(RemoveSubscription(session.client_id, topic_filter))
        return 0

    def end(self, session: Session, topic_filter: bytes) -> None:
        """End a subscription that the client may no longer have, and report it like a denied SUBSCRIBE."""
        if self.unsubscribe(session, topic_filter) == 0:
            self._routes.permissions.deny(session, SUBSCRIBE_ACTION, topic_filter)

    def answer(
        self, connection: Connection, session: Session, packet_type: int, packet_id: int, outcome: Outcome
    ) -> None:
        """Send the SUBACK or UNSUBACK. For a durable session it waits for the commit. Where others are told what is
        subscribed, SUBACK waits for them, too.

        UNSUBACK has no reason string [MQTT-3.11.2-1] [MQTT-3.11.2-2]. Raises `PacketTooLarge`.
        """
        outbox = connection.outbox
        interest = self._effects.interest
        if packet_type == SUBSCRIBE:  # [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-2.2.1-6]
            frame = suback(connection, packet_id, bytes(outcome.codes), outcome.reason)
            connection.check_size(frame, "SUBACK")
            if interest is not None and not session.client_id.startswith(interest.relays):
                held = HeldSuback(
                    *(connection.number, packet_id, outcome.codes, outcome.reason, outcome.wanted, outcome.members)
                )
                if interest.hold(held):
                    session.held_subacks += len(outcome.members) > 0
                    return
                outcome.retained.extend(self.replays(outcome.wanted))
        else:  # [MQTT-3.10.4-4] [MQTT-3.10.4-5]
            frame = encode(Unsuback(packet_id, bytes(outcome.codes)), connection.version)
            connection.check_size(frame, "UNSUBACK")
        outbox.awaits_commit = outbox.awaits_commit or session.durable
        outbox.answer(frame)

    def _has_room_for_filter(self, session: Session, topic_filter: bytes) -> bool:
        replaced = session.subscriptions.get(topic_filter)
        if replaced is not None and replaced.message_filter is not None:
            return True
        return session.filters < self._limits.max_filtered_subscriptions

    def _subscribe(
        self,
        session: Session,
        request: SubscriptionRequest,
        parts: ParsedTopic,
        identifier: int,
        at_once: bool,
        message_filter: MessageFilter | None,
        outcome: Outcome,
    ) -> RetainedReplay | None:
        topic_filter = request.topic_filter
        wants_retained = _wants_retained(session, request, parts)
        qos, no_local, as_published = request.qos, request.no_local, request.retain_as_published
        replaced = session.subscriptions.get(topic_filter)
        if replaced is None:
            since = self._effects.numbers.ahead_us + int(self._effects.now * MICROSECONDS)
        else:
            since = replaced.subscribed_at
        subscription: Subscription
        if message_filter is None:
            subscription = Subscription(session.client_id, topic_filter, qos, no_local, as_published, identifier, since)
        else:
            subscription = FilteredSubscription(
                session.client_id, topic_filter, qos, no_local, as_published, identifier, message_filter, since
            )
        session.add_subscription(subscription, replaced)
        self._routes.add(subscription, replaced)  # [MQTT-3.8.4-3]; messages in flight are not lost [MQTT-3.8.4-4]
        if session.durable and not _is_soft(session, subscription, replaced):
            self._effects.record(SaveSubscription(session.client_id, subscription))
        if not wants_retained:
            return None
        identifiers = (identifier,) if identifier else ()
        if self._effects.interest is not None and not session.identity.is_relay:
            outcome.wanted.append(Wanted(topic_filter, qos, identifiers, message_filter))
            return None
        return self._router.retained.replay(topic_filter, qos, identifiers, at_once, message_filter)

    def replays(self, wanted: Sequence[Wanted]) -> list[RetainedReplay]:
        """Of the retained messages of now."""
        retained = self._router.retained
        return [retained.replay(each.topic_filter, each.qos, each.identifiers, True, each.where) for each in wanted]


@final
class _LongPacket(Job):
    """One long SUBSCRIBE or UNSUBSCRIBE. It parses the filters twice instead of keeping a hundred bytes for each."""

    __slots__ = (
        "_closing",
        "_connection",
        "_delivered",
        "_effects",
        "_filters",
        "_is_checked",
        "_outcome",
        "_reader",
        "_session",
        "_subscriptions",
    )

    def __init__(
        self,
        subscriptions: Subscriptions,
        closing: Closing,
        effects: Effects,
        connection: Connection,
        session: Session,
        reader: FilterReader,
        filters: RequestedFilters | None,
    ) -> None:
        self._subscriptions: Final = subscriptions
        self._closing: Final = closing
        self._effects: Final = effects
        self._connection: Final = connection
        self._session: Final = session
        self._reader: Final = reader
        self._filters: Final = filters
        self._outcome: Final = Outcome(session.retained_waiting)
        self._delivered = 0
        self._is_checked = False

    def step(self) -> bool:
        """Do parts while the budget lasts. Stops early when the connection has ended."""
        connection = self._connection
        while connection.waits_for == ITS_FILTERS:
            try:
                is_done = self._do_part()
            except PeerError as error:
                self._closing.fail(connection, error)
                return True
            if is_done:
                connection.waits_for = NOTHING
                self._effects.deferred.append(connection.number)
                return True
            if self._effects.work >= ITERATION_WORK:
                return False
        return True

    def _do_part(self) -> bool:
        reader = self._reader
        if not self._is_checked:
            requests = reader.take(FILTERS_PER_STEP)
            for request in requests:
                check(request if self._filters is None else self._filters.base(request))
            self._effects.work += FILTER_WORK * len(requests)
            if reader.has_ended():
                self._is_checked = True
                reader.rewind()
            return False
        if not reader.has_ended():
            has_suffixes = self._connection.peer.capabilities.filter_suffix
            self._handle(reader.take(EXPRESSIONS_PER_STEP if has_suffixes else FILTERS_PER_STEP))
            if reader.has_ended():
                subscriptions, session = self._subscriptions, self._session
                subscriptions.answer(self._connection, session, reader.packet_type, reader.packet_id, self._outcome)
                return not self._outcome.retained
            return False
        replays = self._outcome.retained[self._delivered : self._delivered + FILTERS_PER_STEP]
        self._session.deliver_retained(replays)
        self._effects.work += FILTER_WORK * len(replays)
        self._delivered += len(replays)
        return self._delivered == len(self._outcome.retained)

    def _handle(self, requests: list[SubscriptionRequest]) -> None:
        if self._reader.packet_type == SUBSCRIBE:
            self._subscriptions.subscribe(
                self._connection, self._session, requests, self._reader.properties, self._outcome, self._filters
            )
            return
        has_suffixes = self._connection.peer.capabilities.filter_suffix
        for request in requests:
            topic_filter = without_filter(request.topic_filter) if has_suffixes else request.topic_filter
            self._outcome.codes.append(self._subscriptions.unsubscribe_if_allowed(self._session, topic_filter))
        self._effects.work += FILTER_WORK * len(requests)


def _is_soft(session: Session, subscription: Subscription, replaced: Subscription | None) -> bool:
    """Whether a relay only says that another number of the members it stands for is connected. That need not be kept:
    after a restart it says so again."""
    return (
        replaced is not None
        and session.identity.is_relay
        and subscription.share_name != b""
        and subscription.qos == replaced.qos
        and members_of(subscription.identifier) == members_of(replaced.identifier)
    )


def asked_filter(topic_filter: bytes, parts: ParsedTopic) -> bytes:
    """The filter to check against the rules. For a member it is the target alone, because the right to be one does not
    depend on topics."""
    return parts.target if parts.has_members else topic_filter


def granted_qos(wanted: int, parts: ParsedTopic) -> int:
    """The QoS of a subscription to a filter."""
    return min(wanted, parts.max_qos)


def _of_bridge(request: SubscriptionRequest) -> SubscriptionRequest:
    """What a bridge before 5.0 would ask for if it could. A shared subscription has no No Local [MQTT-3.8.3-4]."""
    no_local = not split_share(request.topic_filter)[0]
    return SubscriptionRequest(request.topic_filter, request.qos, no_local, True, request.retain_handling)


def _mounted(namespaces: Namespaces, request: SubscriptionRequest, mount_point: bytes) -> SubscriptionRequest:
    """The request with the mount point added to its filter."""
    return SubscriptionRequest(
        namespaces.mounted_filter(mount_point, request.topic_filter),
        request.qos,
        request.no_local,
        request.retain_as_published,
        request.retain_handling,
    )


def _wants_retained(session: Session, request: SubscriptionRequest, parts: ParsedTopic) -> bool:
    """Whether a new subscription gets retained messages."""
    if parts.namespace == SHARED or parts.has_members:
        return False  # a shared subscription gets no retained messages (5.0 §4.8.2)
    if request.retain_handling == _RETAIN_IF_NEW:  # [MQTT-3.3.1-10]
        return request.topic_filter not in session.subscriptions
    return request.retain_handling != _RETAIN_NEVER  # [MQTT-3.3.1-11]


def check(request: SubscriptionRequest) -> None:
    """Check a topic filter. Raises `TopicFilterInvalid`, or `ProtocolError` for No Local on a shared subscription
    [MQTT-3.8.3-4]."""
    check_filter(request.topic_filter)
    if split_share(request.topic_filter)[0] and request.no_local:
        raise ProtocolError("No Local on a shared subscription [MQTT-3.8.3-4]")


def suback(connection: Connection, packet_id: int, codes: bytes, reason: str) -> bytes:
    """The SUBACK [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-2.2.1-6], without user properties [MQTT-3.9.2-2].

    It has the reason string, if there is one, if the client wants it [MQTT-3.1.2-29] and if it fits [MQTT-3.9.2-1].
    """
    if reason and connection.version == V5 and connection.problem_information:
        frame = encode(Suback(packet_id, codes, Properties(reason_string=reason)), V5)
        if not connection.outbox.is_too_large(len(frame)):
            return frame
    return encode(Suback(packet_id, codes), connection.version)
