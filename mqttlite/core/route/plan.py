"""Predicts the outcome of a PUBLISH or SUBSCRIBE: runs the broker's checks without their effects.

It asks the parts that make the real decision: `Router`, `Subscriptions`, `Routes`, `Session`. Invariant: it publishes,
counts and reports nothing, and changes no session.
"""

from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH
from mqttlite.core.authorizer import SUBSCRIBE as SUBSCRIBE_ACTION
from mqttlite.core.connect.capabilities import EVERYTHING, check_publish
from mqttlite.core.connect.connection import Connection
from mqttlite.core.effects import Effects
from mqttlite.core.identity import Identity
from mqttlite.core.inbound.back_pressure import NO_ROOM, BackPressure
from mqttlite.core.inbound.priority import OVERLOADED, is_low
from mqttlite.core.limits import DISCONNECT, Limits
from mqttlite.core.message import Message
from mqttlite.core.payload_check import PayloadCheck
from mqttlite.core.reasons import NOT_AUTHORIZED, QUEUE_FULL
from mqttlite.core.route.outlook import EXCLUDED, PUBLISHER_WAITS, PlannedReceiver
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.subscribe import TOPIC_FILTER_INVALID, Outcome, Subscriptions, asked_filter, check, granted_qos
from mqttlite.core.route.tally import DROPPED, NOT_AUTHORIZED_CODE, QUEUED, QUOTA_EXCEEDED
from mqttlite.core.route.topic_limits import topic_limits
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions
from mqttlite.topics.namespaces import ParsedTopic, is_control
from mqttlite.wire.errors import PacketTooLarge, PeerError
from mqttlite.wire.packets import SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties

NOT_ASKED: Final = "the topic has one, which was not asked: the payload is not known"
AS_CHECKED: Final = "the payload is what it says"

MAX_PLANNED: Final = 1_000
"""The most receivers that a plan names: some milliseconds, and a hundred kilobytes in the answer. Further ones are only
counted."""

MAX_RETAINED: Final = 10_000
"""The most retained messages that a plan examines: some ten milliseconds."""


@final
class PublishPlan:
    """The predicted outcome of a message. It has receivers only if the broker would accept it."""

    __slots__ = (
        "block_reason",
        "block_s",
        "code",
        "delay_s",
        "has_hook",
        "has_payload_check",
        "is_connected",
        "qos",
        "reason",
        "receivers",
        "retained",
        "sinks",
        "topic",
        "unnamed",
        "verdict",
        "wait_for",
        "wait_s",
    )

    def __init__(self, topic: bytes) -> None:
        self.topic: bytes = topic
        """The topic in the end: with the mount point, and without the `$delayed` prefix."""
        self.is_connected: bool = False
        """Whether the publisher is connected now, so that the limits of its listener apply."""
        self.code: int = 0
        """The reason code of a refusal; 0: the message is accepted."""
        self.reason: str = ""
        """The rule that allows the message, or the reason of the refusal."""
        self.qos: int = 0
        """The highest QoS at which it would be delivered."""
        self.retained: bool = False
        """Whether it would be retained."""
        self.has_hook: bool = False
        """Whether a hook is asked first, which may change or refuse the message. It is not asked here."""
        self.has_payload_check: bool = False
        """Whether payloads of the topic are checked."""
        self.verdict: str = ""
        """The verdict of the payload check: `NOT_ASKED`, `AS_CHECKED`, or the violation."""
        self.block_s: float = 0.0
        """How long the publisher would wait for a receiver without room before the message is refused."""
        self.block_reason: str = ""
        """That receiver, and why it has no room."""
        self.wait_s: float = 0.0
        """How long the publisher would wait for a receiver that reads. After that the message is published all the
        same."""
        self.wait_for: str = ""
        """The client identifier of that receiver."""
        self.delay_s: int = -1
        """The delay in seconds before it is published; -1: none."""
        self.receivers: list[PlannedReceiver] = []
        self.sinks: int = 0
        """How many of the receivers are not sessions, for example queues."""
        self.unnamed: int = 0
        """The number of receivers beyond `MAX_PLANNED`."""


@final
class SubscribePlan:
    """The predicted outcome of a subscription."""

    __slots__ = ("code", "has_hook", "is_connected", "reason", "retained", "retained_denied", "topic_filter")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter: bytes = topic_filter
        self.is_connected: bool = False
        self.code: int = 0
        """The reason code of SUBACK: the granted QoS, or a refusal from 0x80 on."""
        self.reason: str = ""
        self.has_hook: bool = False
        """Whether a hook is asked, too, which may refuse the subscription. It is not asked here."""
        self.retained: int = 0
        """The retained messages that the client would get, among the first `MAX_RETAINED`."""
        self.retained_denied: int = 0
        """The retained messages that the client may not receive."""


@final
class Planner:
    """One for each broker."""

    __slots__ = (
        "_back_pressure",
        "_effects",
        "_limits",
        "_online",
        "_router",
        "_routes",
        "_sessions",
        "_subscriptions",
        "_topic_limits",
    )

    def __init__(
        self,
        online: dict[str, Connection],
        sessions: Sessions,
        routes: Routes,
        router: Router,
        subscriptions: Subscriptions,
        back_pressure: BackPressure,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._online: Final = online
        self._sessions: Final = sessions
        self._routes: Final = routes
        self._router: Final = router
        self._subscriptions: Final = subscriptions
        self._back_pressure: Final = back_pressure
        self._effects: Final = effects
        self._limits: Final = limits
        self._topic_limits: Final = topic_limits(limits)
        routes.limit_topics(self._topic_limits)

    def publish(
        self,
        client_id: str,
        username: str | None,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        grants: Grants = NO_GRANTS,
        properties: Properties = NONE,
        knows_payload: bool = True,
    ) -> PublishPlan:
        """Predict a PUBLISH of a client, which is connected or not. Without `knows_payload` only the payload's size
        counts, and payload checks and filters that read it are not asked."""
        source = self._session(client_id, username, grants)
        plan = PublishPlan(topic)
        connection = self._connection(source)
        plan.is_connected = connection is not None
        try:
            if connection is not None:
                check_publish(connection.peer.capabilities, qos, retain)
                if connection.identity.mount_point and topic:
                    topic = plan.topic = self._routes.namespaces.mounted_name(connection.identity.mount_point, topic)
            route = self._routes.look(topic)
            message = Message(topic, payload, qos, retain, properties)
            plan.has_hook = route.hook is not None
            is_bound = route.delayed is None
            if route.delayed is not None and not route.refusal:
                route = self._delayed(plan, route.delayed)
                message = message.for_topic(plan.topic)
            self._plan(plan, route, message, source, knows_payload, is_bound)
        except PeerError as error:
            plan.code, plan.reason = error.reason_code, str(error)
        finally:
            self._let_go(source)
        return plan

    def subscribe(
        self, client_id: str, username: str | None, topic_filter: bytes, qos: int, grants: Grants = NO_GRANTS
    ) -> SubscribePlan:
        """Predict a SUBSCRIBE of a client, which is connected or not."""
        session = self._session(client_id, username, grants)
        connection = self._connection(session)
        plan = SubscribePlan(topic_filter)
        namespaces = self._routes.namespaces
        plan.is_connected = connection is not None
        capabilities = EVERYTHING if connection is None else connection.peer.capabilities
        try:
            mount_point = b"" if connection is None else connection.identity.mount_point
            if mount_point and topic_filter:
                topic_filter = plan.topic_filter = namespaces.mounted_filter(mount_point, topic_filter)
            request = SubscriptionRequest(topic_filter, qos)
            check(request)
            parts = namespaces.parse_filter(topic_filter)
            outcome = Outcome(0)
            plan.code = self._subscriptions.judge(capabilities, session, request, parts, 0, False, outcome)
            plan.reason = outcome.reason
            is_granted = plan.code == 0
            plan.has_hook = self._subscriptions.hook is not None
            if is_granted or plan.code == NOT_AUTHORIZED_CODE:
                asked = asked_filter(topic_filter, parts)
                plan.reason = self._routes.permissions.reason(session, SUBSCRIBE_ACTION, asked)
            namespace = self._routes.serves(topic_filter) if is_granted and parts.has_members else None
            missing = "" if namespace is None else namespace.missing(parts)
            if missing:
                plan.code, plan.reason = TOPIC_FILTER_INVALID, missing
            elif is_granted:
                plan.code = granted_qos(qos, parts)
                self._count_retained(plan, session, parts)
        except PeerError as error:
            plan.code, plan.reason = error.reason_code, str(error)
        finally:
            self._let_go(session)
        return plan

    def _session(self, client_id: str, username: str | None, grants: Grants) -> Session:
        """The session of a client if it belongs to this user, else a temporary session that is in no table."""
        session = self._sessions.get(client_id)
        if session is not None and session.username == username:
            return session
        session = Session(client_id, 0, self._effects, self._limits, None, self._routes.permissions)
        session.identify(Identity(username), session.version)
        session.grants = grants
        session.topic_limits = self._topic_limits
        return session

    def _let_go(self, session: Session) -> None:
        if self._sessions.get(session.client_id) is not session:
            session.release()

    def _connection(self, session: Session) -> Connection | None:
        connection = self._online.get(session.client_id)
        return connection if connection is not None and connection.session is session else None

    def _delayed(self, plan: PublishPlan, parsed: ParsedTopic) -> Route:
        plan.topic, plan.delay_s = parsed.rest, parsed.delay_s
        return self._routes.look(parsed.rest)

    def _plan(
        self, plan: PublishPlan, route: Route, message: Message, source: Session, knows_payload: bool, is_bound: bool
    ) -> None:
        """`is_bound` says that the topic's `block` and `reject` apply: the message comes from a client, now."""
        size = len(message.payload)
        if source.topic_limits.is_too_large(message.topic, size):
            plan.code, plan.reason = QUOTA_EXCEEDED, source.topic_limits.payload_refusal(size)
            if self._limits.on_large_payload == DISCONNECT:
                plan.code = PacketTooLarge.reason_code
            return
        plan.code, plan.reason = self._router.judge(route, message, source)
        if not plan.code and self._is_shed(route, message):
            plan.code, plan.reason = QUOTA_EXCEEDED, OVERLOADED
        if plan.code:
            return
        plan.reason = self._routes.permissions.reason(source, PUBLISH, message.topic)
        policy = route.policy
        if policy is not None:
            if policy.payload_check is not None and not self._passes_check(
                plan, policy.payload_check, message, knows_payload
            ):
                return
            message = policy.limited(message, self._effects.now)
        plan.qos = message.qos
        plan.retained = message.retain and route.retains and self._router.retained.would_keep(message)
        for receiver in route.receivers:
            self._add(plan, receiver.outlook(message, source))
        for client_id in self._routes.denied(message.topic):
            session = self._sessions.get(client_id)
            assert session is not None, "a subscriber has a session"
            rule = session.why_denied(message.topic)
            self._add(plan, PlannedReceiver(client_id, b"", 0, EXCLUDED, NOT_AUTHORIZED, rule))
        for sink in route.sinks:
            for planned in sink.outlook(message, source, knows_payload):
                self._add(plan, planned)
        if is_bound and route.asks_room and not route.has_room(message, message.qos, source):
            assert policy is not None, "it asks for room"
            self._find_no_room(plan, policy.blocks)
        elif is_bound and message.qos and self._limits.max_block_s > 0.0:
            reader = self._back_pressure.would_wait_for(message, route, source)
            if reader is not None:
                self._find_reader(plan, reader.client_id)

    def _is_shed(self, route: Route, message: Message) -> bool:
        """Whether overload drops the message, or refuses it to a 5.0 publisher."""
        effects = self._effects
        if route.is_low or is_low(message.properties):
            return effects.sheds_low_priority
        return effects.sheds_qos0 and message.qos == 0 and not is_control(message.topic)

    def _passes_check(self, plan: PublishPlan, check: PayloadCheck, message: Message, knows_payload: bool) -> bool:
        """Put the verdict of the topic's payload check into the plan. Return False if it refuses the message."""
        plan.has_payload_check = True
        if message.retain and not message.payload:  # it removes the retained message, and nothing is checked
            return True
        if not knows_payload:
            plan.verdict = NOT_ASKED
            return True
        violation = check.look(message.payload, message.properties)
        if violation is None:
            plan.verdict = AS_CHECKED
        elif violation.code:
            plan.code, plan.reason = violation.code, violation.reason
            return False
        else:
            plan.verdict = f"let through and counted: {violation.reason}"
        return True

    def _find_no_room(self, plan: PublishPlan, blocks: bool) -> None:
        """Find the first receiver without room, for which the topic's policy delays or refuses the message."""
        reason = NO_ROOM
        for each in plan.receivers:
            if each.outcome == DROPPED:
                reason = f"{NO_ROOM}: {each.client_id or each.sink} ({each.reason})"
                break
        if blocks and self._limits.max_block_s > 0.0:
            plan.block_s, plan.block_reason = self._limits.max_block_s, reason
        else:
            plan.code, plan.reason = QUOTA_EXCEEDED, reason
            plan.receivers, plan.sinks, plan.unnamed = [], 0, 0

    def _find_reader(self, plan: PublishPlan, client_id: str) -> None:
        """Note that the publisher waits until this receiver has read enough to have room."""
        plan.wait_s, plan.wait_for = self._limits.max_block_s, client_id
        for each in plan.receivers:
            if each.client_id == client_id and each.outcome == DROPPED and each.reason == QUEUE_FULL:
                each.outcome, each.reason = QUEUED, PUBLISHER_WAITS

    def _add(self, plan: PublishPlan, receiver: PlannedReceiver) -> None:
        plan.sinks += receiver.sink != ""
        if len(plan.receivers) < MAX_PLANNED:
            plan.receivers.append(receiver)
        else:
            plan.unnamed += 1

    def _count_retained(self, plan: SubscribePlan, session: Session, parts: ParsedTopic) -> None:
        if plan.topic_filter != parts.rest:  # a shared subscription gets none
            return
        for message in self._router.retained.search(parts.rest).take(MAX_RETAINED):
            if message.expired(self._effects.now):
                continue
            if session.may_get_retained(message):
                plan.retained += 1
            else:
                plan.retained_denied += 1
