"""The other brokers that have members of a shared subscription, and which broker gets a message: by the number of their
members, those that are connected first.

Each is a relay that subscribes to the shared subscription. The subscription identifier of a relay says how many members
it stands for (`share_interest.weights_of`). A broker that gets a message gives it to one of its own members.

Invariant: a broker gets its turns one after the other, as many as it has members, and in the long run each broker gets
as many messages as it has connected members. For a policy by key, all brokers choose the same broker for a key.
"""

from math import log
from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.core.route.relayed import number_of
from mqttlite.core.route.share_members import AWAY, PREFER_LOCAL, READY, SLOW, ShareMembers, key_of
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.share_interest import connected_of, members_of, summary, weights_of

MOST_TURNS: Final = 64
"""About how many messages all brokers together get until it is the first one's turn again."""

_MASK: Final = 0xFFFFFFFF


@final
class ShareRelay:
    """Another broker. It is known by the session for it here."""

    __slots__ = ("connected", "members", "number", "session", "subscription")

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session: Final = session
        self.number: Final = number_of(session.client_id.encode())
        self.subscription: Subscription = subscription
        self.connected: int = 0
        self.members: int = 0
        self.weigh(subscription)

    def weigh(self, subscription: Subscription) -> None:
        """It has told how many members it has."""
        self.subscription = subscription
        self.connected = connected_of(subscription.identifier)
        self.members = members_of(subscription.identifier)

    @property
    def state(self) -> int:
        """As that of a member."""
        outbox = self.session.outbox
        if outbox is None or not self.connected:
            return AWAY
        return SLOW if outbox.blocked or self.session.queued else READY

    def weight(self, state: int) -> int:
        """How many turns it gets beside others in the same state."""
        return max(1, self.members if state == AWAY else self.connected)


@final
class ShareRelays:
    """`me` is the number of this broker. Beside the relays, this broker's own members take turns, as number 0."""

    __slots__ = ("_at", "_credits", "_left", "_relays", "me")

    def __init__(self, me: int) -> None:
        self.me: Final = me
        self._relays: Final[list[ShareRelay]] = []
        self._at = 0
        """Whose turn it is."""
        self._left = 0
        """How many turns it has left."""
        self._credits: Final = [0.0]
        """The turns that each has not had: first the own members, then the relays."""

    def __len__(self) -> int:
        return len(self._relays)

    def all(self) -> list[ShareRelay]:
        """Those of all other brokers. Must not be changed."""
        return self._relays

    def copy(self) -> "ShareRelays":
        """The same turns, to predict a choice."""
        copy = ShareRelays(self.me)
        copy._relays.extend(self._relays)
        copy._credits[:] = self._credits
        copy._at, copy._left = self._at, self._left
        return copy

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add one, or replace its subscription."""
        for relay in self._relays:
            if relay.session is session:
                relay.weigh(subscription)
                return
        self._relays.append(ShareRelay(session, subscription))
        self._credits.append(0.0)

    def remove(self, client_id: str) -> bool:
        """Remove one. Return whether it was there."""
        for at, relay in enumerate(self._relays):
            if relay.session.client_id == client_id:
                del self._relays[at], self._credits[at + 1]
                self._at = self._left = 0
                return True
        return False

    def choose(self, message: Message, members: ShareMembers, connected: int) -> ShareRelay | None:
        """The broker that gets a message; None: this one. `connected` are its own members that are."""
        if members.is_by_key:
            return self._by_key(key_of(message, members.policy), members, connected)
        return self.in_turn(members, connected)

    def in_turn(self, members: ShareMembers, connected: int) -> ShareRelay | None:
        """The broker whose turn it is; None: this one."""
        own = members.best_state()
        if own == READY and members.policy == PREFER_LOCAL:
            return None
        state = own if self._at == 0 else self._relays[self._at - 1].state
        if self._left <= 0 or state != READY:
            best = own
            for relay in self._relays:
                best = min(best, relay.state)
            if self._left <= 0 or state != best:
                self._go_on(best, own, max(1, len(members) if own == AWAY else connected))
        self._left -= 1
        return None if self._at == 0 else self._relays[self._at - 1]

    def _go_on(self, best: int, own: int, weight: int) -> None:
        """It is the turn of the next one whose members are in the best state."""
        total = weight if own == best else 0
        for relay in self._relays:
            if relay.state == best:
                total += relay.weight(best)
        part = 1.0 if total <= MOST_TURNS else MOST_TURNS / total
        self._left = 0
        while self._left < 1:  # each round adds to all credits
            self._at = self._at + 1 if self._at < len(self._relays) else 0
            if self._at == 0:
                more = weight if own == best else 0
            else:
                relay = self._relays[self._at - 1]
                more = relay.weight(best) if relay.state == best else 0
            credit = self._credits[self._at] + more * part
            self._left = int(credit) if more else 0
            self._credits[self._at] = credit - self._left

    def _by_key(self, key: int, members: ShareMembers, connected: int) -> ShareRelay | None:
        """The broker of a key, by weighted rendezvous hashing: when others come or go, it stays the same for most keys.

        One that has a connected member counts with all of its members, so that a key stays where it is when its member
        is away, as within one broker."""
        weights = weights_of(summary(0, connected, len(members)))  # as others know them
        is_present = connected > 0
        for relay in self._relays:
            is_present = is_present or relay.state != AWAY
        chosen: ShareRelay | None = None
        best = -1.0
        if len(members) and (connected or not is_present):
            best = _score(key, self.me, members_of(weights))
        for relay in self._relays:
            if is_present and relay.state == AWAY:
                continue
            score = _score(key, relay.number, relay.members)
            if score > best:
                chosen, best = relay, score
        return chosen

    def untried(self, tried: tuple[int, ...], without: ShareRelay | None) -> list[ShareRelay]:
        """Those that have not had a message, present ones first."""
        found = [relay for relay in self._relays if relay.number not in tried and relay is not without]
        found.sort(key=_state_of)
        return found


def _state_of(relay: ShareRelay) -> int:
    return relay.state


def _score(key: int, broker: int, weight: int) -> float:
    number = key ^ broker
    number ^= number >> 16
    number = number * 0x85EBCA6B & _MASK
    number ^= number >> 13
    number = number * 0xC2B2AE35 & _MASK
    number ^= number >> 16
    share = (number + 0.5) / (_MASK + 1.0)
    return weight / -log(share)
