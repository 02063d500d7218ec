"""The delivery plan of one topic: its receivers, grouped by what a QoS 0 copy for them looks like.

A `Receiver` is a session, with its overlapping subscriptions made one. Receivers that are no session are sinks.
"""

from typing import Final, final

from mqttlite.core.limits import MAX_ROOM_LOOKS, MAX_ROUTE_VERDICTS
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbox import NO_OUTBOXES, Outbox
from mqttlite.core.outlook import EXCLUDED, NO_LOCAL, PlannedReceiver
from mqttlite.core.reasons import BUFFER_FULL, PACKET_TOO_LARGE, QOS0_OFFLINE, RATE_LIMITED
from mqttlite.core.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.core.subscription import Subscription
from mqttlite.core.tally import DROPPED, QUOTA_EXCEEDED, Tally
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.core.traffic import TopicTraffic
from mqttlite.topics.namespaces import ParsedTopic
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts, put_topic_alias
from mqttlite.wire.properties import NONE

_ROUTE_BYTES: Final = 150
_RECEIVER_BYTES: Final = 150
_IDENTIFIER_BYTES: Final = 40
"""About what a route takes, each receiver in it, and each subscription identifier; for `max_route_cache_bytes`."""

_BEFORE_AN_ALIAS: Final = 2
"""Messages of a topic until it is known whether it has an alias: seen once, seen again and introduced."""

NO_ROLE: Final = -1
"""Roles are whole numbers from 0 on."""

NO_RECEIVERS: Final[list["Receiver"]] = []
_NO_VERDICTS: Final[dict[int, bool]] = {}
"""Never added to, as `NO_OUTBOXES`."""


@final
class Receiver:
    """One session that a topic reaches: its overlapping subscriptions made one, so that it gets one copy (§3.3.4)."""

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
        """The copy of the session's own messages, where a No Local subscription is among them [MQTT-3.8.3-3]."""
        if no_local:
            others = [subscription for subscription in subscriptions if not subscription.no_local]
            if others:
                self.own = Receiver(session, others)

    def for_messages_of(self, source: Source) -> "Receiver | None":
        """This receiver, or what it is for messages that its own session published; None: it gets none of them."""
        return self.own if self.has_no_local and self.session is source else self

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
        """Hand one message to the session."""
        if delivery.qos:
            outcome = self.session.deliver(delivery)
            tally.count(outcome)
            if outcome == DROPPED:
                tally.code = QUOTA_EXCEEDED
        else:
            outcome = self.session.deliver_qos0(delivery)
            tally.count(outcome, _why_dropped(self.session.outbox))

    def accept_batch(self, batch: PublishBatch, tally: Tally) -> int:
        """Hand the messages of a batch to the session; how many it took one by one.

        Those are the traced ones, and those that wait, are to be durable or have to be measured for the client.
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
        elif outbox.max_packet_bytes or (self.identifiers and outbox.topic_alias_maximum):
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
        """Some messages of a batch, one by one; the tally learns the positions of those with a full queue."""
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
    """The part of a route that exists while its messages are counted or traced."""

    __slots__ = ("has_no_local", "receivers", "traced", "traffic")

    def __init__(self, receivers: list[Receiver], sinks: int, traced: bool, traffic: TopicTraffic | None) -> None:
        self.traced: Final = traced
        """Whether every message is traced, for its topic or for one of its receivers."""
        self.traffic: TopicTraffic | None = traffic
        """Where its messages are counted, until the next drain."""
        self.receivers: Final = len(receivers) + sinks
        """Sessions and sinks that a message is for."""
        self.has_no_local: bool = False
        """Whether it is for fewer when one of these published it."""
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
    ) -> None:
        # What every message asks for comes first, to be in as few lines of the processor's cache as may be.
        self.observed: Observed | None = None
        """None: its messages are neither counted nor traced."""
        self.is_open: Final = is_open
        """Whether every client may publish here."""
        self.allowed_role: int = NO_ROLE
        """The role that was last allowed to publish here, whatever the topic's length: most messages are of it."""
        self.refusal: Final = refusal
        """Why the broker does not serve the topic, as a sentence: nobody may publish here. Empty where it does."""
        self.delayed: Final = delayed
        """The parts of a `$delayed` topic, whose messages are for nobody until they are due. It is not open."""
        self.retains: Final = retains
        """Whether a message that says RETAIN is kept."""
        self.is_limited: Final = is_limited
        """Whether the topic is longer than some clients may use. The route is not open then."""
        self.policy: Final = policy
        """The policy that each message is checked against, if any. The route is not open then."""
        self.direct3: list[Outbox] = NO_OUTBOXES
        """Connected 3.1.1 clients: the frame alone decides."""
        self.direct5: list[Outbox] = NO_OUTBOXES
        """Connected 5.0 clients without subscription identifiers, topic aliases or a Maximum Packet Size."""
        asks_room = policy is not None and policy.asks_room and len(receivers) + len(sinks) <= MAX_ROOM_LOOKS
        self.asks_room: Final = asks_room
        """Whether a message goes to nobody while a receiver has no room for it; not where the receivers are too many to
        be looked at."""
        self.special: bool = len(sinks) > 0 or delayed is not None or asks_room
        """Whether there are receivers beside those two groups, or the messages are delayed, or may have to wait."""
        self.others: list[Receiver] = NO_RECEIVERS
        """The sessions that are in neither group: each needs a look of its own."""
        self.sinks: Final = sinks
        self.receivers: Final = receivers
        """All sessions."""
        self.filtered: Final = filtered
        """The sessions that have filters; they are in sinks."""
        self.verdicts: dict[int, bool] = _NO_VERDICTS
        """Which roles may publish here, as far as that was asked."""
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
        """Whether its messages are the first to be dropped under overload."""
        return self.policy is not None and self.policy.is_low

    def has_room(self, message: Message, qos: int, source: Source) -> bool:
        """Whether each receiver would take a message, published with that QoS, and drop none for it."""
        for receiver in self.receivers:
            mine = receiver.for_messages_of(source)
            if mine is not None and not mine.session.has_room(message, min(qos, mine.qos)):
                return False
        return all(sink.has_room(message, qos) for sink in self.sinks)

    def keep(self, role: int, verdict: bool) -> None:
        """Keep the verdict for a role, if it must be in the place of all others.

        Most topics have publishers of one role: for that one there is no dictionary.
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
            or outbox.max_packet_bytes
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
    """The outboxes and that of a session.

    Most topics have one receiver, and most receivers many topics: where all share a list it is in the processor's
    cache.
    """
    if not outboxes:
        if not session.alone:
            session.alone = [outbox]
        return session.alone
    if len(outboxes) == 1:
        return [outboxes[0], outbox]
    outboxes.append(outbox)
    return outboxes


def _why_dropped(outbox: Outbox | None) -> str:
    """Why a session dropped a QoS 0 message."""
    if outbox is None:
        return QOS0_OFFLINE
    if outbox.is_paced:
        return RATE_LIMITED
    return BUFFER_FULL if outbox.blocked else PACKET_TOO_LARGE


def offer(outbox: Outbox, packets: bytes, messages: int, expires_at: float, on_overflow: str, tally: Tally) -> None:
    """QoS 0 packets of one size to a connected client."""
    if outbox.offer(packets, messages, expires_at, on_overflow):
        tally.sent += messages
    else:
        tally.drop(_why_dropped(outbox))


def send_aliased(outbox: Outbox, batch: PublishBatch, tally: Tally) -> None:
    """QoS 0 messages to a client that takes topic aliases: the first message may have to introduce one."""
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
