"""Shared subscriptions (5.0 §4.8.2): each message that the filter matches goes to one of the group's members.

Who gets the next one is decided here, by the group's policy; what becomes of it is the member's session's business.
Invariant: a member that is connected and reads comes before one that does not, and that one before one that is away.
"""

import zlib
from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.core.subscription import Subscription

ROUND_ROBIN: Final = "round_robin"
LEAST_INFLIGHT: Final = "least_inflight"
HASH_TOPIC: Final = "hash_topic"
HASH_KEY: Final = "hash_key"
SHARE_POLICIES: Final = (ROUND_ROBIN, LEAST_INFLIGHT, HASH_TOPIC, HASH_KEY)
"""How a group chooses: in turn; who has the fewest unacknowledged; by topic; by the user property `ordering-key`."""

_ORDERING_KEY: Final = "ordering-key"


@final
class Member:
    """A session in a group, with its subscription."""

    __slots__ = ("session", "subscription")

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session: Final = session
        self.subscription: Final = subscription


@final
class Share:
    """The members of one share name and filter."""

    __slots__ = ("_members", "_turn", "elsewhere", "name", "policy")

    def __init__(self, name: bytes, policy: str) -> None:
        self.name: Final = name
        """The whole `$share/group/filter`."""
        self.policy: Final = policy
        self._members: list[Member] = []
        self._turn = 0
        self.elsewhere: dict[int, tuple[int, int]] = {}
        """Workers that have members too: how many, and how many of them are connected."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def online(self) -> int:
        """Members that are connected."""
        return sum([member.session.outbox is not None for member in self._members])

    def worker_for(self, message: Message, own: int) -> int:
        """The worker whose member is to get the next message, each worker in proportion to its members.

        Connected members come first here too. All workers agree on whose a key is, as far as they know the same.
        """
        counts = sorted([*self.elsewhere.items(), (own, (len(self._members), self.online))])
        connected = sum([online for _worker, (_members, online) in counts])
        total = connected or sum([members for _worker, (members, _online) in counts])
        if self.policy in (HASH_TOPIC, HASH_KEY):
            at = zlib.crc32(_key_of(message, self.policy)) % total
        else:
            at = self._turn % total
            self._turn += 1
        for worker, (members, online) in counts:
            at -= online if connected else members
            if at < 0:
                return worker
        raise AssertionError("it is one of the total")

    def add(self, session: Session, subscription: Subscription) -> None:
        """Let a session in, in the place of its earlier subscription if it has one."""
        for at, member in enumerate(self._members):
            if member.session is session:
                self._members[at] = Member(session, subscription)
                return
        self._members.append(Member(session, subscription))

    def remove(self, subscription: Subscription) -> None:
        self._members = [member for member in self._members if member.subscription is not subscription]

    def candidates(self, message: Message | None) -> list[Member]:
        """Whom to offer the next message, in this order. None stands for many, to be dealt out among all of these."""
        ready: list[Member] = []
        slow: list[Member] = []
        away: list[Member] = []
        for member in self._members:
            outbox = member.session.outbox
            if outbox is None:
                away.append(member)
            elif outbox.blocked or member.session.queued:
                slow.append(member)
            else:
                ready.append(member)
        if not ready and not slow:
            return self._ordered(away, message)  # offline members only when nobody is connected
        if message is None:
            return self._ordered(ready or slow, None)
        if self.policy in (HASH_TOPIC, HASH_KEY):  # whoever is slow keeps its keys: elsewhere they would overtake
            connected = [member for member in self._members if member.session.outbox is not None]
            return self._ordered(connected, message)
        return self._ordered(ready, message) + slow if ready else self._ordered(slow, message)

    def _ordered(self, members: list[Member], message: Message | None) -> list[Member]:
        """By policy: whom to offer it first."""
        if len(members) < 2:
            return members
        if self.policy == LEAST_INFLIGHT:
            return sorted(members, key=_unacknowledged)
        if self.policy == ROUND_ROBIN or message is None:
            first = self._turn % len(members)
            self._turn += 1
        else:
            first = zlib.crc32(_key_of(message, self.policy)) % len(members)
        return members[first:] + members[:first]


def _unacknowledged(member: Member) -> int:
    return len(member.session.inflight) + member.session.queued


def _key_of(message: Message, policy: str) -> bytes:
    """What decides where a message goes: the same for messages that must stay in order."""
    if policy == HASH_KEY:
        for name, value in message.properties.user_properties:
            if name == _ORDERING_KEY:
                return value.encode()
    return message.topic
