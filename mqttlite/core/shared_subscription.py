"""Shared subscriptions (5.0 §4.8.2): each message that the filter matches goes to one of the group's members.

Who gets the next one is decided here, by the group's policy; what becomes of it is the member's session's business.
Invariants, whatever else comes to choose among members:

- a member that is connected and reads comes before one that does not, and that one before one that is away;
- a message costs what it is offered to, not what the group has members. So members stand in rings by what they were
  when last looked at. One that turns out to be worse is moved then; one that may have become better is heard of, for
  its session puts itself on the group's list (`Session.watchers`).
"""

import zlib
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    DELIVERY_WORK,
    ITERATION_WORK,
    JSON_BYTES_PER_WORK_UNIT,
    MEMBER_MOVE_WORK,
    MEMBERS_ASKED,
    MEMBERS_PER_WORK_UNIT,
)
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.outlook import EXCLUDED, PlannedReceiver
from mqttlite.core.outlook import FILTERED as IF_FILTERED
from mqttlite.core.reasons import BUFFER_FULL, FILTER_MISMATCH, NOT_AUTHORIZED, QOS0_OFFLINE, QUEUE_FULL
from mqttlite.core.route import offer, send_aliased
from mqttlite.core.session import Session
from mqttlite.core.session_backlog import FILLING
from mqttlite.core.source import Source
from mqttlite.core.subscription import Binding, RoutePlan, Subscription
from mqttlite.core.tally import DROPPED, QUOTA_EXCEEDED, Tally

ROUND_ROBIN: Final = "round_robin"
LEAST_INFLIGHT: Final = "least_inflight"
HASH_TOPIC: Final = "hash_topic"
HASH_KEY: Final = "hash_key"
SHARE_POLICIES: Final = (ROUND_ROBIN, LEAST_INFLIGHT, HASH_TOPIC, HASH_KEY)
"""How a group chooses: in turn; who has the fewest unacknowledged; by topic; by the user property `ordering-key`."""

_ORDERING_KEY: Final = "ordering-key"

_READY: Final = 0
_SLOW: Final = 1
_AWAY: Final = 2
"""A member reads and has caught up; is connected; is neither."""

TAKEN: Final = 0
DENIED: Final = 1
FILTERED: Final = 2
NO_MEMBERS: Final = 3
"""What became of a message that not every member may get: a member has it, or has no room; no member may receive it; no
filter of those that may lets it pass; the last member left while it was on its way."""

_COPY: Final = b""
"""The name of a copy of a group, by which sessions know its list and forget it again."""

_PROBES: Final = 8
"""Places that a key tries, where their members are away, before it takes the next one: so their keys are spread."""


@final
class Member:
    """A session in a group, with its subscription."""

    __slots__ = ("at", "dispatched", "session", "state", "subscription")

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session: Final = session
        self.subscription: Subscription = subscription
        self.state: int = _READY
        """As the group knows it, which is in the ring of that number."""
        self.at: int = 0
        self.dispatched: int = 0


@final
class _Ring:
    """Members in turn: before `next_at` are those that had theirs in this round, from there those that did not."""

    __slots__ = ("members", "next_at")

    def __init__(self) -> None:
        self.members: Final[list[Member]] = []
        self.next_at = 0

    def add(self, member: Member) -> None:
        member.at = len(self.members)
        self.members.append(member)

    def remove(self, member: Member) -> None:
        """Close the gap with the last of its part of the round, and that one's with the last of all."""
        at = member.at
        if at < self.next_at:
            self.next_at -= 1
            self._put(self.members[self.next_at], at)
            at = self.next_at
        last = self.members.pop()
        if at < len(self.members):
            self._put(last, at)

    def next(self) -> Member:
        if self.next_at >= len(self.members):
            self.next_at = 0
        member = self.members[self.next_at]
        self.next_at += 1
        return member

    def in_turn(self, most: int) -> list[Member]:
        """The `most` members whose turn is next, in that order."""
        members = self.members[self.next_at : self.next_at + most]
        return members + self.members[: min(self.next_at, most - len(members))]

    def _put(self, member: Member, at: int) -> None:
        self.members[at] = member
        member.at = at


@final
class SharedSubscription(Binding):
    """The members of one share name and filter."""

    __slots__ = (
        "_dispatches",
        "_effects",
        "_filters",
        "_improved",
        "_members",
        "_rings",
        "_shares",
        "name",
        "policy",
        "traced",
    )

    def __init__(
        self, name: bytes, policy: str, effects: Effects, shares: "dict[bytes, SharedSubscription] | None" = None
    ) -> None:
        self._effects: Final = effects
        self._shares: Final[dict[bytes, SharedSubscription]] = {} if shares is None else shares
        """All that have members, by name: when the last member has left and another came, there is a new one."""
        self.name: Final = name
        """The whole `$share/group/filter`."""
        self.policy: Final = policy
        self._members: Final[dict[str, Member]] = {}
        self._rings: Final = (_Ring(), _Ring(), _Ring())
        self._improved: Final[list[Session]] = []
        self._dispatches = 0
        self._filters = 0
        self.traced: Final[dict[str, None]] = {}
        """Members all of whose messages are followed, and so all of the group."""

    def __len__(self) -> int:
        return len(self._members)

    def join(self, plan: RoutePlan) -> None:
        plan.add_sink(self)
        plan.traced |= len(self.traced) > 0
        plan.selects |= self._filters > 0

    @property
    def selects(self) -> bool:
        """Whether some members have filters."""
        return self._filters > 0

    def prepare(self, messages: int) -> bool:
        """Put members into the rings where they belong, until the next `messages` of the best one are right.

        Else all those that have changed since the latest message would be moved at once.
        """
        if self.policy in (HASH_TOPIC, HASH_KEY):
            return True
        effects = self._effects
        while self._improved:
            if effects.work >= ITERATION_WORK:
                return False
            self._look_at_improved()
        ring = self._best_ring()
        at = ring.next_at
        looked = 0
        while looked < messages and looked < len(ring.members):
            member = ring.members[at if at < len(ring.members) else 0]
            if _state_of(member.session) == member.state:
                at = member.at + 1
                looked += 1
                continue
            if effects.work >= ITERATION_WORK:
                return False
            self._move(member)
            if not ring.members:
                ring = self._best_ring()
                at = ring.next_at
        return True

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """As `Sink`: each member with what it would get, and which of them is next. That is not said where it depends
        on filters that read a payload which is not known."""
        found: list[PlannedReceiver] = []
        asked: dict[MessageFilter, bool] = {}
        is_known = True
        for member in self._members.values():
            planned, is_asked = self._outlook_of(member, message, knows_payload, asked)
            found.append(planned)
            is_known &= is_asked
        if is_known:
            first = self._would_choose(message)
            for planned in found:
                planned.is_next = planned.client_id == first
        return found

    def _outlook_of(
        self, member: Member, message: Message, knows_payload: bool, asked: dict[MessageFilter, bool]
    ) -> tuple[PlannedReceiver, bool]:
        """What a member would get, and whether its filter could be asked."""
        session, message_filter = member.session, member.subscription.message_filter
        rule = session.why_denied(message.topic)
        if rule:
            return PlannedReceiver(session.client_id, self.name, 0, EXCLUDED, NOT_AUTHORIZED, rule), True
        is_asked = message_filter is None or knows_payload or not message_filter.reads_payload
        if is_asked and message_filter is not None and not self._may_get(member, message, asked):
            expression = message_filter.expression
            return PlannedReceiver(session.client_id, self.name, 0, EXCLUDED, FILTER_MISMATCH, expression), True
        delivery = self._delivery(member, message)
        outcome, reason = session.outlook(delivery)
        detail = "" if is_asked else IF_FILTERED
        return PlannedReceiver(session.client_id, self.name, delivery.qos, outcome, reason, detail), is_asked

    def _would_choose(self, message: Message) -> str:
        """The client identifier of the member that would get a message now; empty where none may.

        A copy of the group chooses, so that it stays this member's turn."""
        assert self._members, "no route has a group without members"
        copy = SharedSubscription(_COPY, self.policy, Effects())  # its work is not what a message would cost
        for ring, copied in zip(self._rings, copy._rings, strict=True):
            for member in ring.members:
                same = copy._members[member.session.client_id] = Member(member.session, member.subscription)
                same.state = member.state
                copied.add(same)
            copied.next_at = ring.next_at
        copy._improved.extend(self._improved)
        copy.prepare(1)
        chosen = copy._choose_allowed(message)
        for member in self._members.values():
            member.session.watchers.pop(_COPY, None)
        return "" if chosen is None else chosen[0].session.client_id

    def has_room(self, message: Message, qos: int) -> bool:
        """As `Sink`: whether a member has, of those that `others` would ask."""
        for ring in self._rings:
            for member in ring.in_turn(MEMBERS_ASKED):
                if member.session.has_room(message, min(qos, member.subscription.qos)):
                    return True
        return len(self) == 0

    def reader(self, message: Message, publisher: Session) -> Session | None:
        """A member that publishers may wait for, because its queue fills up and no member has room for the message; not
        the publisher itself. Of those that `others` would ask."""
        found: Session | None = None
        for ring in self._rings:
            for member in ring.in_turn(MEMBERS_ASKED):
                session = member.session
                if member.subscription.qos == 0 or session.has_room_to_spare(message):
                    return None
                if session.filling == FILLING and session is not publisher:
                    found = session
        return found

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Give a message to the first member that has room for it."""
        if not self._members:  # the last one left while the message was on its way
            tally.reached -= 1
            return
        member, delivery = self._choose(message)
        self._hand_over(member, delivery, tally)

    def accept_allowed(self, message: Message, tally: Tally) -> int:
        """The same among the members that may receive the message and whose filters let it pass."""
        if not self._members:
            return NO_MEMBERS
        chosen = self._choose_allowed(message)
        if chosen is None:
            return self._why_nobody(message)
        self._effects.work += DELIVERY_WORK
        self._hand_over(chosen[0], chosen[1], tally)
        return TAKEN

    def _hand_over(self, member: Member, delivery: Delivery, tally: Tally) -> None:
        if delivery.qos:
            outcome = member.session.deliver(delivery)
            tally.count(outcome, QUEUE_FULL)
            if outcome == DROPPED:
                tally.code = QUOTA_EXCEEDED
        else:
            away = member.session.outbox is None
            tally.count(member.session.deliver_qos0(delivery), QOS0_OFFLINE if away else BUFFER_FULL)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Dispatch QoS 0 messages of one topic and size to the members."""
        if not self._members:
            tally.reached -= 1
            return
        if self.policy != ROUND_ROBIN:
            self._effects.work += DELIVERY_WORK * batch.count
            for at in range(batch.count):
                self.accept(batch.delivery(at, 0).message, source, tally)
            return
        members = self.dispatch_many(batch.count)
        self._effects.work += DELIVERY_WORK * len(members)
        for number, member in enumerate(members):
            outbox = member.session.outbox
            if outbox is None or member.subscription.identifier or outbox.max_packet_bytes:
                for at in range(number, batch.count, len(members)):
                    message = batch.delivery(at, 0).message
                    tally.count(member.session.deliver_qos0(self._delivery(member, message)), QOS0_OFFLINE)
                continue
            mine = batch if len(members) == 1 else batch.every(number, len(members))
            if outbox.topic_alias_maximum:
                send_aliased(outbox, mine, tally)
            else:
                packets = mine.frames(outbox.version, 0, 0, mine.count)
                offer(outbox, packets, mine.count, mine.expires_at, mine.on_overflow, tally)

    @property
    def keeps(self) -> bool:
        return False

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        """A member answered: a message that it refused goes to no other [MQTT-4.4.0-2] [MQTT-4.8.2-6]."""

    def returned(self, delivery: Delivery) -> bool:
        """A member's session ended: a QoS 1 message goes to another member, if there is one (5.0 §4.8.2).

        One of QoS 2 does not [MQTT-4.8.2-5].
        """
        group = self if self._members else self._shares.get(self.name)
        if delivery.qos != 1 or group is None:
            return False
        chosen = group._choose_allowed(delivery.message)
        if chosen is None:
            return False
        member, again = chosen
        outcome = member.session.deliver(again) if again.qos else member.session.deliver_qos0(again)
        return outcome != DROPPED

    def _choose(self, message: Message) -> tuple[Member, Delivery]:
        """The member that gets a message: the first one, or the next with room where its queue is full."""
        first = self.first(message)
        delivery = self._delivery(first, message)
        if delivery.qos and not first.session.has_room(message, delivery.qos):
            for member in self.others(first):
                other = self._delivery(member, message)
                if other.qos == 0 or member.session.has_room(message, other.qos):
                    return member, other
        return first, delivery

    def _choose_allowed(self, message: Message) -> tuple[Member, Delivery] | None:
        """The same among the members that may receive it and whose filters let it pass; None where there are none."""
        asked: dict[MessageFilter, bool] = {}
        first: Member | None = self.first(message)
        assert first is not None
        if not self._may_get(first, message, asked):
            first = self._next_allowed(first, message, asked)
            if first is None:
                return None
        delivery = self._delivery(first, message)
        if delivery.qos and not first.session.has_room(message, delivery.qos):
            for member in self.others(first):
                other = self._delivery(member, message)
                if self._may_get(member, message, asked) and (
                    other.qos == 0 or member.session.has_room(message, other.qos)
                ):
                    return member, other
        return first, delivery

    def _may_get(self, member: Member, message: Message, asked: dict[MessageFilter, bool]) -> bool:
        """Whether a member may receive a message and its filter lets it pass; each filter is asked once."""
        if not member.session.may_receive(message.topic):
            return False
        message_filter = member.subscription.message_filter
        if message_filter is None:
            return True
        passes = asked.get(message_filter)
        if passes is None:
            passes = asked[message_filter] = message_filter.matches(message)
            self._effects.work += 1
            if message_filter.reads_payload:
                self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return passes

    def _why_nobody(self, message: Message) -> int:
        """Why no member gets a message."""
        for member in self._members.values():
            if member.session.may_receive(message.topic):
                return FILTERED
        return DENIED

    def _next_allowed(self, denied: Member, message: Message, asked: dict[MessageFilter, bool]) -> Member | None:
        """The next member that may get a message, one that is connected if there is one. It looks at all members in
        the worst case, for a message must not be lost that one of them may receive."""
        away: Member | None = None
        by_key = self.policy in (HASH_TOPIC, HASH_KEY)
        looked = 0
        for ring in self._rings:
            start = denied.at if by_key else ring.next_at
            for member in ring.members[start:] + ring.members[:start]:
                looked += 1
                if not self._may_get(member, message, asked):
                    continue
                if member.session.outbox is not None:
                    if not by_key:
                        ring.next_at = member.at + 1
                    self._effects.work += looked // MEMBERS_PER_WORK_UNIT
                    return member
                if away is None:
                    away = member
        self._effects.work += looked // MEMBERS_PER_WORK_UNIT
        return away

    def _delivery(self, member: Member, message: Message) -> Delivery:
        subscription = member.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        qos = min(message.qos, subscription.qos)  # [MQTT-4.8.2-3]
        retain = message.retain and subscription.retain_as_published
        return Delivery(message, qos, retain, identifiers, self)

    def add(self, session: Session, subscription: Subscription) -> None:
        """Let a session in, in the place of its earlier subscription if it has one."""
        member = self._members.get(session.client_id)
        if member is None:
            member = self._members[session.client_id] = Member(session, subscription)
            self._rings[_READY].add(member)
        else:
            self._filters -= member.subscription.message_filter is not None
        member.subscription = subscription
        self._filters += subscription.message_filter is not None

    def remove(self, subscription: Subscription) -> None:
        self._filters -= subscription.message_filter is not None
        member = self._members.pop(subscription.client_id)
        self._rings[member.state].remove(member)
        member.session.watchers.pop(self.name, None)

    def first(self, message: Message) -> Member:
        """Whom to offer a message first. The group has members."""
        if self.policy in (HASH_TOPIC, HASH_KEY):  # a slow member keeps its keys: with others they would overtake
            return self._by_key(message)
        self._look_again()
        return self._least() if self.policy == LEAST_INFLIGHT else self._in_turn()

    def others(self, first: Member) -> list[Member]:
        """Whom to offer it when that one has no room, in this order: who is connected, or anybody if that one is not.

        Those are all of them, up to `MEMBERS_ASKED` that stand alike.
        """
        if self.policy in (HASH_TOPIC, HASH_KEY):
            everybody = self._rings[_READY].members
            members = everybody[first.at + 1 : first.at + 1 + MEMBERS_ASKED]
            members += everybody[: min(first.at, MEMBERS_ASKED - len(members))]
        else:
            rings = [ring.in_turn(MEMBERS_ASKED) for ring in self._rings]
            members = [member for ring in rings for member in ring if member is not first]
            members.sort(key=_preference if self.policy == LEAST_INFLIGHT else _member_state)
        self._effects.work += len(members) // MEMBERS_PER_WORK_UNIT
        if first.session.outbox is None:
            return members
        return [member for member in members if member.session.outbox is not None]

    def dispatch_many(self, messages: int) -> list[Member]:
        """The members for `messages` messages: each gets the next one, in this order, and again from the first."""
        self._look_again()
        self._dispatches += 1
        member = self._in_turn()
        state = member.state
        ring = self._rings[state]
        members: list[Member] = []
        while (
            member.dispatched != self._dispatches
        ):  # where a gap was closed somebody may have moved into our way again
            if _state_of(member.session) == state:
                member.dispatched = self._dispatches
                members.append(member)
            else:
                self._move(member)
            if len(members) >= messages or len(members) >= len(ring.members):
                break
            member = ring.next()
        if messages > len(members):  # the last round is not everybody's: who comes after it is next
            ring.next_at = members[messages % len(members)].at
        return members

    def _best_ring(self) -> _Ring:
        """The first with members, or the last."""
        ready, slow, away = self._rings
        return ready if ready.members else slow if slow.members else away

    def _look_again(self) -> None:
        """Put those into their rings that were passed over and may have become better since."""
        while self._improved:
            self._look_at_improved()

    def _look_at_improved(self) -> None:
        session = self._improved.pop()
        member = self._members.get(session.client_id)
        if member is not None and member.session is session:
            self._move(member)

    def _in_turn(self) -> Member:
        for ring in self._rings:
            while ring.members:
                member = ring.next()
                if _state_of(member.session) == member.state:
                    return member
                self._move(member)
        raise AssertionError(f"{self.name!r} has no members")

    def _least(self) -> Member:
        """Of those who stand best and have their turn next, who has the fewest unacknowledged; of equals, the first."""
        for ring in self._rings:
            while ring.members:
                least = self._least_of(ring)
                if least is not None:
                    return least
        raise AssertionError(f"{self.name!r} has no members")

    def _least_of(self, ring: _Ring) -> Member | None:
        """The same in one ring, up to `MEMBERS_ASKED`. None: those do not belong there any more."""
        misplaced: list[Member] = []
        least: Member | None = None
        fewest = 0
        size = len(ring.members)
        for step in range(min(size, MEMBERS_ASKED)):
            at = ring.next_at + step
            member = ring.members[at if at < size else at - size]
            if _state_of(member.session) != member.state:
                misplaced.append(member)
                continue
            unacknowledged = _unacknowledged(member)
            if least is None or unacknowledged < fewest:
                least, fewest = member, unacknowledged
                if fewest == 0:
                    break
        self._effects.work += min(size, MEMBERS_ASKED) // MEMBERS_PER_WORK_UNIT
        if least is not None:
            ring.next_at = least.at + 1
        for member in misplaced:
            self._move(member)
        return least

    def _by_key(self, message: Message) -> Member:
        """The member whose place the key names, and while that one is away another: always the same two."""
        members = self._rings[_READY].members
        number = zlib.crc32(_key_of(message, self.policy))
        first = number % len(members)
        at = first
        for _probe in range(_PROBES):
            if members[at].session.outbox is not None:
                return members[at]
            number = zlib.crc32(number.to_bytes(4, "big"))
            at = number % len(members)
        for looked in range(len(members)):
            at = at + 1 if at + 1 < len(members) else 0
            if members[at].session.outbox is not None:
                self._effects.work += looked // MEMBERS_PER_WORK_UNIT
                return members[at]
        self._effects.work += len(members) // MEMBERS_PER_WORK_UNIT
        return members[first]

    def _move(self, member: Member) -> None:
        """Into the ring where it belongs now; while that is not the best one its session tells of changes."""
        self._effects.work += MEMBER_MOVE_WORK
        self._rings[member.state].remove(member)
        member.state = _state_of(member.session)
        self._rings[member.state].add(member)
        if member.state != _READY:
            member.session.watch(self.name, self._improved)


def _state_of(session: Session) -> int:
    outbox = session.outbox
    if outbox is None:
        return _AWAY
    return _SLOW if outbox.blocked or session.queued else _READY


def _unacknowledged(member: Member) -> int:
    return len(member.session.inflight) + member.session.queued


def _member_state(member: Member) -> int:
    return _state_of(member.session)


def _preference(member: Member) -> tuple[int, int]:
    return _state_of(member.session), _unacknowledged(member)


def _key_of(message: Message, policy: str) -> bytes:
    """What decides where a message goes: the same for messages that must stay in order."""
    if policy == HASH_KEY:
        for name, value in message.properties.user_properties:
            if name == _ORDERING_KEY:
                return value.encode()
    return message.topic
