"""Routes a published message: authorises, traces, retains or delays it, and fans it out.

`forward` is the hot path: it forwards QoS 0 messages of one topic as the bytes in which they came. Everything else is a
`Message` or a `PublishBatch` with a `FanOut`. Invariant: each receiver of the route gets the message, or a drop is
counted with its reason.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.core.authorizer import PUBLISH
from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Jobs
from mqttlite.core.limits import CHECK_WORK, CHECKED_BYTES_PER_WORK_UNIT, CROWD, DELAY_WORK, OUTBOXES_PER_WORK_UNIT
from mqttlite.core.message import NO_PROPERTIES, Message, PublishBatch, RawProperties, reframed
from mqttlite.core.reasons import NO_SUBSCRIBERS, NOT_AUTHORIZED, PAYLOAD_INVALID, QUEUE_FULL
from mqttlite.core.retained.publish_order import published_us
from mqttlite.core.retained.retained_store import RetainedStore
from mqttlite.core.route.fan_out import BatchFanOut, FanOut, MessageFanOut, count_unheard
from mqttlite.core.route.message_tracing import MessageTracing
from mqttlite.core.route.relayed import RETAINED_COPY
from mqttlite.core.route.route import NO_RECEIVERS, Receiver, Route
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.route.tally import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED_CODE,
    POLICY_REFUSES,
    QUOTA_EXCEEDED,
    SUCCESS,
    TOPIC_NAME_INVALID,
    Tally,
)
from mqttlite.core.sink import Sink
from mqttlite.core.source import CLIENT, Source
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.topics.namespaces import ParsedTopic
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.properties import NONE

_DOLLAR: Final = 0x24
"""Topics that begin with `$` are each broker's own."""


class Delays(Protocol):
    """Keeps messages until they are due."""

    def put(self, message: Message, delay_s: int, source: Source) -> bool:
        """Publish a message to its topic after `delay_s`; False if there is no room for it."""
        ...


@final
class Router:
    __slots__ = ("_effects", "_jobs", "_routes", "_tracing", "delays", "drops", "on_retained", "retained")

    def __init__(
        self,
        routes: Routes,
        retained: RetainedStore,
        drops: Drops,
        effects: Effects,
        jobs: Jobs,
    ) -> None:
        self._routes: Final = routes
        self._effects: Final = effects
        self._jobs: Final = jobs
        self._tracing: Final = MessageTracing(routes, effects)
        self.retained: Final = retained
        self.drops: Final = drops
        self.on_retained: Callable[[Message], None] | None = None
        """Called with each message that was retained here, and by no copy; also with one that only removes another."""
        self.delays: Delays | None = None
        """Set once, before the first message. It publishes through this router."""

    def forward(
        self,
        route: Route,
        topic: bytes,
        piece: bytes,
        size: int,
        head: int,
        version: int,
        source: Source,
        raw: RawProperties = NO_PROPERTIES,
    ) -> FanOut | None:
        """Forward QoS 0 packets of one topic, `size` bytes each, with the payload at offset `head`. The route must be
        direct, and the source allowed to publish to it.

        All have the properties in `raw`. Receivers with the publisher's protocol version get the bytes unchanged. The
        others are served by a fan-out; until it is done, the publisher's next messages must wait.
        """
        messages = len(piece) // size
        effects = self._effects
        observed = route.observed
        if observed is not None:
            traces = self._tracing.begin(observed, route, topic, 0, messages, size - head, source, True)
            if traces:
                self._publish_traced(traces, topic, piece, size, head, route, source, raw)
                messages -= len(traces)
                if messages == 0:
                    return None
                piece = piece[len(traces) * size :]
        if version == V5:
            same, different = route.direct5, route.direct3
        else:
            same, different = route.direct3, route.direct5
        dirty = effects.dirty
        dirty_before = len(dirty)
        for outbox in same:
            if outbox.blocked:
                outbox.offer(piece, messages, raw.expires_at(effects.now))
                continue
            outbox.chunks.append(piece)
            outbox.sent_qos0 += messages
            if not outbox.dirty:
                outbox.dirty = True
                dirty.append(outbox)
        reached = len(same)
        effects.pending_bytes += len(piece) * reached
        effects.work += reached // OUTBOXES_PER_WORK_UNIT
        if different:
            other = V311 if version == V5 else V5
            packets, _head = reframed(topic, piece, size, head, 0, other, raw)
            for outbox in different:
                outbox.offer(packets, messages, raw.expires_at(effects.now))
            reached += len(different)
            effects.pending_bytes += len(packets) * len(different)
        if reached > CROWD:
            effects.note_crowd(dirty_before)
        if route.special:
            batch = PublishBatch(topic, piece, size, head, 0, version, raw, raw.expires_at(effects.now))
            tally = Tally()
            tally.reached = reached
            sinks = route.heard if source.identity.is_relay else route.sinks
            return self._start_batch(batch, route.others, sinks, source, tally)
        if reached == 0:
            self.drops.add(NO_SUBSCRIBERS, messages, topic)
        return None

    def refuse(self, route: Route, topic: bytes, messages: int, payload_bytes: int, source: Source) -> None:
        """Count and report a run of QoS 0 messages that the source may not publish, each with a payload of this
        size."""
        observed = route.observed
        if observed is not None:
            traces = self._tracing.begin(observed, route, topic, 0, messages, payload_bytes, source, False)
            for trace in traces:
                self._deny(route, source, topic, 1, trace)
            messages -= len(traces)
        if messages:
            self._deny(route, source, topic, messages)

    def publish(
        self, message: Message, route: Route, source: Source, at_once: bool = False, is_allowed: bool = False
    ) -> FanOut:
        """Retain and deliver a message.

        The tally's code is that of PUBACK, and final once the fan-out is done: 0; 0x10 for no subscribers; 0x83 or 0x99
        if the topic's policy refuses the message and no queue keeps it as a dead letter; 0x87 if the client may not
        publish; 0x97 if a queue or the retained store is full. With `at_once` the fan-out is done when this returns,
        regardless of the budget. `is_allowed` says that the authorizer and the payload check were already asked.
        """
        tally = Tally()
        message.publisher = source.client_id
        allowed = route.is_open or is_allowed or self.may_publish(route, message.topic, source)
        observed = route.observed
        if observed is not None and not message.trace:  # a traced message was counted with its batch
            traces = self._tracing.begin(
                observed, route, message.topic, message.qos, 1, len(message.payload), source, allowed, message.number
            )
            if traces:
                message.trace = message.number = traces[0]
        if not allowed:
            if route.delayed is not None:
                self._delay(route.delayed, message, source, tally)
            else:
                self._deny(route, source, message.topic, 1, message.trace)
                # A 3.1.1 client gets no reason code [3.1.1 MQTT-3.3.5-2].
                tally.code = _denial_code(route, source, message.topic)
            return FanOut(tally)
        policy = route.policy
        if policy is not None:
            if self._refuse(policy, message, message.topic, source, tally, is_allowed):
                return FanOut(tally)
            limited = policy.limited(message, self._effects.now)
            if limited is not message:
                message.number = self._effects.identify(limited)  # so that the publisher is told the number of the copy
            message = limited
        receivers, sinks = route.receivers, route.sinks
        if message.target:
            if message.target[0] == RETAINED_COPY:
                self._keep_copy(message, tally)
                return FanOut(tally)
            receivers, sinks = NO_RECEIVERS, [self._routes.target_of(message.target, message.topic)]
        elif source.identity.is_relay:
            sinks = route.heard
        elif message.retain and route.retains:  # [MQTT-3.3.1-8]
            message = self._retain(message, source, tally)
        if not receivers and not sinks:
            tally.code = tally.code or NO_MATCHING_SUBSCRIBERS
            count_unheard(message, self.drops)
            return FanOut(tally)
        fan_out = MessageFanOut(message, self._effects, self.drops, receivers, sinks, source, tally, at_once)
        self._jobs.start(fan_out)
        return fan_out

    def _retain(self, message: Message, source: Source, tally: Tally) -> Message:
        """Retain a message that is published here. Return it as it is delivered."""
        if self.retained.order.is_on:
            message = self.retained.placed(message, source.dates_retained)
        writer = source.writer() if self._routes.permissions.restricts else None
        tally.is_durable = True
        if message.retain:
            if not self.retained.put(message, writer, source.dates_retained):
                tally.code = QUOTA_EXCEEDED
            elif self.on_retained is not None and message.topic[0] != _DOLLAR:
                self.on_retained(message)
        return message

    def _keep_copy(self, message: Message, tally: Tally) -> None:
        """Retain a message that was retained at another broker, if it is newer than that of this one."""
        tally.reached = 1  # so that it does not count as without subscribers
        message = self.retained.placed(message, True)
        kept = self.retained.get(message.topic)
        is_there = kept is not None and (published_us(kept), kept.payload) == (published_us(message), message.payload)
        if message.retain and not is_there:
            tally.is_durable = True
            if not self.retained.put(message, None, True):
                tally.code = QUOTA_EXCEEDED

    def judge(self, route: Route, message: Message, source: Source) -> tuple[int, str]:
        """The reason code and sentence that refuse a message (not for `$delayed`); 0 if it may be published. Counts
        nothing."""
        topic = message.topic
        if not route.is_open and not self.may_publish(route, topic, source):
            code = _denial_code(route, source, topic)
            if code == NOT_AUTHORIZED_CODE:
                return code, self._routes.permissions.reason(source, PUBLISH, topic)
            return code, route.refusal or source.topic_limits.refusal(topic)
        refusal = (
            "" if route.policy is None else route.policy.refusal(message.qos, message.retain, len(message.payload))
        )
        return (POLICY_REFUSES, refusal) if refusal else (0, "")

    def publish_batch(self, batch: PublishBatch, route: Route, source: Source, at_once: bool) -> FanOut:
        """Like `publish`, for a batch, receiver by receiver.

        The tally's code is for all messages except those at `rejected` positions, which get 0x97. The source may
        publish to the route, and the route `batches`.
        """
        tally = Tally()
        if route.policy is not None:
            batch = route.policy.limited_batch(batch, self._effects.now)
        if route.observed is not None:
            payload_bytes = batch.size - batch.head
            batch.traces = self._tracing.begin(
                route.observed, route, batch.topic, batch.qos, batch.count, payload_bytes, source, True
            )
        sinks = route.heard if source.identity.is_relay else route.sinks
        return self._start_batch(batch, route.receivers, sinks, source, tally, at_once)

    def takes_targeted(self, target: tuple[int, ...], route: Route, topic: bytes) -> bool:
        """Whether QoS 1 and 2 messages that a relay brings for a target may come as a batch."""
        if target[0] == RETAINED_COPY or not route.is_direct or route.observed is not None:
            return False
        return isinstance(self._routes.target_of(target, topic), SharedSubscription)

    def publish_targeted(self, batch: PublishBatch, source: Source, at_once: bool = False) -> FanOut:
        """The same for a batch that a relay brings for members of a shared subscription."""
        sinks: list[Sink] = [self._routes.target_of(batch.target, batch.topic)]
        return self._start_batch(batch, NO_RECEIVERS, sinks, source, Tally(), at_once)

    def _start_batch(
        self,
        batch: PublishBatch,
        receivers: list[Receiver],
        sinks: list[Sink],
        source: Source,
        tally: Tally,
        at_once: bool = False,
    ) -> FanOut:
        batch.publisher = source.client_id
        fan_out = BatchFanOut(batch, self._effects, self.drops, receivers, sinks, source, tally, at_once)
        self._jobs.start(fan_out)
        return fan_out

    def may_publish(self, route: Route, topic: bytes, source: Source) -> bool:
        """The authorizer's verdict, cached by the route."""
        if route.refusal or route.delayed is not None:
            return False
        if source.kind != CLIENT or source.identity.is_relay:
            return True
        if route.is_limited and source.topic_limits.excludes(topic):
            return False
        permissions = self._routes.permissions
        role = permissions.role_of(source)
        if role == route.allowed_role:
            return True
        verdict = route.verdicts.get(role)
        if verdict is None:
            authorizer = permissions.authorizer
            verdict = (route.is_limited and authorizer.is_open(topic)) or authorizer.may_publish(role, topic)
            route.keep(role, verdict)
        if verdict and not route.is_limited:
            route.allowed_role = role
        return verdict

    def _deny(self, route: Route, source: Source, topic: bytes, messages: int, trace: int = NOT_TRACED) -> None:
        """Count and report messages that are not published: the topic is not served, or the publisher may not use
        it."""
        self.drops.add(_why_refused(route), messages, topic, trace)
        if not route.refusal:
            refusal = source.topic_limits.refusal(topic) if route.is_limited else ""
            self._routes.permissions.deny(source, PUBLISH, topic, messages, refusal)

    def _delay(self, parsed: ParsedTopic, message: Message, source: Source, tally: Tally) -> None:
        """Keep a message to a `$delayed` topic until it is due."""
        topic = parsed.rest
        if not self._may_delay(topic, source):
            route = self._routes.find(topic)
            self._deny(route, source, topic, 1)
            tally.code = _denial_code(route, source, topic)
            return
        policy = self._routes.find(topic).policy
        if policy is not None and self._refuse(policy, message, topic, source, tally):
            return
        tally.reached = 1  # so that it does not count as without subscribers
        tally.is_durable = True
        self._effects.identify(message)  # so that the publisher is told the number of the copy
        self._effects.work += DELAY_WORK
        assert self.delays is not None
        if self.delays.put(message.for_topic(topic), parsed.delay_s, source):
            tally.queued = 1
        else:
            self.drops.add(QUEUE_FULL, 1, topic)
            tally.drop(QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED

    def _refuse(
        self,
        policy: TopicPolicy,
        message: Message,
        topic: bytes,
        source: Source,
        tally: Tally,
        is_valid: bool = False,
    ) -> bool:
        """Whether a topic's policy refuses a message. If so, it is counted, and the tally gets the reason.

        With `is_valid` the payload check is not asked. It is not asked either for an empty message that removes a
        retained one.
        """
        refusal = policy.refusal(message.qos, message.retain, len(message.payload))
        if refusal:
            self.drops.add(NOT_AUTHORIZED, 1, topic, message.trace)
            self._routes.permissions.deny(source, PUBLISH, topic, 1, refusal)
            tally.code, tally.refusal = POLICY_REFUSES, refusal
            return True
        if policy.payload_check is None or is_valid or (message.retain and not message.payload):
            return False
        self._effects.work += CHECK_WORK + len(message.payload) // CHECKED_BYTES_PER_WORK_UNIT
        violation = policy.payload_check.violation(source, topic, message.payload, message.properties)
        if violation is None:
            return False
        self.drops.add(PAYLOAD_INVALID, 1, topic, message.trace, violation.reason)
        tally.code, tally.refusal = violation.code, violation.reason
        if violation.to_dead_letters and self._routes.keep_invalid(message.for_topic(topic), violation.reason):
            tally.code, tally.reached, tally.queued, tally.is_durable = SUCCESS, 1, 1, True
        return True

    def _may_delay(self, topic: bytes, source: Source) -> bool:
        """Whether a publisher may publish to the topic after the seconds.

        This is checked on arrival, not when the message is due, because the acknowledgement is a promise.
        """
        route = self._routes.find(topic)
        return route.is_open or self.may_publish(route, topic, source)

    def _publish_traced(
        self,
        traces: list[int],
        topic: bytes,
        piece: bytes,
        size: int,
        head: int,
        route: Route,
        source: Source,
        raw: RawProperties,
    ) -> None:
        """Publish the traced packets of `forward`, which are the first ones, as messages."""
        expires_at = raw.expires_at(self._effects.now)
        for number, trace in enumerate(traces):
            at = number * size
            message = Message(topic, piece[at + head : at + size], 0, False, NONE, expires_at, raw)
            message.trace = message.number = trace
            self.publish(message, route, source, at_once=True)  # the messages after them must not overtake


def _why_refused(route: Route) -> str:
    """The drop reason for messages that may not be published. A namespace that is not served has no subscribers."""
    return NO_SUBSCRIBERS if route.refusal else NOT_AUTHORIZED


def _denial_code(route: Route, source: Source, topic: bytes) -> int:
    """The reason code for a message that this publisher, or any, may not publish."""
    is_invalid = route.refusal or (route.is_limited and source.topic_limits.excludes(topic))
    return TOPIC_NAME_INVALID if is_invalid else NOT_AUTHORIZED_CODE
