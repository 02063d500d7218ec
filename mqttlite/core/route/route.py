"""The delivery plan of one topic: its receivers, grouped by the form of their QoS 0 copy.

A `Receiver` is a session, with its overlapping subscriptions merged. Receivers that are not sessions are sinks.
"""

from typing import Final, final

from mqttlite.core.hook import Hook
from mqttlite.core.limits import MAX_ROOM_LOOKS, MAX_ROUTE_VERDICTS
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbound.outbox import NO_OUTBOXES, Outbox
from mqttlite.core.reasons import QOS0_OFFLINE
from mqttlite.core.route.outlook import EXCLUDED, NO_LOCAL, PlannedReceiver
from mqttlite.core.route.subscription import NO_SINKS, Subscription
from mqttlite.core.route.tally import DROPPED, QUOTA_EXCEEDED, Tally
from mqttlite.core.route.traffic import TopicTraffic
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.topics.namespaces import ParsedTopic
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts, put_topic_alias
from mqttlite.wire.properties import NONE

_ROUTE_BYTES: Final = 150
_RECEIVER_BYTES: Final = 150
_IDENTIFIER_BYTES: Final = 40
"""About how much memory a route, each receiver in it and each subscription identifier take, for
`max_route_cache_bytes`."""

_BEFORE_AN_ALIAS: Final = 2
"""How many messages of a topic it takes to introduce an alias: one for the first sight, one for the repeat."""

NO_ROLE: Final = -1
"""Roles are whole numbers from 0 on."""

NO_RECEIVERS: Final[list["Receiver"]] = []
_NO_VERDICTS: Final[dict[int, bool]] = {}
"""Never added to, like `NO_OUTBOXES`."""


@final
class Receiver:
    """A session that a topic reaches, with its overlapping subscriptions merged, so that it gets one copy (§3.3.4)."""

    __slots__ = ("has_no_local", "identifiers", "own", "qos", "retain_as_published", "session")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session: Final = session
        qos = 0
        as_published = no_local = False
        identifiers: list[int] = []
        for subscription in subscriptions:
            qos = max(qos, subscription.qos)  # [MQTT-3.3.4-2]
            as_published |= subscription.retain_as_published
            no_local |= subscription.no_local
            if subscription.identifier:
                identifiers.append(subscription.identifier)  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
        self.qos: Final = qos
        self.retain_as_published: Final = as_published
        self.has_no_local: Final = no_local
        self.identifiers: Final = tuple(identifiers)
        self.own: Receiver | None = None
        """The receiver without No Local subscriptions, for the session's own messages [MQTT-3.8.3-3]."""
        if no_local:
            others = [subscription for subscription in subscriptions if not subscription.no_local]
            if others:
                self.own = Receiver(session, others)

    def for_messages_of(self, source: Source) -> "Receiver | None":
        """This receiver, or its variant for the session's own messages. None if the session gets no messages of this
        source. For the program's own sessions, the messages of the program are their own, unless they hear it; for
        relays, those of all relays."""
        if not self.has_no_local:
            return self
        session = self.session
        if session is source:
            return self.own
        identity = session.identity
        if not identity.is_trusted:
            return self
        is_own = source.identity.is_relay if identity.is_relay else source is THE_PROGRAM and not identity.hears_program
        return self.own if is_own else self

    def outlook(self, message: Message, source: Source, detail: str = "") -> PlannedReceiver:
        """Predict the outcome of a message for the session."""
        session = self.session
        own = self.for_messages_of(source)
        if own is None:
            return PlannedReceiver(session.client_id, b"", 0, EXCLUDED, NO_LOCAL)
        qos = min(message.qos, own.qos)
        outcome, reason = session.outlook(Delivery(message, qos, False, own.identifiers))
        return PlannedReceiver(session.client_id, b"", qos, outcome, reason, detail)

    def deliver(self, delivery: Delivery, tally: Tally) -> None:
        """Deliver one message to the session."""
        if delivery.qos:
            outcome = self.session.deliver(delivery)
            tally.count(outcome)
            if outcome == DROPPED:
                tally.code = QUOTA_EXCEEDED
        else:
            tally.count_qos0(self.session.deliver_qos0(delivery))

    def accept_batch(self, batch: PublishBatch, tally: Tally) -> int:
        """Deliver a batch to the session. Return how many messages it took one by one.

        These are traced messages, and messages that wait, must be durable, or must be checked against the client's
        limits.
        """
        qos = batch.qos if batch.qos < self.qos else self.qos
        if qos and not batch.traces and not self.identifiers:
            taken = self.session.deliver_batch(batch, qos)
            tally.sent += taken
            if taken < batch.count:
                self._accept_each(batch, taken, batch.count, qos, tally)
            return batch.count - taken
        traced = len(batch.traces)
        self._accept_each(batch, 0, traced, qos, tally)
        if traced == batch.count:
            return traced
        rest = batch.untraced()
        if qos == 0:
            return traced + self._accept_qos0(rest, tally)
        sent = 0 if self.identifiers else self.session.deliver_batch(rest, qos)
        tally.sent += sent
        self._accept_each(batch, traced + sent, batch.count, qos, tally)
        return batch.count - sent

    def _accept_qos0(self, batch: PublishBatch, tally: Tally) -> int:
        session = self.session
        outbox = session.outbox
        if outbox is None:
            session.drop(QOS0_OFFLINE, batch.count, batch.topic)
            tally.drop(QOS0_OFFLINE, batch.count)
        elif outbox.has_own_packets or (self.identifiers and outbox.topic_alias_maximum):
            self._accept_each(batch, 0, batch.count, 0, tally)
            return batch.count
        elif outbox.topic_alias_maximum:
            send_aliased(outbox, batch, tally)
        else:
            form = batch.identified(self.identifiers) if self.identifiers else batch
            packets = form.frames(outbox.version, 0, 0, form.count)
            offer(outbox, packets, form.count, form.expires_at, form.on_overflow, tally)
        return 0

    def _accept_each(self, batch: PublishBatch, start: int, end: int, qos: int, tally: Tally) -> None:
        """Deliver part of a batch one by one. The tally records the positions that met a full queue."""
        for at in range(start, end):
            delivery = batch.delivery(at, qos, self.identifiers)
            if qos == 0:
                self.deliver(delivery, tally)
                continue
            outcome = self.session.deliver(delivery)
            tally.count(outcome)
            if outcome == DROPPED:
                tally.reject(at)


@final
class Observed:
    """The part of a route that exists only while its messages are counted or traced."""

    __slots__ = ("has_no_local", "receivers", "traced", "traffic")

    def __init__(self, receivers: list[Receiver], sinks: int, traced: bool, traffic: TopicTraffic | None) -> None:
        self.traced: Final = traced
        """Whether every message is traced, because of its topic or one of its receivers."""
        self.traffic: TopicTraffic | None = traffic
        """The counter of its messages, until the next drain."""
        self.receivers: Final = len(receivers) + sinks
        """The number of sessions and sinks."""
        self.has_no_local: bool = False
        """Whether a message may have fewer receivers because its publisher is one of them."""
        for receiver in receivers:
            self.has_no_local |= receiver.has_no_local


@final
class Route:
    """The delivery plan of a topic: its receivers, grouped by the form of their copy."""

    __slots__ = (
        "allowed_role",
        "asks_room",
        "delayed",
        "direct3",
        "direct5",
        "filtered",
        "heard",
        "hook",
        "is_direct",
        "is_gated",
        "is_limited",
        "is_open",
        "observed",
        "others",
        "policy",
        "receivers",
        "refusal",
        "retains",
        "sinks",
        "size",
        "special",
        "verdicts",
    )

    def __init__(
        self,
        receivers: list[Receiver],
        sinks: list[Sink],
        is_open: bool = True,
        filtered: list[Receiver] = NO_RECEIVERS,
        *,
        refusal: str = "",
        delayed: ParsedTopic | None = None,
        retains: bool = True,
        policy: TopicPolicy | None = None,
        is_limited: bool = False,
        hook: Hook | None = None,
        heard: list[Sink] = NO_SINKS,
    ) -> None:
        # Attributes that every message uses come first, so that they share few cache lines.
        self.observed: Observed | None = None
        """None if its messages are neither counted nor traced."""
        self.is_open: Final = is_open
        """Whether every client may publish here."""
        self.allowed_role: int = NO_ROLE
        """The role that was last allowed to publish here, also to an over-long topic: most messages have it."""
        self.refusal: Final = refusal
        """Why the broker does not serve the topic, as a sentence; no client may publish here. Empty if it is served."""
        self.delayed: Final = delayed
        """The parts of a `$delayed` topic, whose messages have no receivers until they are due. It is not open."""
        self.retains: Final = retains
        """Whether messages with RETAIN are kept."""
        self.is_limited: Final = is_limited
        """Whether the topic exceeds the limits of some clients. If so, the route is not open."""
        self.policy: Final = policy
        """The policy that each message is checked against, if any. If there is one, the route is not open."""
        self.direct3: list[Outbox] = NO_OUTBOXES
        """Connected 3.1.1 clients that take the shared frame."""
        self.direct5: list[Outbox] = NO_OUTBOXES
        """Connected 5.0 clients without subscription identifiers, topic aliases or a Maximum Packet Size."""
        asks_room = policy is not None and policy.asks_room and len(receivers) + len(sinks) <= MAX_ROOM_LOOKS
        self.asks_room: Final = asks_room
        """Whether a message needs room at all receivers (`block`, `reject`). False if there are too many receivers to
        check."""
        self.hook: Final = hook
        """What is asked about each message before it is published, if there is something. The route is then not
        open."""
        self.is_direct: Final = policy is None and hook is None
        """Whether nothing but a permission is asked about messages: QoS 0 packets may be forwarded as they are."""
        self.is_gated: Final = asks_room or hook is not None
        """Whether messages come one by one, and each may have to wait or be refused before it is published."""
        self.special: bool = len(sinks) > 0 or delayed is not None or self.is_gated
        """Whether there are receivers outside the two direct groups, or messages are delayed or may have to wait."""
        self.others: list[Receiver] = NO_RECEIVERS
        """The sessions in neither direct group: each is handled on its own."""
        self.sinks: Final = sinks
        self.heard: Final = heard
        """Those of the sinks that get what a relay brings."""
        self.receivers: Final = receivers
        """All sessions."""
        self.filtered: Final = filtered
        """The sessions with message filters, as sinks."""
        self.verdicts: dict[int, bool] = _NO_VERDICTS
        """The cached verdicts on which roles may publish here."""
        size = _ROUTE_BYTES + _RECEIVER_BYTES * (len(receivers) + len(sinks))
        if filtered:
            size += _RECEIVER_BYTES * len(filtered)
        for receiver in receivers:
            size += _IDENTIFIER_BYTES * len(receiver.identifiers)
            if receiver.own is not None:
                size += _RECEIVER_BYTES + _IDENTIFIER_BYTES * len(receiver.own.identifiers)
            self._group(receiver)
        self.size: Final = size

    @property
    def is_low(self) -> bool:
        """Whether its messages have low priority under overload."""
        return self.policy is not None and self.policy.is_low

    def batches(self, qos: int, payload_bytes: int) -> bool:
        """Whether messages that may be published may stay a batch: no policy, hook or receiver takes each on its own.
        Sinks are asked otherwise (`Routes.takes_batches`), but for QoS 0."""
        if (self.sinks and not qos) or self.hook is not None:
            return False
        policy = self.policy
        return policy is None or (
            policy.passes_batches and qos <= policy.max_qos and not policy.refusal(qos, False, payload_bytes)
        )

    def has_room(self, message: Message, qos: int, source: Source) -> bool:
        """Whether each receiver would take a message published with `qos` without a drop."""
        for receiver in self.receivers:
            mine = receiver.for_messages_of(source)
            if mine is not None and not mine.session.has_room(message, min(qos, mine.qos)):
                return False
        return all(sink.has_room(message, qos) for sink in self.sinks)

    def keep(self, role: int, verdict: bool) -> None:
        """Cache the verdict for a role. If the cache is full, replace all others.

        Most topics have publishers of one role, for which no dictionary is needed.
        """
        if verdict and self.allowed_role == NO_ROLE and not self.is_limited:
            self.allowed_role = role
            return
        if self.verdicts is _NO_VERDICTS or len(self.verdicts) >= MAX_ROUTE_VERDICTS:
            self.verdicts = {}
            if self.allowed_role != NO_ROLE:
                self.verdicts[self.allowed_role] = True
        self.verdicts[role] = verdict

    def _group(self, receiver: Receiver) -> None:
        outbox = receiver.session.outbox
        if (
            outbox is None
            or receiver.identifiers
            or receiver.has_no_local
            or outbox.has_own_packets
            or outbox.topic_alias_maximum
        ):
            if self.others is NO_RECEIVERS:
                self.others = []
            self.others.append(receiver)
            self.special = True
        elif outbox.version == V5:
            self.direct5 = _with(self.direct5, receiver.session, outbox)
        else:
            self.direct3 = _with(self.direct3, receiver.session, outbox)


def _with(outboxes: list[Outbox], session: Session, outbox: Outbox) -> list[Outbox]:
    """The outboxes plus the one of a session.

    Most topics have one receiver, and most receivers many topics. Sharing one list per receiver keeps it in the
    processor's cache.
    """
    if not outboxes:
        if not session.alone:
            session.alone = [outbox]
        return session.alone
    if len(outboxes) == 1:
        return [outboxes[0], outbox]
    outboxes.append(outbox)
    return outboxes


def offer(outbox: Outbox, packets: bytes, messages: int, expires_at: float, on_overflow: str, tally: Tally) -> None:
    """Offer QoS 0 packets of one size to a connected client."""
    reason = outbox.offer(packets, messages, expires_at, on_overflow)
    if reason:
        tally.drop(reason)
    else:
        tally.sent += messages


def send_aliased(outbox: Outbox, batch: PublishBatch, tally: Tally) -> None:
    """Send QoS 0 messages to a client that takes topic aliases. The first message may introduce one."""
    topic = batch.topic
    sent = 0
    while sent < batch.count and sent < _BEFORE_AN_ALIAS:
        head, tail = publish_parts(topic, batch.payload(sent), 0, False, NONE, V5, block=batch.raw.data)
        alias = outbox.topic_alias(topic)
        if alias:
            head, tail = put_topic_alias(head, tail, topic, abs(alias), alias < 0)
        offer(outbox, head + tail, 1, batch.expires_at, batch.on_overflow, tally)
        sent += 1
    if sent == batch.count:
        return
    alias = outbox.topic_alias(topic)
    first = batch.payload(0)
    head, tail = publish_parts(topic, first, 0, False, NONE, V5, block=batch.raw.data)
    if alias:
        head, tail = put_topic_alias(head, tail, topic, alias, False)
    prefix = head + tail[: len(tail) - len(first)]
    packets = b"".join([prefix + batch.payload(at) for at in range(sent, batch.count)])
    offer(outbox, packets, batch.count - sent, batch.expires_at, batch.on_overflow, tally)
