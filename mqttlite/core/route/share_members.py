"""The members of a shared subscription, and the order in which a message is offered to them, by the group's policy.

`shared_subscription` decides whether a member may get a message and has room for it. Invariants of every policy:

- a member that is connected and reads comes before one that does not read, and that one before an absent one;
- the cost of a message depends on the members it is offered to, not on the size of the group. So members are in rings
by their last known state. A member found in a worse state is moved at that time; the session of a member that may have
improved adds itself to the group's list (`Session.watchers`).
"""

import zlib
from collections.abc import ValuesView
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_WORK, MEMBER_MOVE_WORK, MEMBERS_ASKED, MEMBERS_PER_WORK_UNIT
from mqttlite.core.message import Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.share_interest import UNTOLD

ROUND_ROBIN: Final = "round_robin"
LEAST_INFLIGHT: Final = "least_inflight"
HASH_TOPIC: Final = "hash_topic"
HASH_KEY: Final = "hash_key"
PREFER_LOCAL: Final = "prefer_local"
SHARE_POLICIES: Final = (ROUND_ROBIN, LEAST_INFLIGHT, HASH_TOPIC, HASH_KEY, PREFER_LOCAL)
"""How a group chooses a member: in turn; with the fewest unacknowledged messages; by topic; by the user property
`ordering-key`; in turn, and one of another broker only if none here is ready."""

_ORDERING_KEY: Final = "ordering-key"

READY: Final = 0
SLOW: Final = 1
AWAY: Final = 2
"""The states of a member: it reads and has caught up; it is only connected; it is not connected."""

NOBODY_THERE: Final = 3
"""In place of a state: there is no member."""

_PROBES: Final = 8
"""How many positions a key tries when members are absent, before it takes the next present one. This spreads the keys
of absent members."""


@final
class Member:
    """A session in a group, with its subscription."""

    __slots__ = ("at", "counted", "dispatched", "is_connected", "session", "state", "subscription")

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session: Final = session
        self.subscription: Subscription = subscription
        self.state: int = READY
        """Its last known state, which is the index of its ring."""
        self.at: int = 0
        self.dispatched: int = 0
        self.is_connected: bool = False
        """As the group has counted it. Only where there are relays."""
        self.counted: int = UNTOLD
        """What others were told of it (`ShareInterest.count`)."""


@final
class MemberRing:
    """Members in turn: those before `next_at` had their turn in this round, the others did not."""

    __slots__ = ("members", "next_at")

    def __init__(self) -> None:
        self.members: Final[list[Member]] = []
        self.next_at: int = 0

    def add(self, member: Member) -> None:
        member.at = len(self.members)
        self.members.append(member)

    def remove(self, member: Member) -> None:
        """Remove a member. The last member that had its turn fills the gap, and the last member of all fills that one's
        place."""
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
        """The next `most` members, in the order of their turns."""
        members = self.members[self.next_at : self.next_at + most]
        return members + self.members[: min(self.next_at, most - len(members))]

    def _put(self, member: Member, at: int) -> None:
        self.members[at] = member
        member.at = at


@final
class ShareMembers:
    """`name` is the name of the group, the key in `Session.watchers`."""

    __slots__ = ("_by_client_id", "_dispatches", "_effects", "_improved", "_name", "policy", "rings")

    def __init__(self, name: bytes, policy: str, effects: Effects) -> None:
        self._name: Final = name
        self.policy: Final = policy
        self._effects: Final = effects
        self._by_client_id: Final[dict[str, Member]] = {}
        self.rings: Final = (MemberRing(), MemberRing(), MemberRing())
        """The members that are ready, slow and away. By key, all are in the first."""
        self._improved: Final[list[Session]] = []
        self._dispatches = 0

    def __len__(self) -> int:
        return len(self._by_client_id)

    def all(self) -> ValuesView[Member]:
        """All members, in the order in which they joined."""
        return self._by_client_id.values()

    @property
    def is_in_turn(self) -> bool:
        """Whether messages go to the members in turn, whatever they hold and have."""
        return self.policy in (ROUND_ROBIN, PREFER_LOCAL)

    @property
    def is_by_key(self) -> bool:
        """Whether the message determines the member."""
        return self.policy in (HASH_TOPIC, HASH_KEY)

    def find(self, client_id: str) -> Member | None:
        return self._by_client_id.get(client_id)

    def add(self, session: Session, subscription: Subscription) -> Subscription | None:
        """Add a session, or replace its subscription. Return the replaced one, or None."""
        member = self._by_client_id.get(session.client_id)
        if member is None:
            member = self._by_client_id[session.client_id] = Member(session, subscription)
            self.rings[READY].add(member)
            return None
        former, member.subscription = member.subscription, subscription
        return former

    def remove(self, client_id: str) -> None:
        member = self._by_client_id.pop(client_id)
        self.rings[member.state].remove(member)
        member.session.watchers.pop(self._name, None)

    def copy_from(self, other: "ShareMembers") -> None:
        """Copy the members and turns of a group, to predict its choice. Call `stop_watching` at the end."""
        for ring, original in zip(self.rings, other.rings, strict=True):
            for member in original.members:
                same = self._by_client_id[member.session.client_id] = Member(member.session, member.subscription)
                same.state = member.state
                ring.add(same)
            ring.next_at = original.next_at
        self._improved.extend(other._improved)

    def stop_watching(self) -> None:
        """Stop listening for improved members."""
        for member in self._by_client_id.values():
            member.session.watchers.pop(self._name, None)

    def prepare(self, messages: int) -> bool:
        """Move members to the right rings, until the next `messages` members of the best ring are right.

        Otherwise one message could have to move all members that changed since the previous one.
        """
        if self.is_by_key:
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

    def best_state(self) -> int:
        """The state of the member whose turn it is, or `NOBODY_THERE`. Not for a policy by key."""
        self._look_again()
        for ring in self.rings:
            while ring.members:
                member = ring.members[ring.next_at if ring.next_at < len(ring.members) else 0]
                if _state_of(member.session) == member.state:
                    return member.state
                self._move(member)
        return NOBODY_THERE

    def first(self, message: Message) -> Member:
        """The member to offer a message to first. The group must have members."""
        if self.is_by_key:  # a slow member keeps its keys: another member could overtake it
            return self._by_key(message)
        self._look_again()
        return self._least() if self.policy == LEAST_INFLIGHT else self._in_turn()

    def others(self, first: Member) -> list[Member]:
        """The members to try, in order, if `first` has no room: connected ones, or all if `first` is not connected.

        At most `MEMBERS_ASKED` members in each state.
        """
        if self.is_by_key:
            everybody = self.rings[READY].members
            members = everybody[first.at + 1 : first.at + 1 + MEMBERS_ASKED]
            members += everybody[: min(first.at, MEMBERS_ASKED - len(members))]
        else:
            rings = [ring.in_turn(MEMBERS_ASKED) for ring in self.rings]
            members = [member for ring in rings for member in ring if member is not first]
            members.sort(key=_preference if self.policy == LEAST_INFLIGHT else _member_state)
        self._effects.work += len(members) // MEMBERS_PER_WORK_UNIT
        if first.session.outbox is None:
            return members
        return [member for member in members if member.session.outbox is not None]

    def next_ready(self, messages: int) -> list[Member]:
        """The members that `dispatch_many` finds if each of them is ready. Changes no turns."""
        self._look_again()
        return self.rings[READY].in_turn(messages)

    def dispatch_many(self, messages: int) -> list[Member]:
        """The members for `messages` messages: the messages go to them in this order, then again from the first."""
        self._look_again()
        self._dispatches += 1
        member = self._in_turn()
        state = member.state
        ring = self.rings[state]
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
        if messages > len(members):  # the last round may be partial: the member after it is next
            ring.next_at = members[messages % len(members)].at or len(ring.members)
        return members

    def _best_ring(self) -> MemberRing:
        """The first ring with members, else the last ring."""
        ready, slow, away = self.rings
        return ready if ready.members else slow if slow.members else away

    def _look_again(self) -> None:
        """Move the members that may have improved to the right rings."""
        while self._improved:
            self._look_at_improved()

    def _look_at_improved(self) -> None:
        session = self._improved.pop()
        member = self._by_client_id.get(session.client_id)
        if member is not None and member.session is session:
            self._move(member)

    def _in_turn(self) -> Member:
        for ring in self.rings:
            while ring.members:
                member = ring.next()
                if _state_of(member.session) == member.state:
                    return member
                self._move(member)
        raise AssertionError(f"{self._name!r} has no members")

    def _least(self) -> Member:
        """Among the next members of the best ring, the first one with the fewest unacknowledged messages."""
        for ring in self.rings:
            while ring.members:
                least = self._least_of(ring)
                if least is not None:
                    return least
        raise AssertionError(f"{self._name!r} has no members")

    def _least_of(self, ring: MemberRing) -> Member | None:
        """The same in one ring, among up to `MEMBERS_ASKED`. None if these no longer belong to the ring."""
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
        """The member at the key's position; while it is absent, always the same substitute."""
        members = self.rings[READY].members
        number = key_of(message, self.policy)
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
        """Move a member to the ring of its current state. If that is not the best ring, watch its session for
        improvement."""
        self._effects.work += MEMBER_MOVE_WORK
        self.rings[member.state].remove(member)
        member.state = _state_of(member.session)
        self.rings[member.state].add(member)
        if member.state != READY:
            member.session.watch(self._name, self._improved)


def _state_of(session: Session) -> int:
    outbox = session.outbox
    if outbox is None:
        return AWAY
    return SLOW if outbox.blocked or session.queued else READY


def _unacknowledged(member: Member) -> int:
    return len(member.session.inflight) + member.session.queued


def _member_state(member: Member) -> int:
    return _state_of(member.session)


def _preference(member: Member) -> tuple[int, int]:
    return _state_of(member.session), _unacknowledged(member)


def key_of(message: Message, policy: str) -> int:
    """The key that determines the member. Messages that must stay in order have the same key."""
    if policy == HASH_KEY:
        for name, value in message.properties.user_properties:
            if name == _ORDERING_KEY:
                return zlib.crc32(value.encode())
    return zlib.crc32(message.topic)
