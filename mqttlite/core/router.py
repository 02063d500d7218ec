"""What happens to a message: retained if it says so, and handed to everyone whom its topic reaches.

`run` is the hot path: QoS 0 messages of one topic, forwarded as the bytes in which they came. Everything else becomes
a `Message` first. Invariant: whoever a route names gets the message, or it is counted as dropped with the reason.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveRetained, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    ITERATION_BYTES,
    LOOKING_BYTES,
    MAX_OWN_RETAINED,
    RETAINED_LOOKED_AT,
    RETAINED_SWEEP_S,
    Limits,
)
from mqttlite.core.message import NO_PROPERTIES, Delivery, Message, PublishBatch, RawProperties
from mqttlite.core.message_tracing import MessageTracing
from mqttlite.core.outbox import Outbox
from mqttlite.core.reasons import NO_SUBSCRIBERS, NOT_AUTHORIZED, QOS0_OFFLINE
from mqttlite.core.retained_replay import RetainedReplay
from mqttlite.core.routes import Observed, Receiver, Route, Routes
from mqttlite.core.session import DROPPED, Session
from mqttlite.core.shares import ROUND_ROBIN, Member, Share
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.topics.names import is_analytics, is_own
from mqttlite.topics.retained import RetainedMessages
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import publish_parts, put_topic_alias
from mqttlite.wire.properties import NONE

NOBODY: Final = 0x10
"""The reason code for: accepted, but no subscriber matched."""
_BEFORE_AN_ALIAS: Final = 2
"""Messages of a topic until it is known whether it has an alias: seen once, seen again and introduced."""

REFUSED: Final = 0x97
"""The reason code for: a subscriber's queue, or the room for retained messages, was full."""

NOT_ALLOWED: Final = 0x87
"""The reason code for: clients may not publish there."""


@final
class Router:
    __slots__ = (
        "_effects",
        "_limits",
        "_next_sweep",
        "_own",
        "_retained",
        "_retained_bytes",
        "_routes",
        "_tracing",
        "drops",
        "outcomes",
        "refused",
    )

    def __init__(self, routes: Routes, effects: Effects, limits: Limits) -> None:
        self._routes: Final = routes
        self._effects: Final = effects
        self._limits: Final = limits
        self._tracing: Final = MessageTracing(routes, effects)
        self._retained: Final[RetainedMessages[Message]] = RetainedMessages()
        self._retained_bytes = 0
        self._own: Final[RetainedMessages[Message]] = RetainedMessages()
        """What the broker says of itself: it takes nobody's room, and is not worth a place in the store."""
        self._next_sweep = 0.0
        self.drops: Final[dict[str, int]] = {}
        """Messages that met no subscriber or were refused, or whose session ended before they were sent."""
        self.outcomes: list[int] = [0, 0, 0]
        """For how many receivers the latest message was `DROPPED`, `QUEUED` and `SENT`."""
        self.refused = False
        """Whether the queue of one of those was full who subscribe by themselves."""

    def run(
        self,
        route: Route,
        topic: bytes,
        data: bytes,
        start: int,
        end: int,
        size: int,
        head: int,
        version: int,
        publisher: Session,
        block: RawProperties = NO_PROPERTIES,
    ) -> None:
        """Forward `data[start:end]`: QoS 0 packets of one topic, of `size` bytes each, the payload `head` bytes in.

        All have the properties in `block`.

        Receivers of the publisher's protocol version get the bytes as they are.
        """
        messages = (end - start) // size
        observed = route.observed
        if observed is not None and (not route.refused or not _may_publish(publisher, topic)):  # else another's route
            traces = self._tracing.start_tracing(observed, route, topic, 0, messages, size - head, publisher)
            if traces:
                self._publish_first(traces, topic, data, start, size, head, route, publisher, block)
                start += len(traces) * size
                messages -= len(traces)
                if messages == 0:
                    return
        piece = data[start:end]
        if version == V5:
            same, different = route.plain5, route.plain3
        else:
            same, different = route.plain3, route.plain5
        dirty = self._effects.dirty
        for outbox in same:
            if outbox.blocked:
                outbox.offer(piece, messages, block.expires_at(self._effects.now))
                continue
            outbox.chunks.append(piece)
            outbox.sent_qos0 += messages
            if not outbox.dirty:
                outbox.dirty = True
                dirty.append(outbox)
        self._effects.pending_bytes += len(piece) * len(same)
        reached = len(same) + len(different)
        if different or route.special:
            payloads = [data[at + head : at + size] for at in range(start, end, size)]
            if different:
                self._translate(different, topic, payloads, V311 if version == V5 else V5, block)
            for outbox in route.aliased:
                self._send_aliased(outbox, topic, payloads, block)
            if route.others:
                reached += self._one_by_one(route.others, topic, payloads, publisher, block)
            for share in route.shares:
                self._dispatch_batch(share, topic, payloads, block)
            reached += len(route.shares) + len(route.aliased)
        if reached == 0:
            if route.refused and _may_publish(publisher, topic):
                own = self._routes.find_own(topic)
                self.run(own, topic, data, start, end, size, head, version, publisher, block)
                return
            self.drop(NOT_AUTHORIZED if route.refused else NO_SUBSCRIBERS, messages, topic)

    def publish(self, message: Message, route: Route, publisher: Session | None) -> int:
        """Retain and distribute a message; 0, `NOBODY`, `REFUSED` or `NOT_ALLOWED`.

        `publisher` matters for No Local; None: the message comes from the broker itself.
        """
        self.outcomes = outcomes = [0, 0, 0]
        if route.refused:
            if not _may_publish(publisher, message.topic):
                if route.observed is not None and not message.trace:
                    self._observe(route.observed, message, route, publisher)
                self.drop(NOT_AUTHORIZED, 1, message.topic, message.trace)
                return NOT_ALLOWED  # which a 3.1.1 client is not told [3.1.1 MQTT-3.3.5-2]
            route = self._routes.find_own(message.topic)
        if route.observed is not None and not message.trace:  # else it was counted with those it came with
            self._observe(route.observed, message, route, publisher)
        code = self._retain(message) if message.retain else 0  # [MQTT-3.3.1-8]
        reached = self._deliver(message, route, publisher)
        if self.refused:
            code = REFUSED
        for share in route.shares:
            reached += 1
            outcome, qos = self._to_share(share, message)
            outcomes[outcome] += 1
            if qos and outcome == DROPPED:
                code = REFUSED
        self._effects.pending_bytes += message.size() * reached
        if reached == 0:
            if not is_own(message.topic):  # the broker says what it has to say, whether or not anybody listens
                self.drop(NO_SUBSCRIBERS, 1, message.topic, message.trace)
            return code or NOBODY
        return code

    def _deliver(self, message: Message, route: Route, publisher: Session | None) -> int:
        """Hand a message to everyone who subscribes by himself; how many. `refused`: a queue was full."""
        self.refused = False
        outcomes = self.outcomes
        shared: list[Delivery | None] = [None, None, None]
        reached = 0
        for each in route.receivers:
            receiver = each.for_messages_of(publisher) if each.has_no_local else each
            if receiver is None:
                continue
            reached += 1
            qos = message.qos if message.qos < receiver.qos else receiver.qos  # [MQTT-3.8.4-8]
            delivery = shared[qos]
            # RETAIN is 0, or as it came [MQTT-3.3.1-12] [MQTT-3.3.1-13].
            if receiver.identifiers or (message.retain and receiver.retain_as_published):
                delivery = Delivery(message, qos, message.retain and receiver.retain_as_published, receiver.identifiers)
            elif delivery is None:
                delivery = shared[qos] = Delivery(message, qos, False)
            outcome = receiver.session.deliver(delivery) if qos else receiver.session.deliver_qos0(delivery)
            outcomes[outcome] += 1
            if qos and outcome == DROPPED:
                self.refused = True
        return reached

    def publish_batch(self, run: PublishBatch, route: Route, publisher: Session, refused: dict[int, None]) -> int:
        """The same for each message of a run, receiver by receiver; the code of all that are not in `refused`.

        That is for the places of those with `REFUSED`. The route has no shares: who gets a message of theirs may
        depend on what became of the one before; nor is it one where clients may not publish.
        """
        traced = 0
        if route.observed is not None:
            payload_bytes = run.size - run.head
            run.traces = self._tracing.start_tracing(
                route.observed, route, run.topic, run.qos, run.count, payload_bytes, publisher
            )
            traced = len(run.traces)
        others = run.behind(traced) if 0 < traced < run.count else run
        reached = 0
        for each in route.receivers:
            receiver = each.for_messages_of(publisher) if each.has_no_local else each
            if receiver is None:
                continue
            reached += 1
            qos = run.qos if run.qos < receiver.qos else receiver.qos
            session = receiver.session
            taken = traced
            if traced:
                _deliver_each(run, 0, traced, receiver, qos, refused)
            if not receiver.identifiers and taken < run.count:
                taken += session.deliver_batch(others, qos)
            if taken < run.count:
                _deliver_each(run, taken, run.count, receiver, qos, refused)
        self._effects.pending_bytes += run.message_bytes() * run.count * reached
        if reached == 0:
            self._drop_batch(run)
            return NOBODY
        return 0

    def drop(self, reason: str, messages: int, topic: bytes, trace: int = NOT_TRACED) -> None:
        """Messages are dropped that have no receiver: count them, and tell the witness."""
        self.drops[reason] = self.drops.get(reason, 0) + messages
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, None, topic, reason, messages, "")

    def _drop_batch(self, run: PublishBatch) -> None:
        """It met no subscriber; those that are followed are told one by one."""
        for trace in run.traces:
            self.drop(NO_SUBSCRIBERS, 1, run.topic, trace)
        if len(run.traces) < run.count:
            self.drop(NO_SUBSCRIBERS, run.count - len(run.traces), run.topic)

    def _publish_first(
        self,
        traces: list[int],
        topic: bytes,
        data: bytes,
        start: int,
        size: int,
        head: int,
        route: Route,
        by: Session,
        block: RawProperties,
    ) -> None:
        """The first of the packets of `run`, which are followed, go the long way."""
        for trace in traces:
            message = self._message(topic, data[start + head : start + size], block)
            message.trace = trace
            self.publish(message, route, by)
            start += size

    def _observe(self, observed: Observed, message: Message, route: Route, publisher: Session | None) -> None:
        for trace in self._tracing.start_tracing(
            observed, route, message.topic, message.qos, 1, len(message.payload), publisher
        ):
            message.trace = trace

    @property
    def retained(self) -> int:
        """Retained messages, but for the broker's own."""
        return len(self._retained)

    @property
    def retained_bytes(self) -> int:
        return self._retained_bytes

    @property
    def own_retained(self) -> int:
        """Retained messages of the broker's own."""
        return len(self._own)

    def redispatch(self, delivery: Delivery) -> bool:
        """A QoS 1 message whose receiver's session ended goes to another member, if there is one (5.0 §4.8.2)."""
        share = self._routes.share(delivery.share)
        if share is None or delivery.message.expired(self._effects.now):
            return False
        return self._to_share(share, delivery.message)[0] != DROPPED

    def retained_for(
        self, topic_filter: bytes, qos: int, identifiers: tuple[int, ...], at_once: bool
    ) -> RetainedReplay:
        """What a new subscription gets at once: the retained messages its filter matches [MQTT-3.3.1-9].

        [3.1.1 MQTT-3.3.1-6]. As many are looked at `at_once` as the pass has room for, the others by and by.
        """
        replay = RetainedReplay(self._kept(topic_filter).search(topic_filter), qos, identifiers)
        search = replay.search
        if not at_once:
            return replay
        while (
            len(search)
            and self._effects.pending_bytes < ITERATION_BYTES
            and len(replay.deliveries) < RETAINED_LOOKED_AT
        ):
            self._effects.pending_bytes += LOOKING_BYTES * min(len(search), RETAINED_LOOKED_AT)
            for message in search.take(RETAINED_LOOKED_AT):
                if message.expired(self._effects.now):
                    self._remove_retained(message.topic)
                else:
                    replay.put(message)
        return replay

    def restore(self, message: Message) -> None:
        """Put back a retained message that a store kept."""
        self._retained.put(message.topic, message)
        self._retained_bytes += message.size()

    def _retain(self, message: Message) -> int:
        """Keep the message in the place of an earlier one; without payload, only forget that [MQTT-3.3.1-6]."""
        if message.trace:
            message = message.untraced()
        self._remove_retained(message.topic)  # [MQTT-3.3.1-5] [3.1.1 MQTT-3.3.1-7]
        if not message.payload:
            return 0  # [MQTT-3.3.1-7]
        if is_own(message.topic):
            if len(self._own) >= MAX_OWN_RETAINED:
                return REFUSED
            self._own.put(message.topic, message)
            return 0
        if not self._has_room(message):
            if self._effects.now >= self._next_sweep:
                self._next_sweep = self._effects.now + RETAINED_SWEEP_S
                self._forget_expired()
            if not self._has_room(message):
                return REFUSED
        self.restore(message)
        self._effects.changes.append(SaveRetained(message))
        return 0

    def _kept(self, topic: bytes) -> RetainedMessages[Message]:
        """Where the retained messages of a topic, or of a filter, are."""
        return self._own if is_own(topic) else self._retained

    def _has_room(self, message: Message) -> bool:
        limits = self._limits
        return (
            len(self._retained) < limits.max_retained_messages
            and self._retained_bytes + message.size() <= limits.max_retained_bytes
        )

    def _forget_expired(self) -> None:
        for message in self._retained.values():
            if message.expired(self._effects.now):
                self._remove_retained(message.topic)

    def _remove_retained(self, topic: bytes) -> None:
        removed = self._kept(topic).remove(topic)
        if removed is not None:
            removed.superseded = True
            if is_own(topic):
                return
            self._retained_bytes -= removed.size()
            self._effects.changes.append(RemoveRetained(topic))

    def _message(self, topic: bytes, payload: bytes, block: RawProperties) -> Message:
        """One of the messages of `run` by itself."""
        return Message(topic, payload, 0, False, NONE, block.expires_at(self._effects.now), block)

    def _translate(
        self, outboxes: list[Outbox], topic: bytes, payloads: list[bytes], version: int, block: RawProperties
    ) -> None:
        """QoS 0 messages of one topic and size as frames of that version, made once for all these receivers."""
        prefix, tail = publish_parts(topic, payloads[0], 0, False, NONE, version, block=block.data)
        prefix += tail[: len(tail) - len(payloads[0])]
        piece = b"".join([prefix + payload for payload in payloads])
        for outbox in outboxes:
            outbox.offer(piece, len(payloads), block.expires_at(self._effects.now))
        self._effects.pending_bytes += len(piece) * len(outboxes)

    def _send_aliased(self, outbox: Outbox, topic: bytes, payloads: list[bytes], block: RawProperties) -> None:
        """The same for a receiver that takes topic aliases: the first message may have to introduce one."""
        sent = 0
        while sent < len(payloads) and sent < _BEFORE_AN_ALIAS:
            head, tail = publish_parts(topic, payloads[sent], 0, False, NONE, V5, block=block.data)
            alias = outbox.topic_alias(topic)
            if alias:
                head, tail = put_topic_alias(head, tail, topic, abs(alias), alias < 0)
            outbox.offer(head + tail, 1, block.expires_at(self._effects.now))
            self._effects.pending_bytes += len(head) + len(tail)
            sent += 1
        if sent == len(payloads):
            return
        alias = outbox.topic_alias(topic)
        head, tail = publish_parts(topic, payloads[0], 0, False, NONE, V5, block=block.data)
        if alias:
            head, tail = put_topic_alias(head, tail, topic, alias, False)
        prefix = head + tail[: len(tail) - len(payloads[0])]
        piece = b"".join([prefix + payload for payload in payloads[sent:]])
        outbox.offer(piece, len(payloads) - sent, block.expires_at(self._effects.now))
        self._effects.pending_bytes += len(piece)

    def _one_by_one(
        self, receivers: list[Receiver], topic: bytes, payloads: list[bytes], publisher: Session, block: RawProperties
    ) -> int:
        """QoS 0 messages for receivers that are away, or that need a frame of their own; how many receivers."""
        reached = 0
        for each in receivers:
            receiver = each.for_messages_of(publisher)
            if receiver is None:
                continue
            reached += 1
            session = receiver.session
            if session.outbox is None:
                session.drop(QOS0_OFFLINE, len(payloads), topic)
                continue
            for payload in payloads:
                session.deliver_qos0(Delivery(self._message(topic, payload, block), 0, False, receiver.identifiers))
            self._effects.pending_bytes += (len(topic) + len(payloads[0])) * len(payloads)
        return reached

    def _to_share(self, share: Share, message: Message) -> tuple[int, int]:
        """Give a message to the first member that takes it; what became of it, and its QoS there.

        `DROPPED` where all queues were full, or where the member subscribed at QoS 0 and is away.
        """
        first = share.first(message)
        delivery = _shared(share, first, message)
        if delivery.qos and not first.session.has_room(delivery):
            for member in share.others(first):
                other = _shared(share, member, message)
                if other.qos == 0:
                    return member.session.deliver_qos0(other), 0
                if member.session.has_room(other):
                    return member.session.deliver(other), other.qos
        if delivery.qos:
            return first.session.deliver(delivery), delivery.qos
        return first.session.deliver_qos0(delivery), 0

    def _dispatch_batch(self, share: Share, topic: bytes, payloads: list[bytes], block: RawProperties) -> None:
        """QoS 0 messages of one topic and size, dealt out to the members."""
        if share.policy == ROUND_ROBIN:
            members = share.dispatch_many(len(payloads))
            for at, member in enumerate(members):
                mine = payloads[at :: len(members)]
                outbox = member.session.outbox
                if outbox is None or member.subscription.identifier or outbox.max_packet_bytes:
                    for payload in mine:
                        self._to_member(member, share, self._message(topic, payload, block))
                elif outbox.topic_alias_maximum:
                    self._send_aliased(outbox, topic, mine, block)
                else:
                    self._translate([outbox], topic, mine, outbox.version, block)
        else:
            for payload in payloads:
                self._to_share(share, self._message(topic, payload, block))

    def _to_member(self, member: Member, share: Share, message: Message) -> None:
        identifier = member.subscription.identifier
        member.session.deliver_qos0(Delivery(message, 0, False, (identifier,) if identifier else (), share.name))


def _deliver_each(
    run: PublishBatch, start: int, end: int, receiver: Receiver, qos: int, refused: dict[int, None]
) -> None:
    """Some messages of a run, one by one; `refused` are the places of those for which the queue was full."""
    session = receiver.session
    for at in range(start, end):
        delivery = run.delivery(at, qos)
        if receiver.identifiers:
            delivery = Delivery(delivery.message, qos, False, receiver.identifiers)
        outcome = session.deliver(delivery) if qos else session.deliver_qos0(delivery)
        if qos and outcome == DROPPED:
            refused[at] = None


def _may_publish(publisher: Session | None, topic: bytes) -> bool:
    """Whether a client may publish where others may not."""
    return publisher is not None and publisher.analyses and is_analytics(topic)


def _shared(share: Share, member: Member, message: Message) -> Delivery:
    subscription = member.subscription
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    qos = min(message.qos, subscription.qos)  # [MQTT-4.8.2-3]
    return Delivery(message, qos, message.retain and subscription.retain_as_published, identifiers, share.name)
