"""The receivers of a topic that have message filters. They are sinks, so routes without filters cost nothing more.

Sessions whose matching subscriptions have the same filters share a sink, which evaluates these once for each message.
Invariant: a session gets one copy of a message if at least one of its subscriptions lets it pass, and only the
subscriptions that let it pass determine its QoS, RETAIN and identifiers.
"""

from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.limits import DELIVERY_WORK, FILTERED_RECEIVERS, JSON_BYTES_PER_WORK_UNIT, MAX_COMBINATIONS
from mqttlite.core.message import Delivery, Message, PublishBatch, RawProperties
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.reasons import FILTER_MISMATCH
from mqttlite.core.route.outlook import EXCLUDED, FILTERED, PlannedReceiver
from mqttlite.core.route.route import Receiver
from mqttlite.core.route.subscription import RoutePlan, Subscription
from mqttlite.core.route.tally import Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.core.tracer import NOT_TRACED


@final
class FilteredSession:
    """A session with its matching subscriptions, of which some have filters."""

    __slots__ = ("_by_passing", "_subscriptions", "receiver")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.receiver: Final = Receiver(session, subscriptions)
        """The receiver of messages that pass all filters."""
        self._subscriptions: Final = subscriptions
        self._by_passing: Final[dict[int, Receiver]] = {(1 << len(subscriptions)) - 1: self.receiver}
        """The receiver by the subscriptions that let a message pass, a mask with one bit for each."""

    def passing(self, mask: int, source: Source) -> Receiver | None:
        """The receiver of a message that these subscriptions let pass; None if the session does not get it."""
        if mask == 0:
            return None
        receiver = self._by_passing.get(mask)
        if receiver is None:
            if len(self._by_passing) >= MAX_COMBINATIONS:
                self._by_passing.clear()
            subscriptions = [each for number, each in enumerate(self._subscriptions) if mask >> number & 1]
            receiver = self._by_passing[mask] = Receiver(self.receiver.session, subscriptions)
        return receiver.for_messages_of(source)


@final
class FilteredReceivers:
    """A `Sink`. `filters` are those of each session's subscriptions, in order; None: it lets every message pass."""

    __slots__ = ("_drops", "_effects", "_expressions", "_filters", "_reads_payload", "_sessions")

    def __init__(
        self,
        filters: tuple[MessageFilter | None, ...],
        sessions: list[FilteredSession],
        effects: Effects,
        drops: Drops,
    ) -> None:
        self._filters: Final = filters
        self._sessions: Final = sessions
        self._effects: Final = effects
        self._drops: Final = drops
        some = [each for each in filters if each is not None]
        self._expressions: Final = "; ".join([each.expression for each in some])
        self._reads_payload: Final = any(each.reads_payload for each in some)

    @property
    def receivers(self) -> list[Receiver]:
        """The receivers of messages that pass all filters of their sessions."""
        return [each.receiver for each in self._sessions]

    def prepare(self, messages: int) -> bool:
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        """Implements `Sink`: whether all receivers have room, also those whose filters keep the message out."""
        return all(each.session.has_room(message, min(qos, each.qos)) for each in self.receivers)

    def allowed(self, topic: bytes) -> "FilteredReceivers":
        """The same, reduced to the sessions that may receive the topic under the rules in force."""
        sessions = [each for each in self._sessions if each.receiver.session.may_receive(topic)]
        return FilteredReceivers(self._filters, sessions, self._effects, self._drops)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        if self._reads_payload and not knows_payload:
            return [each.receiver.outlook(message, source, FILTERED) for each in self._sessions]
        mask = self._passing(message)
        found: list[PlannedReceiver] = []
        for each in self._sessions:
            receiver = each.passing(mask, source)
            if receiver is not None or each.receiver.for_messages_of(source) is None:
                found.append((receiver or each.receiver).outlook(message, source))
            else:
                client_id = each.receiver.session.client_id
                found.append(PlannedReceiver(client_id, b"", 0, EXCLUDED, FILTER_MISMATCH, self._expressions))
        return found

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self._begin(tally, message.size())
        mask = self._passing(message)
        deliveries: dict[tuple[int, bool, tuple[int, ...]], Delivery] = {}
        for each in self._sessions:
            if each.receiver.for_messages_of(source) is None:
                continue
            receiver = each.passing(mask, source)
            if receiver is None:
                self._keep_out(each, 1, message.trace, tally)
                continue
            qos = min(message.qos, receiver.qos)
            retain = message.retain and receiver.retain_as_published
            key = (qos, retain, receiver.identifiers)
            delivery = deliveries.get(key)
            if delivery is None:
                delivery = deliveries[key] = Delivery(message, qos, retain, receiver.identifiers)
            tally.reached += 1
            self._hand_over(receiver, delivery, tally)
        for delivery in deliveries.values():
            delivery.forget_parts()

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Implements `Sink`: each message may have other receivers."""
        return False

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        self._begin(tally, batch.message_bytes() * batch.count)
        masks = self._masks(batch)
        passing = [at for at, mask in enumerate(masks) if mask]
        is_mixed = len({masks[at] for at in passing}) > 1
        part = batch.select(passing) if passing and not is_mixed and len(passing) < batch.count else batch
        for each in self._sessions:
            if each.receiver.for_messages_of(source) is None:
                continue
            if is_mixed:
                self._accept_mixed(each, batch, masks, source, tally)
                continue
            receiver = each.passing(masks[passing[0]], source) if passing else None
            taken = 0
            if receiver is not None:
                self._effects.pending_bytes += part.message_bytes() * part.count
                self._effects.work += DELIVERY_WORK * (1 + receiver.accept_batch(part, tally))
                tally.reach(passing, batch.count)
                taken = part.count
            if taken < batch.count:
                self._keep_out(each, batch.count - taken, NOT_TRACED, tally)
        if part is not batch:
            part.forget_forms()

    def _accept_mixed(
        self, session: FilteredSession, batch: PublishBatch, masks: list[int], source: Source, tally: Tally
    ) -> None:
        """Take the messages of a batch that pass different subscriptions, one by one, in order."""
        reached: list[int] = []
        for at, mask in enumerate(masks):
            receiver = session.passing(mask, source)
            if receiver is None:
                self._keep_out(session, 1, NOT_TRACED, tally)
            else:
                reached.append(at)
                self._hand_over(receiver, batch.delivery(at, 0, receiver.identifiers), tally)
        tally.reach(reached, batch.count)

    def _masks(self, batch: PublishBatch) -> list[int]:
        """The subscriptions that let each message of a batch pass, as a mask for each."""
        if not self._reads_payload:
            return [self._passing(batch.delivery(0, 0).message)] * batch.count
        return [self._passing(batch.delivery(at, 0).message) for at in range(batch.count)]

    def _passing(self, message: Message) -> int:
        """The subscriptions that let a message pass, as a mask."""
        mask = 0
        for number, message_filter in enumerate(self._filters):
            if message_filter is None or self._ask(message_filter, message):
                mask |= 1 << number
        return mask

    def _ask(self, message_filter: MessageFilter, message: Message) -> bool:
        self._effects.work += 1
        if message_filter.reads_payload:
            self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return message_filter.matches(message)

    def _begin(self, tally: Tally, size: int) -> None:
        """Undo the fan-out's count of this sink as one receiver of `size` bytes."""
        tally.reached -= 1
        self._effects.pending_bytes -= size

    def _hand_over(self, receiver: Receiver, delivery: Delivery, tally: Tally) -> None:
        self._effects.pending_bytes += delivery.message.size()
        self._effects.work += DELIVERY_WORK
        receiver.deliver(delivery, tally)

    def _keep_out(self, session: FilteredSession, messages: int, trace: int, tally: Tally) -> None:
        """Count messages that do not pass the filters. They are counted apart from drops."""
        tally.filtered += messages
        self._drops.add_filtered(messages, trace, session.receiver.session.client_id, self._expressions)


def filtered_receivers(
    plan: RoutePlan, sessions: dict[str, Session], effects: Effects, drops: Drops
) -> list[FilteredReceivers]:
    """Take the clients with filters out of a plan, and return the sinks for them."""
    found: list[FilteredReceivers] = []
    same: dict[tuple[MessageFilter | None, ...], list[FilteredSession]] = {}
    for client_id in plan.filtering:
        subscriptions = plan.by_client.pop(client_id, None)
        if subscriptions is None:  # its session has ended, or it may not receive the topic
            continue
        filters = tuple([each.message_filter for each in subscriptions])
        if filters not in same:
            same[filters] = []
        same[filters].append(FilteredSession(sessions[client_id], subscriptions))
    for filters, theirs in same.items():
        for start in range(0, len(theirs), FILTERED_RECEIVERS):
            found.append(FilteredReceivers(filters, theirs[start : start + FILTERED_RECEIVERS], effects, drops))
    return found
