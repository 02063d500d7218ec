"""The backlog of a session: decides which messages are queued, which of them are only in the store, and which are
dropped.

Invariant: messages wait in order of arrival, and each drop is counted with a reason.
"""

from typing import Final

from mqttlite.core.changes import Enqueue, Settled
from mqttlite.core.effects import Effects
from mqttlite.core.limits import DISCONNECT, DROP_NEWEST, DROP_OLDEST, KEPT_MESSAGES, PAGE_MESSAGES, Limits
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.question import LoadPage
from mqttlite.core.reasons import QUEUE_FULL, SESSION_EXPIRED, STORE_DAMAGED, count
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session_record import NO_REPLAYS, SessionRecord
from mqttlite.core.tracer import BACKPRESSURE, OFFLINE, WINDOW_FULL

SPARE_PART: Final = 16
"""One part in this many of a queue is reserved for messages whose fan-outs were interrupted."""

EMPTYING: Final = 0
FILLING: Final = 1
SLOW: Final = 2
"""The state of a connected client's queue: it has room; it fills up and the client reads; it fills up and the client
hardly reads."""


class SessionBacklog(SessionRecord):
    __slots__ = ("_effects", "_is_loading", "_limits", "_pages", "filling", "is_over", "outbox", "queue_high_water")

    def __init__(
        self,
        client_id: str,
        expiry_interval: int,
        effects: Effects,
        limits: Limits,
        pages: QueuePages | None,
    ) -> None:
        super().__init__(client_id, expiry_interval, effects.memory, limits.max_inflight_bytes)
        self._effects: Final = effects
        self._limits: Final = limits
        self._pages: Final = pages
        """Reads messages that are only in the store; None if there is no such store."""
        self._is_loading = False
        self.outbox: Outbox | None = None
        """The client's outbox; None while it is not connected."""
        self.is_over: bool = False
        """Whether the session has ended. A message that a fan-out still delivers to it is dropped."""
        self.queue_high_water: int = 0
        """The most messages that waited at one time since the connection began."""
        self.filling: int = EMPTYING
        """The state of its queue; see `BackPressure`."""

    def fill(self) -> None:
        """Send what waits, as far as window and link allow; a long backlog in several iterations."""

    # ------------------------------------------------------------------ room

    def has_room(self, message: Message, qos: int) -> bool:
        """Whether a message at `qos` would be taken without dropping another. An absent client gets no QoS 0
        messages."""
        outbox = self.outbox
        if qos == 0:
            return outbox is None or outbox.has_room(message.size())
        waits = outbox is None or self._must_wait(outbox)
        return not waits or self._fits(ENTRY_BYTES + message.memory_bytes)

    def has_room_to_spare(self, message: Message) -> bool:
        """Whether it would take a QoS 1 or 2 message, and some more from interrupted fan-outs before it."""
        outbox, most = self.outbox, self._limits.max_queued_messages
        if outbox is not None and not self._must_wait(outbox):
            return True
        size = ENTRY_BYTES + message.memory_bytes
        return self._waiting() + most // SPARE_PART < most and self._fits(2 * size)

    @property
    def fills(self) -> bool:
        """Whether its queue is more than half full, and publishers may wait for it."""
        limits = self._limits
        if limits.min_drain_rate == 0 or limits.on_overflow != DROP_NEWEST:
            return False
        if 2 * self._waiting() > limits.max_queued_messages or 2 * self.queued_bytes > limits.max_queued_bytes:
            return limits.max_queued_messages > 0
        return self._memory.used > self._memory.half

    def fill_up(self, state: int) -> None:
        """Set the state of its queue."""
        outbox = self.outbox
        if state != self.filling and outbox is not None:
            self.filling = state
            outbox.yields = state != EMPTYING
            if state == FILLING:
                self._effects.filling.add(outbox.number)
            else:
                self._effects.filling.discard(outbox.number)

    def drop(self, reason: str, messages: int, topic: bytes, trace: int = 0, detail: str = "") -> None:
        """Count dropped messages for the client, and report them to the tracer."""
        count(self.drops, reason, messages)
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, self.client_id, topic, reason, messages, detail)

    def _enqueue(self, delivery: Delivery) -> bool:
        if self.is_over:
            self.drop(SESSION_EXPIRED, 1, delivery.message.topic, delivery.message.trace)
            return False
        limits = self._limits
        on_overflow = delivery.message.on_overflow or limits.on_overflow
        size = ENTRY_BYTES + delivery.message.memory_bytes
        if on_overflow == DROP_OLDEST and size <= limits.max_queued_bytes:
            while len(self.queue) and not self._fits(size):
                if self.queue.deliveries:
                    self._drop_for_want_of_room(self.queue.deliveries[0].message)
                    self._discard(self.queue.first)
                    self.queue.pop()
                else:
                    self._drop_first(QUEUE_FULL)
        if not self._fits(size):
            self._drop_for_want_of_room(delivery.message)
            if on_overflow == DISCONNECT and self.outbox is not None:
                self._effects.overflowed.append(self.outbox.number)
            return False
        if self._stores():
            sequence = self.queue.append_stored(size)
            if self.outbox is not None:
                self._want_page()
        else:
            sequence = self.queue.append(delivery)
        if self.durable:
            self._effects.identify(delivery.message)
            self._effects.record(Enqueue(self.client_id, sequence, delivery))
            self._effects.charge_change(delivery.message)
        elif self.outbox is not None and self.outbox.tells:
            self._effects.identify(delivery.message)  # now, because the number contains the time
        waiting = self._waiting()
        if waiting > self.queue_high_water:
            self.queue_high_water = waiting
        if delivery.message.trace:
            self._tell_queued(delivery.message)
        if self.filling == EMPTYING and self.fills:
            self.fill_up(FILLING)
        return True

    def _fits(self, size: int) -> bool:
        limits = self._limits
        if self._waiting() >= limits.max_queued_messages:
            return False
        if self.queued_bytes + size > limits.max_queued_bytes:
            return False
        if self.queue.usages and self.queue.full(size) is not None:
            return False
        return size <= self._memory.room_for(self.held_bytes) or self._stores()

    def _stores(self) -> bool:
        """Whether the next message to wait goes only to the store."""
        return self._pages is not None and self.expiry_interval > 0 and self.queue.is_long

    def _must_wait(self, outbox: Outbox) -> bool:
        """Whether a message cannot be sent now."""
        window = self.window
        if outbox.blocked or not window.is_open or len(self.queue) or window.resend:
            return True
        if self._memory.room_for(self.held_bytes) <= 0:
            return True
        return len(self._replays) > 0

    def _discard(self, sequence: int) -> None:
        """Finish a message that the client will not acknowledge."""
        if self.durable:
            self._effects.record(Settled(self.client_id, sequence))

    def _drop_first(self, reason: str) -> None:
        """Drop the first waiting message, in memory or in the store."""
        queue = self.queue
        self._discard(queue.first)
        if queue.deliveries:
            message = queue.pop().message
            self.drop(reason, 1, message.topic, message.trace)
        else:
            queue.skip()
            self.drop(reason, 1, b"")

    def _drop_for_want_of_room(self, message: Message) -> None:
        limits = self._limits
        waiting = self._waiting()
        usage = self.queue.full(ENTRY_BYTES + message.memory_bytes) if self.queue.usages else None
        if usage is not None:
            usage.limits.count_refused(usage.limits.queued_bytes_name)
        detail = ""
        if self._effects.tracer is not None:
            detail = f"{waiting}/{limits.max_queued_messages}"
            if waiting < limits.max_queued_messages:
                size = ENTRY_BYTES + message.memory_bytes
                detail = f"{self.queued_bytes}+{size}/{limits.max_queued_bytes} bytes"
                if usage is not None:
                    detail = usage.detail()
                elif self._memory.room_for(self.held_bytes) < limits.max_queued_bytes - self.queued_bytes:
                    detail = self._memory.detail()
        self.drop(QUEUE_FULL, 1, message.topic, message.trace, detail)

    def _tell_queued(self, message: Message) -> None:
        """Report to the tracer that a traced message waits."""
        tracer = self._effects.tracer
        if tracer is not None and message.trace:
            why = self._why_waiting()
            tracer.on_queued(message.trace, self.client_id, why, self._waiting(), self._limits.max_queued_messages)

    def _why_waiting(self) -> str:
        """Why QoS 1 and 2 messages wait; earlier waiting messages are one of the reasons."""
        if self.outbox is None:
            return OFFLINE
        return BACKPRESSURE if self.outbox.blocked else WINDOW_FULL

    # ------------------------------------------------------------------ pages

    def next_page(self) -> LoadPage | None:
        """Implements `PageReader`: None if the client is away or the session has ended."""
        queue = self.queue
        if self.is_over or self.outbox is None or not queue.wants_page:
            self._is_loading = False
            return None
        memory = self._effects.memory
        most = PAGE_MESSAGES if memory.used <= memory.half else KEPT_MESSAGES
        return LoadPage(self.client_id, queue.first + len(queue.deliveries), min(queue.stored, most))

    def _reset_high_water(self) -> None:
        """A connection begins: set the high-water mark to the messages that wait now."""
        self.queue_high_water = self._waiting()

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Implements `PageReader`: send what the window allows."""
        self._is_loading = False
        if not self.is_over and self.outbox is not None:
            self.add_page(first, page)
            self.fill()

    def add_page(self, first: int, page: list[Delivery | None]) -> None:
        """Add messages read from the store. Skip those dropped meanwhile, and drop lost ones."""
        queue = self.queue
        for sequence, delivery in enumerate(page, first):
            if not queue.stored or sequence != queue.first + len(queue.deliveries):
                continue
            if delivery is not None:
                queue.take_page(delivery)
            elif not queue.deliveries:
                self._drop_first(STORE_DAMAGED)
            else:
                break  # the next page begins with the lost message

    def _want_page(self) -> None:
        if not self._is_loading and self.queue.wants_page:
            assert self._pages is not None, "who stores messages reads them"
            self._is_loading = True
            self._pages.want(self)

    # ------------------------------------------------------------------ a restart, and the end

    def restore_message(self, sequence: int, delivery: Delivery, packet_id: int) -> None:
        """Restore a message from a store. One with a packet identifier was sent before."""
        if packet_id:
            self.window.restore(packet_id, delivery, sequence)
            self.queue.restore_sent(sequence)
        else:
            self.queue.restore(sequence, delivery)

    def take_waiting(self) -> Delivery | None:
        """The session has ended: remove its oldest unacknowledged message. None when none is left."""
        window = self.window
        for packet_id in window.resend:
            return window.pop_resend(packet_id).delivery
        return self.queue.pop() if self.queue.deliveries else None

    def forget_retained(self) -> None:
        """The session has ended: drop its waiting retained messages."""
        self._replays = NO_REPLAYS
