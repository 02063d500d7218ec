"""The receivers of a topic that have message filters. They are sinks, so routes without filters cost nothing more.

Sessions with the same filter share a sink, which evaluates the filter once for each message. Invariant: a session gets
one copy of a message if at least one of its subscriptions lets it pass, and only the subscriptions that let it pass
determine its QoS, RETAIN and identifiers.
"""

from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.limits import DELIVERY_WORK, FILTERED_RECEIVERS, JSON_BYTES_PER_WORK_UNIT, MAX_COMBINATIONS
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.message_filter import MessageFilter, StoredFilter
from mqttlite.core.reasons import FILTER_MISMATCH
from mqttlite.core.route.outlook import EXCLUDED, FILTERED, PlannedReceiver
from mqttlite.core.route.route import Receiver
from mqttlite.core.route.subscription import RoutePlan, Subscription
from mqttlite.core.route.tally import Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.core.tracer import NOT_TRACED


class FilteredReceivers:
    """A `Sink`."""

    __slots__ = ("_drops", "_effects", "receivers")

    def __init__(self, receivers: list[Receiver], effects: Effects, drops: Drops) -> None:
        self.receivers: Final = receivers
        """The receivers of messages that pass all filters of their sessions."""
        self._effects: Final = effects
        self._drops: Final = drops

    def prepare(self, messages: int) -> bool:
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        """Implements `Sink`: whether all receivers have room, also those whose filters keep the message out."""
        return all(receiver.session.has_room(message, min(qos, receiver.qos)) for receiver in self.receivers)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        raise AssertionError("each kind has its own")

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        raise AssertionError("each kind has its own")

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        raise AssertionError("each kind has its own")

    def allowed(self, topic: bytes) -> "FilteredReceivers":
        """The same, reduced to the receivers that may receive the topic under the rules in force."""
        raise AssertionError("each kind has its own")

    def _kept_out(self, session: Session, expression: str) -> PlannedReceiver:
        return PlannedReceiver(session.client_id, b"", 0, EXCLUDED, FILTER_MISMATCH, expression)

    def _begin(self, tally: Tally, size: int) -> None:
        """Undo the fan-out's count of this sink as one receiver of `size` bytes."""
        tally.reached -= 1
        self._effects.pending_bytes -= size

    def _ask(self, message_filter: MessageFilter, message: Message) -> bool:
        self._effects.work += 1
        if message_filter.reads_payload:
            self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return message_filter.matches(message)

    def _hand_over(self, receiver: Receiver, delivery: Delivery, tally: Tally) -> None:
        self._effects.pending_bytes += delivery.message.size()
        self._effects.work += DELIVERY_WORK
        receiver.deliver(delivery, tally)

    def _hand_over_batch(self, receiver: Receiver, batch: PublishBatch, tally: Tally) -> None:
        self._effects.pending_bytes += batch.message_bytes() * batch.count
        self._effects.work += DELIVERY_WORK * (1 + receiver.accept_batch(batch, tally))

    def _keep_out(self, receiver: Receiver, messages: int, trace: int, expression: str, tally: Tally) -> None:
        """Count messages that do not pass a filter. They are counted apart from drops."""
        tally.filtered += messages
        self._drops.add_filtered(messages, trace, receiver.session.client_id, expression)


@final
class SameFilter(FilteredReceivers):
    """Sessions with one matching subscription each, all with the same filter."""

    __slots__ = ("_filter",)

    def __init__(
        self, message_filter: MessageFilter, receivers: list[Receiver], effects: Effects, drops: Drops
    ) -> None:
        super().__init__(receivers, effects, drops)
        self._filter: Final = message_filter

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        is_asked = knows_payload or not self._filter.reads_payload
        if is_asked and not self._ask(self._filter, message):
            return [self._kept_out(each.session, self._filter.expression) for each in self.receivers]
        return [each.outlook(message, source, "" if is_asked else FILTERED) for each in self.receivers]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self._begin(tally, message.size())
        passes = self._ask(self._filter, message)
        deliveries: dict[tuple[int, bool, tuple[int, ...]], Delivery] = {}
        for receiver in self.receivers:
            if receiver.for_messages_of(source) is None:
                continue
            if not passes:
                self._keep_out(receiver, 1, message.trace, self._filter.expression, tally)
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

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        self._begin(tally, batch.message_bytes() * batch.count)
        places = self._passing(batch)
        passing = batch if len(places) == batch.count else batch.select(places) if places else None
        kept_out = batch.count - len(places)
        for receiver in self.receivers:
            if receiver.for_messages_of(source) is None:
                continue
            if passing is not None:
                self._hand_over_batch(receiver, passing, tally)
                tally.reach(places, batch.count)
            if kept_out:
                self._keep_out(receiver, kept_out, NOT_TRACED, self._filter.expression, tally)
        if passing is not None and passing is not batch:
            passing.forget_forms()

    def allowed(self, topic: bytes) -> FilteredReceivers:
        receivers = [receiver for receiver in self.receivers if receiver.session.may_receive(topic)]
        return SameFilter(self._filter, receivers, self._effects, self._drops)

    def _passing(self, batch: PublishBatch) -> list[int]:
        """The positions in a batch of the messages that pass."""
        if self._filter.reads_payload:
            return [at for at in range(batch.count) if self._ask(self._filter, batch.delivery(at, 0).message)]
        return list(range(batch.count)) if self._ask(self._filter, batch.delivery(0, 0).message) else []


@final
class Overlapping(FilteredReceivers):
    """A session with several matching subscriptions, some of them with filters."""

    __slots__ = ("_by_passing", "_reads_payload", "_session", "_subscriptions")

    def __init__(self, session: Session, subscriptions: list[Subscription], effects: Effects, drops: Drops) -> None:
        super().__init__([Receiver(session, subscriptions)], effects, drops)
        self._session: Final = session
        self._subscriptions: Final = subscriptions
        self._by_passing: Final[dict[int, Receiver]] = {}
        """The session's receiver by the set of subscriptions that let a message pass, a mask with one bit for each."""
        reads_payload = False
        for subscription in subscriptions:
            message_filter = subscription.message_filter
            reads_payload = reads_payload or (message_filter is not None and message_filter.reads_payload)
        self._reads_payload: Final = reads_payload

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        everything = self.receivers[0]
        if everything.for_messages_of(source) is None or (self._reads_payload and not knows_payload):
            return [everything.outlook(message, source, FILTERED)]
        receiver = self._receiver(message, source)
        if receiver is None:
            return [self._kept_out(self._session, self._expressions())]
        return [receiver.outlook(message, source)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self._begin(tally, message.size())
        everything = self.receivers[0].for_messages_of(source)
        if everything is None:
            return
        receiver = self._receiver(message, source)
        if receiver is None:
            self._keep_out(everything, 1, message.trace, self._expressions(), tally)
            return
        tally.reached += 1
        self._deliver(receiver, message, tally)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        self._begin(tally, batch.message_bytes() * batch.count)
        everything = self.receivers[0].for_messages_of(source)
        if everything is None:
            return
        if not self._reads_payload:
            receiver = self._receiver(batch.delivery(0, 0).message, source)
            if receiver is None:
                self._keep_out(everything, batch.count, NOT_TRACED, "", tally)
            else:
                tally.reached += 1
                self._hand_over_batch(receiver, batch, tally)
            return
        reached: list[int] = []
        for at in range(batch.count):
            message = batch.delivery(at, 0).message
            receiver = self._receiver(message, source)
            if receiver is None:
                self._keep_out(everything, 1, NOT_TRACED, "", tally)
            else:
                reached.append(at)
                self._deliver(receiver, message, tally)
        tally.reach(reached, batch.count)

    def allowed(self, topic: bytes) -> FilteredReceivers:
        if self._session.may_receive(topic):
            return self
        return SameFilter(StoredFilter(""), [], self._effects, self._drops)

    def _receiver(self, message: Message, source: Source) -> Receiver | None:
        """The session's receiver for a message; None if no subscription lets it pass."""
        passing = 0
        for number, subscription in enumerate(self._subscriptions):
            message_filter = subscription.message_filter
            if message_filter is None or self._ask(message_filter, message):
                passing |= 1 << number
        if passing == 0:
            return None
        receiver = self._by_passing.get(passing)
        if receiver is None:
            if len(self._by_passing) >= MAX_COMBINATIONS:
                self._by_passing.clear()
            subscriptions = [each for number, each in enumerate(self._subscriptions) if passing >> number & 1]
            receiver = self._by_passing[passing] = Receiver(self._session, subscriptions)
        return receiver.for_messages_of(source)

    def _deliver(self, receiver: Receiver, message: Message, tally: Tally) -> None:
        retain = message.retain and receiver.retain_as_published
        delivery = Delivery(message, min(message.qos, receiver.qos), retain, receiver.identifiers)
        self._hand_over(receiver, delivery, tally)
        delivery.forget_parts()

    def _expressions(self) -> str:
        filters = [each.message_filter for each in self._subscriptions]
        return "; ".join([each.expression for each in filters if each is not None])


def filtered_receivers(
    plan: RoutePlan, sessions: dict[str, Session], effects: Effects, drops: Drops
) -> list[FilteredReceivers]:
    """Take the clients with filters out of a plan, and return the sinks for them."""
    found: list[FilteredReceivers] = []
    same: dict[MessageFilter, list[Receiver]] = {}
    for client_id in plan.filtering:
        subscriptions = plan.by_client.pop(client_id, None)
        if subscriptions is None:  # its session has ended, or it may not receive the topic
            continue
        session = sessions[client_id]
        message_filter = subscriptions[0].message_filter
        if len(subscriptions) > 1 or message_filter is None:
            found.append(Overlapping(session, subscriptions, effects, drops))
            continue
        receivers = same.get(message_filter)
        if receivers is None:
            receivers = same[message_filter] = []
        receivers.append(Receiver(session, subscriptions))
    for message_filter, receivers in same.items():
        for start in range(0, len(receivers), FILTERED_RECEIVERS):
            some = receivers[start : start + FILTERED_RECEIVERS]
            found.append(SameFilter(message_filter, some, effects, drops))
    return found
