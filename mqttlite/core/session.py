"""A client's session (5.0 §4.1): its subscriptions, and its QoS 1 and 2 messages until they are acknowledged.

A message gets its packet identifier when it is taken, not when it is sent, so that queue and window are one table in
one order. Invariants: an unacknowledged message is either `inflight`, sent on this connection, or queued; both in the
order in which they came, and everything in flight came before everything queued.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.changes import (
    ReleaseMessage,
    RemoveReceived,
    SaveMessage,
    SaveReceived,
    SettleMessage,
)
from mqttlite.core.deadlines import Deadline
from mqttlite.core.effects import Effects
from mqttlite.core.inflight import Inflight
from mqttlite.core.limits import (
    DISCONNECT,
    DROP_OLDEST,
    FILL_BYTES,
    ITERATION_BYTES,
    LOOKING_BYTES,
    SENDING_BYTES,
    Limits,
)
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbox import NO_OUTBOXES, Outbox
from mqttlite.core.packet_ids import PacketIds
from mqttlite.core.reasons import EXPIRED, PACKET_TOO_LARGE, QOS0_OFFLINE, QUEUE_FULL, count
from mqttlite.core.retained_replay import RetainedReplay, RetainedReplays
from mqttlite.core.source import CLIENT, Source
from mqttlite.core.subscription import Subscription
from mqttlite.core.tally import DROPPED, QUEUED, SENT
from mqttlite.core.tracer import BACKPRESSURE, OFFLINE, WINDOW_FULL
from mqttlite.wire.blocks import PUBACKS, PUBCOMPS, PUBRECS, PUBRELS, counted
from mqttlite.wire.constants import PUBREL, V5
from mqttlite.wire.encode import encode_ack, put_topic_alias
from mqttlite.wire.errors import ProtocolError
from mqttlite.wire.packets import Will

_ALIAS_BYTES: Final = 8
"""The most that an alias adds to a packet: three bytes, two lengths that may grow, and its packet identifier."""

_NO_SUCH_PACKET_ID: Final = 0x92

_NOTHING_PENDING: Final[deque[int]] = deque()
_NO_REPLAYS: Final = RetainedReplays()
_NO_WATCHERS: Final[dict[bytes, "list[Session]"]] = {}
"""Never added to: they stand for those that are not there yet."""


@final
class Session(Source):
    __slots__ = (
        "_effects",
        "_known",
        "_limits",
        "_next_packet_id",
        "_pending",
        "_queued",
        "_queued_bytes",
        "_replays",
        "_unused_ids",
        "_window",
        "alone",
        "drops",
        "expiry",
        "expiry_interval",
        "inflight",
        "inflight_high_water",
        "outbox",
        "queue_high_water",
        "quota",
        "received",
        "released",
        "subscriptions",
        "watchers",
        "will",
        "will_delay",
    )

    def __init__(self, client_id: str, expiry_interval: int, effects: Effects, limits: Limits) -> None:
        super().__init__(CLIENT, client_id)
        self._effects: Final = effects
        self._limits: Final = limits
        self.expiry_interval = expiry_interval
        """Seconds that the session outlives its connection; 0: not at all."""
        self.outbox: Outbox | None = None
        """Where to send; None while the client is away."""
        self.alone = NO_OUTBOXES
        """A list of nothing but that, once a route needs it; routes share it, and change it not."""
        self.subscriptions: dict[bytes, Subscription] = {}
        self.watchers: dict[bytes, list[Session]] = _NO_WATCHERS
        """Groups that passed this session over, by name, and the list where each wants to hear that it is better."""
        self.inflight: Final = Inflight()
        """Sent on this connection and not yet acknowledged (QoS 1) or received (QoS 2)."""
        self.released: Final = PacketIds()
        """QoS 2 identifiers whose message arrived, and whose PUBCOMP has not."""
        self.received: Final = PacketIds()
        """QoS 2 identifiers of the client's own messages, until it releases them."""
        self.quota = 0
        """How many more messages the client's Receive Maximum allows now."""
        self._window = 0
        self._queued: dict[int, Delivery] = {}
        # A deque takes 600 bytes, and most sessions never queue anything: theirs is one that is always empty.
        self._pending: deque[int] = _NOTHING_PENDING  # the identifiers in `_queued`, in order
        self._queued_bytes = 0
        self._replays = _NO_REPLAYS  # retained messages for a new subscription
        self._known: dict[int, None] = {}  # identifiers sent on an earlier connection: again means DUP
        self._next_packet_id = 1
        self._unused_ids = 0  # as far as known, from the next one on
        self.will: Will | None = None
        self.expiry: Deadline | None = None
        self.will_delay: Deadline | None = None
        self.drops: dict[str, int] = {}
        self.queue_high_water = 0
        self.inflight_high_water = 0

    @property
    def durable(self) -> bool:
        """Whether it outlives its connection, and so belongs in the store."""
        return self.expiry_interval > 0

    @property
    def queued(self) -> int:
        """Messages that wait to be sent."""
        return len(self._pending) + len(self._replays)

    @property
    def retained_waiting(self) -> int:
        """Those of them that were found retained by a new subscription."""
        return len(self._replays)

    @property
    def queued_bytes(self) -> int:
        """How much of topics and payloads the queue holds, but for retained messages on their way."""
        return self._queued_bytes

    # ------------------------------------------------------------------ the connection comes and goes

    def attach(self, outbox: Outbox, receive_maximum: int) -> None:
        """The client is back (or new). Call `resume` once CONNACK is on its way."""
        self.outbox = outbox
        self._window = min(receive_maximum, self._limits.max_inflight)  # [MQTT-4.9.0-1] [MQTT-3.3.4-9]
        self.quota = self._window - len(self.released)
        self.queue_high_water = len(self._pending)
        self.inflight_high_water = len(self.released)
        self._tell_watchers()

    def watch(self, group: bytes, improved: "list[Session]") -> None:
        """Put the session on that list, once, when it is connected again or has caught up."""
        if self.watchers is _NO_WATCHERS:
            self.watchers = {}
        self.watchers[group] = improved

    def resume(self) -> None:
        """Send again what was not acknowledged, in the original order [MQTT-4.4.0-1] [3.1.1 MQTT-4.6.0-1]."""
        outbox = self.outbox
        assert outbox is not None
        for packet_id in self.released.all():  # and not their PUBLISH [MQTT-4.3.3-6]
            outbox.send(encode_ack(PUBREL, packet_id, outbox.version))
        self.fill()

    def detach(self) -> None:
        """The client is gone; what it did not acknowledge it will be sent again, with DUP [MQTT-4.8.2-4]."""
        self.outbox = None
        self.alone = NO_OUTBOXES
        inflight = self.inflight.take_all()
        for packet_id, delivery in inflight.items():
            self._known[packet_id] = None
            self._queued[packet_id] = delivery
            self._queued_bytes += delivery.message.size()
        if inflight:
            if self._pending is _NOTHING_PENDING:
                self._pending = deque()
            self._pending.extendleft(reversed(inflight))
            if self.inflight.traced:
                self.inflight.traced = 0
                for delivery in inflight.values():
                    self._tell_queued(delivery.message)
        if self._replays:  # goes on when the client is back
            lost = self._replays.give_up(not self.durable)
            if lost:
                self.drop(QOS0_OFFLINE, lost, b"")

    def forget(self) -> None:
        """The session is over. A cached route or a group may know of it for as long as nobody publishes there, but its
        messages are let go of."""
        self.inflight.take_all()
        self._queued.clear()
        self._queued_bytes = 0
        self._pending = _NOTHING_PENDING
        self._replays = _NO_REPLAYS

    def restore_message(self, packet_id: int, delivery: Delivery) -> None:
        """Put back a message from a store; it may have been sent before."""
        self._put_last(packet_id, delivery)
        self._known[packet_id] = None
        self._next_packet_id = packet_id + 1 if packet_id < 65_535 else 1
        self._unused_ids = 0

    # ------------------------------------------------------------------ messages to the client

    def deliver(self, delivery: Delivery) -> int:
        """Take a QoS 1 or 2 message: send it if window and link allow, else queue it; `SENT`, `QUEUED` or `DROPPED`.

        [MQTT-4.5.0-1] [MQTT-4.9.0-2]; where others wait it goes behind them [MQTT-4.6.0-5] [MQTT-4.6.0-6].
        """
        outbox = self.outbox
        if outbox is None or outbox.blocked or self.quota <= 0 or self._pending or self._replays:
            return QUEUED if self._queue(delivery) else DROPPED
        packet_id = self._take_packet_id(delivery)
        self._send(outbox, packet_id, delivery)
        return SENT

    def deliver_batch(self, run: PublishBatch, qos: int) -> int:
        """Take the first messages of a run as one block; how many. `deliver` is for the others.

        None where each is to be looked at: it waits, it is to be made durable, or the client takes no such packet.
        """
        outbox = self.outbox
        if outbox is None or outbox.max_packet_bytes or outbox.topic_alias_maximum:
            return 0
        if qos == 0:
            outbox.offer(run.frames(outbox.version, 0, 0, run.count), run.count, run.expires_at)
            return run.count
        count = run.count if run.count < self.quota else self.quota
        if count <= 0 or outbox.blocked or self._pending or self._replays or self.expiry_interval:
            return 0
        if self._unused_ids < count:
            self._find_unused_ids()
            if self._unused_ids < count:
                return 0
        first_id = self._next_packet_id
        self._next_packet_id = first_id + count if first_id + count <= 65_535 else 1
        self._unused_ids -= count
        self.inflight.add_batch(first_id, run, count, qos)
        outbox.send(run.frames(outbox.version, qos, first_id, count))
        self._note_sent(outbox, qos, count)
        return count

    def has_room(self, delivery: Delivery) -> bool:
        """Whether `deliver` would take a message without dropping another."""
        outbox = self.outbox
        waits = outbox is None or outbox.blocked or self.quota <= 0 or self._pending or self._replays
        return not waits or self._fits(delivery.message.size())

    def drop(self, reason: str, messages: int, topic: bytes, trace: int = 0, detail: str = "") -> None:
        """Messages for the client are dropped: count them, and tell the witness."""
        count(self.drops, reason, messages)
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, self.client_id, topic, reason, messages, detail)

    def traced_waiting(self) -> list[Message]:
        """Those of the messages in the queue that are followed."""
        waiting = [self._queued[packet_id].message for packet_id in self._pending]
        return [message for message in waiting if message.trace]

    def with_origin(self) -> list[Delivery]:
        """QoS 1 messages from shared subscriptions that the client has not acknowledged, oldest first.

        Not those of QoS 2, which may go to nobody else [MQTT-4.8.2-5].
        """
        unfinished = [*self.inflight.by_id().values(), *[self._queued[packet_id] for packet_id in self._pending]]
        return [delivery for delivery in unfinished if delivery.origin is not None]

    def deliver_qos0(self, delivery: Delivery) -> int:
        """Send a QoS 0 message, or count why not; `SENT` or `DROPPED`."""
        outbox = self.outbox
        if outbox is None:
            self.drop(QOS0_OFFLINE, 1, delivery.message.topic, delivery.message.trace)
            return DROPPED
        head, tail = delivery.parts(outbox.version, self._effects.now)
        if outbox.too_large(len(head) + len(tail)):
            self._tell_too_large(outbox, delivery.message, len(head) + len(tail))
            return DROPPED
        if outbox.topic_alias_maximum:
            head, tail = _put_alias(outbox, delivery, head, tail)
        if delivery.message.trace:
            is_taken = outbox.offer_traced(head + tail, delivery.message.trace, delivery.message.expires_at)
        else:
            is_taken = outbox.offer(head + tail, 1, delivery.message.expires_at)
        return SENT if is_taken else DROPPED

    def deliver_retained(self, replays: list[RetainedReplay]) -> None:
        """Take what new subscriptions find retained; it leaves by and by, before later messages."""
        if self._replays is _NO_REPLAYS:
            self._replays = RetainedReplays()
        for replay in replays:
            self._replays.add(replay)
        self.fill()

    def end_retained(self, topic_filter: bytes) -> None:
        """A subscription is over: what it found retained is not sent any more."""
        if self._replays:
            self._replays.discard(topic_filter)

    def fill(self) -> None:
        """Send what waits, as far as window and link allow; a long backlog in several passes."""
        outbox = self.outbox
        if outbox is None or outbox.blocked:
            return
        effects = self._effects
        room = offered = FILL_BYTES if effects.pending_bytes < ITERATION_BYTES else 0
        if self._replays and self._known:  # what was sent on an earlier connection came before what is yet to be found
            while self._pending and self._pending[0] in self._known and room > 0 and self.quota > 0:
                room -= self._send_first(outbox)
        while self._replays and room > 0:
            found = self._replays.first()
            if found is None:
                room -= LOOKING_BYTES * self._replays.look(effects.now)
                continue
            delivery = found
            message = delivery.message
            if delivery.qos and self.quota <= 0 and not message.superseded:
                break
            self._replays.pop()
            if message.superseded or message.expired(effects.now):
                continue
            room -= message.size() + SENDING_BYTES
            if delivery.qos:
                self._send(outbox, self._take_packet_id(delivery), delivery)
            else:
                self.deliver_qos0(delivery)
        while self._pending and room > 0 and self.quota > 0:
            room -= self._send_first(outbox)
        effects.pending_bytes += offered - room
        if room <= 0 and not outbox.backlogged and (self._replays or (self._pending and self.quota > 0)):
            outbox.backlogged = True
            effects.backlogged.append(outbox.number)
        if self.watchers and not self._pending and not self._replays:
            self._tell_watchers()

    # ------------------------------------------------------------------ acknowledgements from the client

    def on_pubacks(self, data: bytes, at: int) -> int:
        """The PUBACK at `at`, and those behind it that follow in order; where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        if self.inflight.traced:
            self._tell_acknowledged(self.inflight.traced_leading(data, at, PUBACKS, 1))
        count = self.inflight.remove_leading(data, at, PUBACKS, 1)
        if count:
            self._settle(first_id, count)
            self._open_window(count)
        else:
            count = 1
            self.on_puback(first_id)
        return at + 4 * count

    def on_pubrecs(self, data: bytes, at: int) -> int:
        """The PUBREC at `at`, and those behind it that follow in order; where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        if self.inflight.traced:
            self._tell_acknowledged(self.inflight.traced_leading(data, at, PUBRECS, 2))
        count = self.inflight.remove_leading(data, at, PUBRECS, 2)
        if count:
            self._release(first_id, count)
        else:
            count = 1
            self.on_pubrec(first_id, 0)
        return at + 4 * count

    def on_pubcomps(self, data: bytes, at: int) -> int:
        """The PUBCOMP at `at`, and those behind it that follow in order; where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        count = self.released.take_leading(data, at, PUBCOMPS)
        if count:
            if self.durable:
                for packet_id in range(first_id, first_id + count):
                    self._effects.changes.append(SettleMessage(self.client_id, packet_id))
            self._open_window(count)
        else:
            count = 1
            self.on_pubcomp(first_id)
        return at + 4 * count

    def on_puback(self, packet_id: int) -> None:
        """Forget an acknowledged message; a late or unknown PUBACK is harmless.

        Until now it was unacknowledged [MQTT-4.3.2-3]; one that the client refused goes nowhere else
        [MQTT-4.4.0-2] [MQTT-4.8.2-6].
        """
        delivery = self.inflight.find(packet_id) or self._sent_before_resuming(packet_id)
        if delivery is not None and delivery.qos == 1:
            self.inflight.remove(packet_id)
            if delivery.message.trace:
                self._tell_acknowledged([delivery.message.trace])
            self._settle(packet_id)
            self._open_window(1)
        elif delivery is not None or self.released.has(packet_id):
            raise ProtocolError("PUBACK for a message of QoS 2 [MQTT-4.3.3-3]")

    def on_pubrec(self, packet_id: int, reason_code: int) -> None:
        """A QoS 2 message arrived: release its identifier, or forget it where the client refused it [MQTT-4.3.3-4]."""
        outbox = self.outbox
        assert outbox is not None
        delivery = self.inflight.find(packet_id) or self._sent_before_resuming(packet_id)
        if delivery is not None and delivery.qos == 2:
            self.inflight.remove(packet_id)
            if delivery.message.trace:
                self._tell_acknowledged([delivery.message.trace])
            if reason_code >= 0x80:  # [MQTT-4.4.0-2] [MQTT-4.8.2-6]
                self._settle(packet_id)
                self._open_window(1)
                return
            self._release(packet_id, 1)
        elif delivery is not None:
            raise ProtocolError("PUBREC for a message of QoS 1 [MQTT-4.3.2-3]")
        elif not self.released.has(packet_id):
            if reason_code < 0x80:
                code = _NO_SUCH_PACKET_ID if outbox.version == V5 else 0
                outbox.send(encode_ack(PUBREL, packet_id, outbox.version, code))
        else:
            outbox.send(encode_ack(PUBREL, packet_id, outbox.version))

    def on_pubcomp(self, packet_id: int) -> None:
        """A released identifier is free again; an unknown PUBCOMP is harmless."""
        if self.released.discard(packet_id):
            if self.durable:
                self._effects.changes.append(SettleMessage(self.client_id, packet_id))
            self._open_window(1)
        elif self.inflight.find(packet_id) is not None:
            raise ProtocolError("PUBCOMP for a message that was not released [MQTT-4.3.3-5]")

    # ------------------------------------------------------------------ the client's own QoS 2 identifiers

    def take_received(self, first_id: int, count: int = 1) -> None:
        """Take `count` identifiers from `first_id` on."""
        self.received.add(first_id, count)
        if self.durable:
            for packet_id in range(first_id, first_id + count):
                self._effects.changes.append(SaveReceived(self.client_id, packet_id))

    def release_received(self, packet_id: int) -> bool:
        """The client lets an identifier go. False: it was not taken."""
        if not self.received.discard(packet_id):
            return False
        if self.durable:
            self._effects.changes.append(RemoveReceived(self.client_id, packet_id))
        return True

    def release_leading(self, data: bytes, at: int) -> int:
        """The same for the PUBREL at `at` and those behind it that follow in order; how many were taken in order."""
        count = self.received.take_leading(data, at, PUBRELS)
        if self.durable:
            first_id = data[at + 2] << 8 | data[at + 3]
            for packet_id in range(first_id, first_id + count):
                self._effects.changes.append(RemoveReceived(self.client_id, packet_id))
        return count

    # ------------------------------------------------------------------ inside

    def _tell_watchers(self) -> None:
        for improved in self.watchers.values():
            improved.append(self)
        self.watchers = _NO_WATCHERS

    def _take_packet_id(self, delivery: Delivery) -> int:
        """An identifier that is not in use [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]."""
        if not self._unused_ids:
            self._find_unused_ids()
        packet_id = self._next_packet_id
        self._next_packet_id = packet_id + 1 if packet_id < 65_535 else 1
        self._unused_ids -= 1
        if self.durable:
            self._effects.changes.append(SaveMessage(self.client_id, packet_id, delivery))
            if self.outbox is not None:
                self.outbox.awaits_commit = True
        return packet_id

    def _find_unused_ids(self) -> None:
        """Pass over the identifiers that are in use, and see how many behind them are not.

        That is a look at each, but the next is due only when those are used up, mostly all 65 535 of them.
        """
        inflight = self.inflight.by_id()
        packet_id = self._next_packet_id
        while packet_id in inflight or packet_id in self._queued or self.released.has(packet_id):
            packet_id = packet_id + 1 if packet_id < 65_535 else 1
        self._next_packet_id = packet_id
        end = 65_536
        for used in (inflight, self._queued, self.released.all()):
            for each in used:
                if packet_id < each < end:
                    end = each
        self._unused_ids = end - packet_id

    def _send(self, outbox: Outbox, packet_id: int, delivery: Delivery) -> None:
        head, tail = delivery.parts(outbox.version, self._effects.now)
        if outbox.max_packet_bytes and outbox.too_large(len(head) + 2 + len(tail)):
            self._settle(packet_id)  # [MQTT-3.1.2-25]
            self._tell_too_large(outbox, delivery.message, len(head) + 2 + len(tail))
            return
        if outbox.topic_alias_maximum:
            head, tail = _put_alias(outbox, delivery, head, tail)
        if self._known and packet_id in self._known:  # else DUP is 0 [MQTT-3.3.1-3] [MQTT-4.3.2-2] [MQTT-4.3.3-2]
            head = (head[0] | 8).to_bytes(1, "big") + head[1:]  # DUP: sent before [MQTT-3.3.1-1]
        self.inflight.add(packet_id, delivery)
        outbox.send(head + packet_id.to_bytes(2, "big") + tail)
        self._note_sent(outbox, delivery.qos, 1)
        if delivery.message.trace:
            self.inflight.traced += 1
            outbox.tell_sent(delivery.message.trace, delivery.qos)

    def _note_sent(self, outbox: Outbox, qos: int, count: int) -> None:
        if qos == 1:
            outbox.sent_qos1 += count
        else:
            outbox.sent_qos2 += count
        self.quota -= count
        inflight = self._window - self.quota
        if inflight > self.inflight_high_water:
            self.inflight_high_water = inflight

    def _open_window(self, count: int) -> None:
        """The client is done with so many messages: it may get as many others."""
        self.quota += count
        if self._pending or self._replays:
            self.fill()

    def _queue(self, delivery: Delivery) -> bool:
        limits = self._limits
        size = delivery.message.size()
        if not self._fits(size) and limits.on_overflow == DROP_OLDEST and size <= limits.max_queued_bytes:
            at = self._sent_before()
            while at < len(self._pending) and not self._fits(size):
                oldest = self._pending[at]
                self._drop_for_want_of_room(self._queued[oldest].message)
                del self._pending[at]
                self._queued_bytes -= self._queued.pop(oldest).message.size()
                self._settle(oldest)
        if not self._fits(size):
            self._drop_for_want_of_room(delivery.message)
            if limits.on_overflow == DISCONNECT and self.outbox is not None:
                self._effects.overflowed.append(self.outbox.number)
            return False
        packet_id = self._take_packet_id(delivery)
        self._put_last(packet_id, delivery)
        if len(self._pending) > self.queue_high_water:
            self.queue_high_water = len(self._pending)
        if delivery.message.trace:
            self._tell_queued(delivery.message)
        return True

    def _put_last(self, packet_id: int, delivery: Delivery) -> None:
        if self._pending is _NOTHING_PENDING:
            self._pending = deque()
        self._queued[packet_id] = delivery
        self._pending.append(packet_id)
        self._queued_bytes += delivery.message.size()

    def _sent_before(self) -> int:
        """How many at the front of the queue were sent on an earlier connection: those are not dropped."""
        if self.outbox is None:
            return len(self._known)  # all of them are back in the queue
        at = 0
        while at < len(self._pending) and self._pending[at] in self._known:
            at += 1
        return at

    def _sent_before_resuming(self, packet_id: int) -> Delivery | None:
        """A message that waits to be sent again, and that the client answers from its former connection: in flight."""
        if packet_id not in self._known or packet_id not in self._queued:
            return None
        self._pending.remove(packet_id)
        delivery = self._queued.pop(packet_id)
        self._queued_bytes -= delivery.message.size()
        self.inflight.add(packet_id, delivery)
        if delivery.message.trace:
            self.inflight.traced += 1
        self.quota -= 1
        if not self._pending:
            self._tell_watchers()
        return delivery

    def _send_first(self, outbox: Outbox) -> int:
        """Send the first message of the queue, unless it has expired; how much that is."""
        packet_id = self._pending.popleft()
        delivery = self._queued.pop(packet_id)
        size = delivery.message.size()
        self._queued_bytes -= size
        if (
            delivery.message.expired(self._effects.now) and packet_id not in self._known
        ):  # [MQTT-3.3.2-5] [MQTT-4.3.3-7]
            self._settle(packet_id)
            self.drop(EXPIRED, 1, delivery.message.topic, delivery.message.trace)
            return 0
        self._send(outbox, packet_id, delivery)
        return size + 8

    def _fits(self, size: int) -> bool:
        limits = self._limits
        return len(self._pending) < limits.max_queued_messages and self._queued_bytes + size <= limits.max_queued_bytes

    def _release(self, first_id: int, count: int) -> None:
        """QoS 2 messages arrived that are no longer in flight: say so, as many as there are from that identifier on."""
        outbox = self.outbox
        assert outbox is not None
        self._forget_known(first_id, count)
        self.released.add(first_id, count)
        if self.durable:
            for packet_id in range(first_id, first_id + count):
                self._effects.changes.append(ReleaseMessage(self.client_id, packet_id))
            outbox.awaits_commit = True
        outbox.send(counted(PUBRELS, first_id, count))

    def _settle(self, first_id: int, count: int = 1) -> None:
        """Messages that are in neither table any more are done with, as many as there are from that identifier on."""
        self._forget_known(first_id, count)
        if self.durable:
            for packet_id in range(first_id, first_id + count):
                self._effects.changes.append(SettleMessage(self.client_id, packet_id))

    # ------------------------------------------------------------------ what the witness is told

    def _tell_queued(self, message: Message) -> None:
        """If the message is followed: it waits."""
        tracer = self._effects.tracer
        if tracer is not None and message.trace:
            why = WINDOW_FULL
            if self.outbox is None:
                why = OFFLINE
            elif self.outbox.blocked:
                why = BACKPRESSURE
            limit = self._limits.max_queued_messages
            tracer.on_queued(message.trace, self.client_id, why, len(self._pending), limit)

    def _tell_acknowledged(self, traces: list[int]) -> None:
        """Messages that are followed are in flight no longer."""
        self.inflight.traced -= len(traces)
        tracer = self._effects.tracer
        if tracer is not None:
            for trace in traces:
                tracer.on_acknowledged(trace, self.client_id)

    def _tell_too_large(self, outbox: Outbox, message: Message, size: int) -> None:
        """The outbox has counted it."""
        tracer = self._effects.tracer
        if tracer is not None:
            detail = f"{size}/{outbox.max_packet_bytes} bytes"
            tracer.on_dropped(message.trace, self.client_id, message.topic, PACKET_TOO_LARGE, 1, detail)

    def _drop_for_want_of_room(self, message: Message) -> None:
        detail = ""
        if self._effects.tracer is not None:
            limits = self._limits
            detail = f"{len(self._pending)}/{limits.max_queued_messages}"
            if len(self._pending) < limits.max_queued_messages:
                detail = f"{self._queued_bytes}/{limits.max_queued_bytes} bytes"
        self.drop(QUEUE_FULL, 1, message.topic, message.trace, detail)

    def _forget_known(self, first_id: int, count: int) -> None:
        if self._known:
            for packet_id in range(first_id, first_id + count):
                self._known.pop(packet_id, None)


def _put_alias(outbox: Outbox, delivery: Delivery, head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """The parts of a message with its topic's alias on this connection, if that has one and the packet has room."""
    if 0 < outbox.max_packet_bytes < len(head) + len(tail) + _ALIAS_BYTES:
        return head, tail
    topic = delivery.message.topic
    alias = outbox.topic_alias(topic)
    return put_topic_alias(head, tail, topic, abs(alias), alias < 0) if alias else (head, tail)
