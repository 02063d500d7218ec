"""A client's session (5.0 §4.1): its QoS 1 and 2 messages until they are acknowledged, and other state that outlives a
connection.

A message waits in the `SessionQueue`, gets its packet identifier when it is sent, and is then in the `Window`. This
module decides when messages move between the two. Invariant: messages leave in order of arrival, except that retained
messages may overtake, and messages sent on an earlier connection leave first.
"""

from typing import Final, final

from mqttlite.core.authorizer import RECEIVE
from mqttlite.core.changes import Enqueue, Sent
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    DROP_OLDEST,
    FORGOTTEN_PER_WORK_UNIT,
    ITERATION_BYTES,
    QUEUED_MESSAGE_WORK,
    SENDING_BYTES,
    Limits,
)
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbound.outbox import NO_OUTBOXES, Outbox
from mqttlite.core.outbound.publish_parts import with_alias, with_packet_id
from mqttlite.core.outbound.told_properties import told_properties
from mqttlite.core.reasons import (
    EXPIRED,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    PURGED,
    QOS0_OFFLINE,
    QUEUE_FULL,
)
from mqttlite.core.retained.retained_replay import RetainedReplay, RetainedReplays
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.core.session.inflight import NOT_STORED, Unacknowledged, is_lent, is_watched
from mqttlite.core.session.puller import Puller
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session_backlog import EMPTYING, SessionBacklog
from mqttlite.core.session.session_record import NO_REPLAYS
from mqttlite.core.tracer import BACKPRESSURE
from mqttlite.topics.namespaces import Namespaces
from mqttlite.wire.constants import PUBREL
from mqttlite.wire.encode import encode_ack

_PUBLISH_BYTES: Final = 8
"""The bytes that count for a message in `FILL_BYTES` in addition to its size, so that empty ones also reach the
limit."""

_NO_PULLERS: Final[list[Puller]] = []
_NO_WATCHERS: Final[dict[bytes, "list[Session]"]] = {}
"""Never added to. Shared by sessions without pullers or watchers."""


@final
class Session(SessionBacklog):
    __slots__ = ("_permissions", "alone", "connected_at", "held_subacks", "pullers", "watchers")

    def __init__(
        self,
        client_id: str,
        expiry_interval: int,
        effects: Effects,
        limits: Limits,
        pages: QueuePages | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        super().__init__(client_id, expiry_interval, effects, limits, pages)
        self._permissions: Final = permissions
        self.alone: list[Outbox] = NO_OUTBOXES
        """A list with only this session's outbox, made when a route needs it. Routes share it and must not change
        it."""
        self.pullers: list[Puller] = _NO_PULLERS
        """Asked for messages when the session has room; see `pull_with`."""
        self.held_subacks: int = 0
        """How many SUBACKs wait for others that make its client a member of something: messages come after them."""
        self.connected_at: float = 0.0
        """When its client has last connected; 0.0 if that was before the broker started."""
        self.watchers: dict[bytes, list[Session]] = _NO_WATCHERS
        """By share group that passed over this session: the list to which to add it when it has recovered."""

    # ------------------------------------------------------------------ the connection comes and goes

    def attach(self, outbox: Outbox, receive_maximum: int) -> None:
        """The client has connected. Call `resume` after CONNACK is in the outbox."""
        self.outbox = outbox
        self.held_subacks = 0
        self.window.open(min(receive_maximum, self._limits.max_inflight))  # [MQTT-4.9.0-1] [MQTT-3.3.4-9]
        self._reset_high_water()
        self._tell_watchers()

    def watch(self, group: bytes, improved: "list[Session]") -> None:
        """Add the session to `improved`, once, when it is connected again or has caught up."""
        if self.watchers is _NO_WATCHERS:
            self.watchers = {}
        self.watchers[group] = improved

    def resume(self) -> None:
        """Resend unacknowledged messages, in the original order [MQTT-4.4.0-1] [3.1.1 MQTT-4.6.0-1]."""
        outbox = self.outbox
        assert outbox is not None
        for packet_id in self.window.released.all():  # without their PUBLISH [MQTT-4.3.3-6]
            outbox.send(encode_ack(PUBREL, packet_id, outbox.version))
        self.fill()

    def detach(self) -> None:
        """The client is gone. Unacknowledged messages will be sent again, with DUP [MQTT-4.8.2-4]."""
        if self.filling != EMPTYING:
            self.fill_up(EMPTYING)
        self.outbox = None
        self.alone = NO_OUTBOXES
        for puller in self.pullers:
            puller.on_gone()
        if self._pages is not None and self.durable:
            self._effects.work += self.queue.forget_page() // FORGOTTEN_PER_WORK_UNIT
        watched = self.window.inflight.watched
        came_back = self.window.close()
        lent: list[Delivery] = []
        if watched:
            lent = self._take_lent()
            for each in came_back:
                if not is_lent(each):
                    self._tell_queued(each.message())
        if self.window.kept:
            lent += self.window.take_kept()
        if self._replays:  # continues when the client is back
            lost = self._replays.give_up(not self.durable)
            if lost:
                self.drop(QOS0_OFFLINE, lost, b"")
        for delivery in lent:
            assert delivery.origin is not None
            delivery.origin.returned(delivery)

    def purge(self, most: int) -> int:
        """Drop up to `most` messages that were never sent, oldest first. Return how many were dropped.

        Their publishers got an acknowledgement, so each drop is counted. Sent, unacknowledged messages stay.
        """
        purged = 0
        while len(self.queue) and purged < most:
            self._drop_first(PURGED)
            purged += 1
        if purged and self.outbox is not None and not self._waiting():
            self._tell_watchers()
        return purged

    # ------------------------------------------------------------------ messages to the client

    def may_receive(self, topic: bytes) -> bool:
        """Whether the rules in force let the client receive a topic."""
        return self._permissions is None or self._permissions.may_receive(self, topic)

    def may_get_retained(self, message: Message) -> bool:
        """Whether the rules in force let the client receive a retained message, and its writer write it."""
        permissions = self._permissions
        return permissions is None or (
            permissions.may_receive(self, message.topic) and permissions.may_still_write(message)
        )

    def why_denied(self, topic: bytes) -> str:
        """The rule that forbids the client to receive a topic; empty if it may."""
        if self.may_receive(topic):
            return ""
        assert self._permissions is not None, "without rules it may"
        return self._permissions.reason(self, RECEIVE, topic) or NOT_AUTHORIZED

    def deliver(self, delivery: Delivery) -> int:
        """Send a QoS 1 or 2 message if window and link allow, else queue it. Return `SENT`, `QUEUED` or `DROPPED`.

        [MQTT-4.5.0-1] [MQTT-4.9.0-2]. If others wait, it goes behind them [MQTT-4.6.0-5] [MQTT-4.6.0-6].
        """
        outbox = self.outbox
        window = self.window
        if (
            outbox is None
            or outbox.blocked
            or window.quota <= 0
            or window.inflight.size_bytes > self._limits.max_inflight_bytes
            or self.queue.deliveries
            or self.queue.stored
            or window.resend
            or self._replays
            or (self._memory.used > self._memory.half and self._memory.room_for(self.held_bytes) <= 0)
        ):
            return QUEUED if self._enqueue(delivery) else DROPPED
        self._send(outbox, delivery, self.queue.pass_by(), False)
        return SENT

    def outlook(self, delivery: Delivery) -> tuple[int, str]:
        """What `deliver` or `deliver_qos0` would do now, and why the message would not be sent at once."""
        outbox = self.outbox
        if outbox is None:
            return self._outlook_of_queue(delivery) if delivery.qos else (DROPPED, QOS0_OFFLINE)
        if delivery.qos and self._must_wait(outbox):
            return self._outlook_of_queue(delivery)
        seen = delivery.unmounted(outbox.mount_point) if outbox.mount_point else delivery
        if seen is None:
            return DROPPED, NOT_AUTHORIZED
        size = seen.packet_bytes(outbox.version, self._effects.now)
        if outbox.is_too_large(size):
            return DROPPED, PACKET_TOO_LARGE
        reason = "" if delivery.qos else outbox.would_drop(size, delivery.message.on_overflow)
        if reason:
            return DROPPED, reason
        return (QUEUED, BACKPRESSURE) if outbox.blocked else (SENT, "")

    def _outlook_of_queue(self, delivery: Delivery) -> tuple[int, str]:
        limits = self._limits
        size = ENTRY_BYTES + delivery.message.memory_bytes
        on_overflow = delivery.message.on_overflow or limits.on_overflow
        if self._fits(size) or (on_overflow == DROP_OLDEST and size <= limits.max_queued_bytes):
            return QUEUED, self._why_waiting()
        return DROPPED, QUEUE_FULL

    def takes_batch(self, count: int) -> bool:
        """Whether `deliver_batch` would send that many messages now, as far as their identifiers follow one another."""
        outbox = self.outbox
        if outbox is None or outbox.has_own_packets or outbox.topic_alias_maximum:
            return False
        return not self.expiry_interval and count <= self.window.quota and not self._must_wait(outbox)

    def deliver_batch(self, run: PublishBatch, qos: int) -> int:
        """Send the first messages of a batch as one block, at QoS 1 or 2. Return how many; use `deliver` for the rest.

        It sends none if a message must wait, be made durable, or have its own frame.
        """
        outbox = self.outbox
        if outbox is None or outbox.has_own_packets or outbox.topic_alias_maximum:
            return 0
        window = self.window
        count = run.count if run.count < window.quota else window.quota
        if self.expiry_interval or self._must_wait(outbox):
            return 0
        first_id = window.take_ids(count)
        if first_id == 0:
            return 0
        window.inflight.add_batch(first_id, run, count, qos)
        outbox.send(run.frames(outbox.version, qos, first_id, count))
        self._note_sent(outbox, qos, count)
        return count

    def deliver_qos0(self, delivery: Delivery) -> str:
        """Send a QoS 0 message, or count the drop. Return why it was dropped; empty if it was sent, or waits for the
        link."""
        outbox = self.outbox
        message = delivery.message
        if outbox is None:
            self.drop(QOS0_OFFLINE, 1, message.topic, message.trace)
            return QOS0_OFFLINE
        seen = delivery
        if outbox.has_own_packets:
            for_client = self._as_seen(outbox, delivery)
            reason = self._unfit(outbox, delivery, for_client)
            if reason:
                return reason
            assert for_client is not None, "it fits"
            seen = for_client
        head, tail = seen.parts(outbox.version, self._effects.now)
        if outbox.topic_alias_maximum:
            head, tail = with_alias(outbox, seen, head, tail)
        if message.trace:
            return outbox.offer_traced(head + tail, message.trace, message.expires_at, message.on_overflow)
        return outbox.offer(head + tail, 1, message.expires_at, message.on_overflow)

    def deliver_retained(self, replays: list[RetainedReplay]) -> None:
        """Start to send the retained messages of new subscriptions. They leave little by little, before later
        messages."""
        if self._replays is NO_REPLAYS:
            self._replays = RetainedReplays()
        for replay in replays:
            self._replays.add(replay)
        self.fill()

    def end_retained(self, topic_filter: bytes) -> None:
        """A subscription ended: stop sending its retained messages."""
        if self._replays:
            self._replays.discard(topic_filter)

    # ------------------------------------------------------------------ messages that their origin keeps

    def pull_with(self, puller: Puller) -> None:
        """Add a puller, to be called when there is room."""
        if self.pullers is _NO_PULLERS:
            self.pullers = []
        self.pullers.append(puller)

    def pull_no_more(self, puller: Puller) -> None:
        """Remove a puller."""
        self.pullers.remove(puller)

    @property
    def can_borrow(self) -> bool:
        """Whether `lend` would send a message now: the window has room, and no message of the session waits."""
        outbox = self.outbox
        return outbox is not None and not self.held_subacks and not self._must_wait(outbox)

    def lend(self, delivery: Delivery, keeps_id: bool = False) -> int:
        """Send a QoS 1 message that its origin keeps. Requires `can_borrow`. Return its packet identifier; 0 if the
        client cannot take the packet.

        With `keeps_id` the identifier names the message until `forget_lent`, also after PUBACK.
        """
        outbox = self.outbox
        assert outbox is not None
        if outbox.has_own_packets and self._unfit(outbox, delivery, self._as_seen(outbox, delivery)):
            return 0
        packet_id = self.window.take_id()
        self.window.inflight.add(packet_id, delivery, NOT_STORED)
        if keeps_id:
            self.window.keep(packet_id, delivery)
        self._write(outbox, delivery, packet_id, False)
        return packet_id

    def lent(self, packet_id: int) -> Delivery | None:
        """The message that was sent with a packet identifier and is unacknowledged, or whose identifier is kept."""
        kept = self.window.kept.get(packet_id)
        if kept is not None:
            return kept
        sent = self.window.inflight.find(packet_id)
        return None if sent is None else sent.delivery

    def forget_lent(self, packet_id: int, delivery: Delivery) -> None:
        """The origin is done with a message whose identifier was kept. There may be room for another one."""
        outbox = self.outbox
        if self.window.forget(packet_id, delivery) and outbox is not None and not outbox.backlogged:
            outbox.backlogged = True  # so that `fill` is called soon
            self._effects.backlogged.append(outbox.number)

    def _take_lent(self) -> list[Delivery]:
        """The connection ended: remove the messages that go back to their origins, in the order of sending."""
        window = self.window
        lent: list[Delivery] = []
        for packet_id in [packet_id for packet_id, each in window.resend.items() if is_lent(each)]:
            delivery = window.pop_resend(packet_id).delivery
            assert delivery is not None
            lent.append(delivery)
        return lent

    def fill(self) -> None:
        """Send waiting messages as far as window and link allow. A long backlog takes several iterations."""
        outbox = self.outbox
        if outbox is None or outbox.blocked:
            return
        effects = self._effects
        window = self.window
        room = offered = effects.fill_bytes if effects.pending_bytes < ITERATION_BYTES else 0
        while window.resend and room > 0 and window.is_open:
            room -= self._send_again(outbox)
        if self._replays:  # QoS 0 replays need no window
            room = self._replay(outbox, room)
        pace = outbox.pace
        waited = len(self.queue.deliveries)
        while self.queue.deliveries and room > 0 and window.is_open:
            if pace is not None and not pace.allows(outbox.messages_sent, offered - room, effects.now):
                break
            room -= self._send_first(outbox)
        effects.work += QUEUED_MESSAGE_WORK * (waited - len(self.queue.deliveries))
        effects.pending_bytes += offered - room
        waiting = self._waiting()
        if room <= 0 and not outbox.backlogged and (self._replays or (waiting and window.is_open)):
            outbox.backlogged = True
            effects.backlogged.append(outbox.number)
        if self.queue.stored:
            self._want_page()
        if self.watchers and not waiting and not self._replays:
            self._tell_watchers()
        if self.pullers and self.can_borrow:
            for puller in self.pullers:
                puller.on_room()

    # ------------------------------------------------------------------ inside

    def _tell_watchers(self) -> None:
        for improved in self.watchers.values():
            improved.append(self)
        self.watchers = _NO_WATCHERS

    def _deny(self, message: Message) -> None:
        """Drop a waiting message that the client may no longer receive after a change of rules."""
        assert self._permissions is not None
        self._permissions.deny(self, RECEIVE, message.topic)
        self.drop(NOT_AUTHORIZED, 1, message.topic, message.trace)

    def _send(self, outbox: Outbox, delivery: Delivery, sequence: int, was_queued: bool) -> None:
        """Give a message its packet identifier and send it, unless it is too large for the client."""
        if outbox.has_own_packets and self._unfit(outbox, delivery, self._as_seen(outbox, delivery)):
            if was_queued:
                self._discard(sequence)
            return
        packet_id = self.window.take_id()
        if self.expiry_interval:
            if was_queued:
                self._effects.record(Sent(self.client_id, sequence, packet_id), outbox)
            else:
                self._effects.identify(delivery.message)
                self._effects.record(Enqueue(self.client_id, sequence, delivery, packet_id), outbox)
                self._effects.charge_change(delivery.message)
        self.window.inflight.add(packet_id, delivery, sequence)
        self._write(outbox, delivery, packet_id, False)

    def _send_again(self, outbox: Outbox) -> int:
        """Resend a message of an earlier connection. Return its bytes."""
        packet_id = next(iter(self.window.resend))
        sent = self.window.pop_resend(packet_id)
        delivery = sent.delivery
        assert delivery is not None
        if outbox.has_own_packets and self._unfit(outbox, delivery, self._as_seen(outbox, delivery)):
            self._discard(sent.sequence)
            return 0
        if not self.may_receive(delivery.message.topic):
            self._discard(sent.sequence)
            self._deny(delivery.message)
            return _PUBLISH_BYTES
        self.window.inflight.put(packet_id, sent)
        self._write(outbox, delivery, packet_id, True)
        delivery.forget_parts()
        return delivery.message.size() + _PUBLISH_BYTES

    def _write(self, outbox: Outbox, delivery: Delivery, packet_id: int, sent_before: bool) -> None:
        seen = delivery
        if outbox.has_own_packets:
            for_client = self._as_seen(outbox, delivery)
            assert for_client is not None, "the client has a name for the topic"
            seen = for_client
        head, tail = seen.parts(outbox.version, self._effects.now)
        if outbox.topic_alias_maximum:
            head, tail = with_alias(outbox, seen, head, tail)
        outbox.send(with_packet_id(head, tail, packet_id, sent_before))
        self._note_sent(outbox, delivery.qos, 1)
        if delivery.message.trace:
            outbox.tell_sent(delivery.message.trace, delivery.qos)
        if is_watched(delivery):
            self.window.inflight.watched += 1

    def _send_first(self, outbox: Outbox) -> int:
        """Send the first message of the queue, unless it has expired. Return its bytes."""
        sequence = self.queue.first
        delivery = self.queue.pop()
        message = delivery.message
        if message.expired(self._effects.now):  # [MQTT-3.3.2-5] [MQTT-4.3.3-7]
            self._discard(sequence)
            self.drop(EXPIRED, 1, message.topic, message.trace)
            return 0
        if not self.may_receive(message.topic):
            self._discard(sequence)
            self._deny(message)
            return _PUBLISH_BYTES
        self._send(outbox, delivery, sequence, True)
        delivery.forget_parts()
        return message.size() + _PUBLISH_BYTES

    def _replay(self, outbox: Outbox, room: int) -> int:
        """Send retained messages as far as `room` bytes and the window allow. Return the bytes left."""
        effects = self._effects
        while self._replays and room > 0:
            found = self._replays.first()
            if found is None:
                room -= self._replays.look(effects.now)
                continue
            message = found.message
            if found.qos and not self.window.is_open and not message.superseded:
                break
            self._replays.pop()
            if message.superseded or message.expired(effects.now) or not self.may_get_retained(message):
                continue
            room -= message.size() + SENDING_BYTES
            if found.qos:
                self._send(outbox, found, self.queue.overtake(), False)
            else:
                self.deliver_qos0(found)
        return room

    def _note_sent(self, outbox: Outbox, qos: int, count: int) -> None:
        if qos == 1:
            outbox.sent_qos1 += count
        else:
            outbox.sent_qos2 += count
        self.window.fill(count)

    def find_unacknowledged(self, packet_id: int) -> Unacknowledged | None:
        """The message that the client answers. If it waits to be resent, it is not resent any more."""
        window = self.window
        resend = len(window.resend)
        message = window.find(packet_id)
        if resend > len(window.resend):
            assert message is not None
            if message.delivery is not None and is_watched(message.delivery):
                window.inflight.watched += 1
            if not self._waiting():
                self._tell_watchers()
        return message

    def open_window(self, count: int) -> None:
        """The client has finished `count` messages, and may get as many others."""
        self.window.quota += count
        if self._waiting() or self._replays or self.pullers:
            self.fill()

    def _unfit(self, outbox: Outbox, delivery: Delivery, seen: Delivery | None) -> str:
        """Why the client cannot get a message that it would see as `seen`; empty if it can. Counts the drop."""
        message = delivery.message
        if seen is None:
            self.drop(NOT_AUTHORIZED, 1, message.topic, message.trace, "not below the mount point")
            return NOT_AUTHORIZED
        size = seen.packet_bytes(outbox.version, self._effects.now)
        if outbox.is_too_large(size):
            outbox.drop_too_large(size, message.topic, message.trace)
            return PACKET_TOO_LARGE
        return ""

    def _as_seen(self, outbox: Outbox, delivery: Delivery) -> Delivery | None:
        """The delivery without the client's mount point, and with the broker's user properties. None if the topic is
        not below the mount point."""
        seen: Delivery | None = delivery
        if outbox.mount_point:
            seen = delivery.unmounted(outbox.mount_point)
        if seen is None or not outbox.tells or _is_told(delivery, self._effects.namespaces):
            return seen
        told = seen.told_to(outbox.sees_publishers)
        if told is None:
            message = delivery.message
            properties = told_properties(self._effects.identify(message), self._publisher(outbox, message))
            told = seen.tell(outbox.sees_publishers, properties)
        fits = not outbox.is_too_large(told.packet_bytes(outbox.version, self._effects.now))
        return told if fits else seen

    def _publisher(self, outbox: Outbox, message: Message) -> str:
        """The publisher of a message, if the client may see it; else empty."""
        may_know = outbox.sees_publishers or (
            self._permissions is not None and self._permissions.authorizer.policy_of(message.topic).tells_publisher
        )
        return message.publisher if may_know else ""


def _is_told(delivery: Delivery, namespaces: Namespaces) -> bool:
    """Whether it has these properties already: its origin or its feature adds them."""
    return delivery.is_lent or namespaces.tells(delivery.message.topic)
