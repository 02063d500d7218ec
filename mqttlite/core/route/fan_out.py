"""Delivers one message or one batch to every receiver of a route. It is a job that can pause, because a route may have
very many receivers.

When many bytes wait to be written, the receivers after the first `CROWD` wait, so that messages for thousands do not
delay a message for one. Invariant: each receiver of the route is visited once, in order, and counted.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, has_budget
from mqttlite.core.limits import CROWD, DELIVERY_WORK, ITERATION_BYTES, ITERATION_WORK
from mqttlite.core.memory import Holdable
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.reasons import FILTER_MISMATCH, NO_SUBSCRIBERS
from mqttlite.core.route.filtered_receivers import FilteredReceivers
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.route import Receiver
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, Tally
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.topics.names import is_own

_NO_SHAPES: Final[list[Delivery | None]] = []
_NO_SPECIAL: Final[dict[tuple[int, bool, tuple[int, ...]], Delivery]] = {}
"""Never added to. Shared by all fan-outs without special deliveries."""


class FanOut(Job):
    """What becomes of messages that were published together. It is done after the last receiver, with nothing pending.

    A plain one is done at once: nobody gets the messages.
    """

    __slots__ = ("done", "on_done", "tally")

    def __init__(self, tally: Tally, done: bool = True) -> None:
        self.tally: Tally = tally
        self.done: bool = done
        self.on_done: Callable[[], None] | None = None
        """Called at the end, if the fan-out was interrupted."""

    def step(self) -> bool:
        raise AssertionError("it is done at once")


class _Delivering(FanOut):
    """The part that a message and a batch have in common."""

    __slots__ = (
        "_asks",
        "_at_once",
        "_bytes",
        "_drops",
        "_effects",
        "_held",
        "_is_held",
        "_next",
        "_next_sink",
        "_receivers",
        "_sinks",
        "_source",
        "_topic",
        "_work",
    )

    def __init__(
        self,
        held: Holdable,
        topic: bytes,
        size: int,
        work: int,
        effects: Effects,
        drops: Drops,
        receivers: list[Receiver],
        sinks: list[Sink],
        source: Source,
        tally: Tally,
        at_once: bool,
    ) -> None:
        super().__init__(tally, False)
        self._held: Final = held
        self._topic: Final = topic
        self._bytes: Final = size
        """What the messages add to the outbox of each receiver."""
        self._work: Final = work
        """What each receiver costs, in the unit of `ITERATION_WORK`."""
        self._effects: Final = effects
        self._drops: Final = drops
        self._receivers: Final = receivers
        self._sinks = sinks
        self._source: Final = source
        self._at_once: Final = at_once
        self._asks = False
        """Whether the rules changed since the route was made, so that each remaining receiver must be checked."""
        self._next = 0
        self._next_sink = 0
        self._is_held = False

    def step(self) -> bool:
        """Continue with the receivers until the iteration's work budget is used up. Return whether all were visited."""
        effects, tally = self._effects, self.tally
        dirty_before, changes_before = len(effects.dirty), len(effects.changes)
        is_done = (not self._receivers or self._to_receivers()) and (not self._sinks or self._to_sinks())
        if len(effects.dirty) - dirty_before > CROWD:
            effects.note_crowd(dirty_before)
        if len(effects.changes) > changes_before:
            tally.is_durable = True
        if not is_done:
            self._wait()
            return False
        if tally.pending:
            self._wait()
            tally.on_settled = self._end
        else:
            self._end()
        return True

    def on_new_rules(self, permissions: Permissions) -> None:
        self._asks = True
        self._sinks = [
            each.allowed(self._topic) if isinstance(each, FilteredReceivers) else each for each in self._sinks
        ]

    def _to_receivers(self) -> bool:
        effects, tally, source = self._effects, self.tally, self._source
        size, work = self._bytes, self._work
        receivers, at = self._receivers, self._next
        end = len(receivers)
        while at < end:
            is_full = effects.work >= ITERATION_WORK or (effects.pending_bytes >= ITERATION_BYTES and at >= CROWD)
            if is_full and not self._at_once:
                self._next = at
                return False
            receiver: Receiver | None = receivers[at]
            at += 1
            assert receiver is not None
            if receiver.has_no_local:
                receiver = receiver.for_messages_of(source)
                if receiver is None:
                    continue
            if self._asks and not receiver.session.may_receive(self._topic):
                continue
            tally.reached += 1
            effects.pending_bytes += size
            effects.work += work
            self._give(receiver)
        self._next = at
        return True

    def _to_sinks(self) -> bool:
        effects, sinks = self._effects, self._sinks
        while self._next_sink < len(sinks):
            sink = sinks[self._next_sink]
            if not self._at_once and (self._must_wait() or not sink.prepare(self._messages())):
                return False
            self._next_sink += 1
            self.tally.reached += 1
            effects.work += DELIVERY_WORK
            effects.pending_bytes += self._bytes
            self._give_to_sink(sink)
        return True

    def _must_wait(self) -> bool:
        """Whether the next sink must wait. Unwritten bytes hold a sink back only if the route has many."""
        return not has_budget(self._effects) and (self._effects.work >= ITERATION_WORK or self._next_sink >= CROWD)

    def _wait(self) -> None:
        """Charge the memory of the messages while they wait for their remaining receivers."""
        if not self._is_held:
            self._is_held = True
            self._effects.memory.hold(self._held)

    def _end(self) -> None:
        tally = self.tally
        self.done = True
        if self._is_held:
            self._effects.memory.let_go(self._held)
        self._forget()
        if tally.reached == 0:
            tally.code = tally.code or NO_MATCHING_SUBSCRIBERS
            if not tally.filtered:
                self._count_unheard()
            elif not is_own(self._topic):
                self._count_filtered()
        if self.on_done is not None:
            self.on_done()

    def _count_filtered(self) -> None:
        """Count messages that no receiver's filter lets pass. The sinks have already reported them to the tracer."""
        messages = self._messages() - len(self.tally.reached_partly)
        if messages:
            self._drops.add(FILTER_MISMATCH, messages, self._topic, NOT_TRACED)

    def _messages(self) -> int:
        raise AssertionError("each kind has its own")

    def _give(self, receiver: Receiver) -> None:
        raise AssertionError("each kind has its own")

    def _give_to_sink(self, sink: Sink) -> None:
        raise AssertionError("each kind has its own")

    def _forget(self) -> None:
        """Free what was cached for the receivers."""
        raise AssertionError("each kind has its own")

    def _count_unheard(self) -> None:
        """Count messages without subscribers; traced messages are reported one by one."""
        raise AssertionError("each kind has its own")


def count_unheard(message: Message, drops: Drops) -> None:
    """Count a message without subscribers. The broker's own messages are not drops."""
    if not is_own(message.topic):
        drops.add(NO_SUBSCRIBERS, 1, message.topic, message.trace)


@final
class MessageFanOut(_Delivering):
    __slots__ = ("_message", "_shapes", "_special")

    def __init__(
        self,
        message: Message,
        effects: Effects,
        drops: Drops,
        receivers: list[Receiver],
        sinks: list[Sink],
        source: Source,
        tally: Tally,
        at_once: bool,
    ) -> None:
        _Delivering.__init__(
            self,
            message,
            message.topic,
            message.size(),
            DELIVERY_WORK,
            effects,
            drops,
            receivers,
            sinks,
            source,
            tally,
            at_once,
        )
        self._message: Final = message
        self._shapes = _NO_SHAPES
        """The common deliveries, by QoS: without RETAIN and subscription identifiers."""
        self._special = _NO_SPECIAL
        """The other deliveries, by QoS, RETAIN and subscription identifiers."""

    def _messages(self) -> int:
        return 1

    def _give(self, receiver: Receiver) -> None:
        message = self._message
        qos = message.qos if message.qos < receiver.qos else receiver.qos  # [MQTT-3.8.4-8]
        if self._shapes is _NO_SHAPES:
            self._shapes = [None, None, None]
        delivery = self._shapes[qos]
        # RETAIN is 0, or as it came [MQTT-3.3.1-12] [MQTT-3.3.1-13].
        if receiver.identifiers or (message.retain and receiver.retain_as_published):
            retain = message.retain and receiver.retain_as_published
            delivery = self._special_delivery(message, qos, retain, receiver.identifiers)
        elif delivery is None:
            delivery = self._shapes[qos] = Delivery(message, qos, False)
        receiver.deliver(delivery, self.tally)

    def _special_delivery(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> Delivery:
        if self._special is _NO_SPECIAL:
            self._special = {}
        key = (qos, retain, identifiers)
        delivery = self._special.get(key)
        if delivery is None:
            delivery = self._special[key] = Delivery(message, qos, retain, identifiers)
        return delivery

    def _give_to_sink(self, sink: Sink) -> None:
        sink.accept(self._message, self._source, self.tally)

    def _forget(self) -> None:
        for delivery in self._shapes:
            if delivery is not None:
                delivery.forget_parts()
        for delivery in self._special.values():
            delivery.forget_parts()

    def _count_unheard(self) -> None:
        count_unheard(self._message, self._drops)


@final
class BatchFanOut(_Delivering):
    __slots__ = ("_batch",)

    def __init__(
        self,
        batch: PublishBatch,
        effects: Effects,
        drops: Drops,
        receivers: list[Receiver],
        sinks: list[Sink],
        source: Source,
        tally: Tally,
        at_once: bool,
    ) -> None:
        _Delivering.__init__(
            self,
            batch,
            batch.topic,
            batch.message_bytes() * batch.count,
            DELIVERY_WORK + batch.count,
            effects,
            drops,
            receivers,
            sinks,
            source,
            tally,
            at_once,
        )
        self._batch: Final = batch

    def _messages(self) -> int:
        return self._batch.count

    def _give(self, receiver: Receiver) -> None:
        self._effects.work += DELIVERY_WORK * receiver.accept_batch(self._batch, self.tally)

    def _give_to_sink(self, sink: Sink) -> None:
        sink.accept_batch(self._batch, self._source, self.tally)

    def _forget(self) -> None:
        self._batch.forget_forms()

    def _count_unheard(self) -> None:
        batch = self._batch
        if is_own(self._topic):
            return
        for trace in batch.traces:
            self._drops.add(NO_SUBSCRIBERS, 1, self._topic, trace)
        if len(batch.traces) < batch.count:
            self._drops.add(NO_SUBSCRIBERS, batch.count - len(batch.traces), self._topic)
