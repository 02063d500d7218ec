"""The tables of presence: the clients of each filter, and the topics with published presence.

`presence` publishes it. Invariant: no table exceeds its limit; if one is full, a topic's presence has only a
number, or is left out, which is counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mqttlite.extensions.presence.topics import PRESENCE_EVENTS, presence_subject
from mqttlite.topics.names import check_name, has_wildcard
from mqttlite.topics.namespaces import split_share
from mqttlite.topics.retained import RetainedMessages, Search
from mqttlite.topics.tree import SubscriptionTree
from mqttlite.wire.errors import TopicNameInvalid

MAX_TOPICS: Final = 10_000
"""Topics with published presence: each has one of the broker's own retained messages."""

MAX_WATCHED: Final = 1_000
"""Topics among them that are included only because a client subscribes to their presence by name: a client could name
any number."""

MAX_MEMBERSHIPS: Final = 200_000
"""Clients of filters, some 300 bytes each; a client counts once for each of its filters."""

MAX_NAMES: Final = 200_000
"""Clients by name in all topics, some 200 bytes each: a filter with wildcards has its clients in many topics."""

MAX_NAMED: Final = 1_000
"""The most clients by name in one topic, because they are compared each time. A topic with more publishes only a
number."""

OVERLAPS_KNOWN: Final = 10_000
"""Filters for which it is cached whether a policy has presence there."""


class Subjects(Protocol):
    """Which topics have presence: what the topic policies say."""

    def has_presence(self, topic: bytes) -> bool: ...
    def may_have_presence(self, topic_filter: bytes) -> bool: ...
    def presence_topics(self) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class Member:
    """A client that subscribes to a topic; `since` is in the broker's seconds."""

    client_id: str
    username: str | None
    since: float


class Clients:
    """The clients that subscribe with one filter, and since when."""

    __slots__ = ("plain", "since")

    def __init__(self, plain: bytes) -> None:
        self.plain: Final = plain
        """The filter, of a shared subscription what is behind its share name."""
        self.since: Final[dict[str, float]] = {}


class Topic:
    """A topic with published presence."""

    __slots__ = (
        "count",
        "direct",
        "is_named",
        "is_told",
        "known",
        "name",
        "number_told_at",
        "told_at",
        "was_watched",
        "watchers",
    )

    def __init__(self, name: bytes, was_watched: bool) -> None:
        self.name: Final = name
        self.was_watched: Final = was_watched
        """Whether it was included because of a subscription by name; it counts for `MAX_WATCHED`."""
        self.direct: int = 0
        """Filters without wildcards that stand for it and have clients: one, and one for each share name."""
        self.watchers: int = 0
        """Subscriptions to its presence by name."""
        self.is_named: bool = False
        """Whether a policy names it."""
        self.is_told: bool = False
        self.count: int = 0
        """As last told."""
        self.known: dict[str, Member] | None = {}
        """As last told; None: only their number is."""
        self.told_at: Final[dict[str, float]] = {}
        """When clients were last told to have come or gone, the earliest first, of the last second."""
        self.number_told_at: float = 0.0
        """The same for a topic that publishes only a number."""

    @property
    def is_wanted(self) -> bool:
        return bool(self.direct or self.watchers or self.is_named)

    def forget_told(self, until: float) -> bool:
        """Forget clients that were reported before `until`. Return whether none is left."""
        told_at = self.told_at
        while told_at:
            client_id, at = next(iter(told_at.items()))
            if at > until:
                return False
            del told_at[client_id]
        return True


class Members:
    """The tables. `subjects` says which topics have presence."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._overlaps: Final[dict[bytes, bool]] = {}
        self._by_filter: Final[dict[bytes, Clients]] = {}
        self._tree: Final[SubscriptionTree[Clients]] = SubscriptionTree()
        self._filters_of: Final[dict[str, dict[bytes, None]]] = {}
        """The filters of each client that count here, those by which it watches among them."""
        self._topics: Final[RetainedMessages[Topic]] = RetainedMessages()
        self._watched = 0
        self.memberships: int = 0
        self.names: int = 0
        self.left_out: int = 0
        """How often a table was full."""

    @property
    def topics(self) -> int:
        """How many topics have published presence."""
        return len(self._topics)

    # ------------------------------------------------------------------ subscriptions

    def is_relevant(self, topic_filter: bytes) -> bool:
        """Whether a subscription changes the presence of a topic, or asks for it."""
        plain = _watched_topic(topic_filter) or split_share(topic_filter)[1]
        if plain.startswith(b"$"):
            return False
        if not has_wildcard(plain):
            return self._subjects.has_presence(plain)
        known = self._overlaps.get(plain)
        if known is None:
            if len(self._overlaps) >= OVERLAPS_KNOWN:
                self._overlaps.clear()
            known = self._overlaps[plain] = self._subjects.may_have_presence(plain)
        return known

    def filters_of(self, client_id: str) -> list[bytes]:
        """The filters of a client that are here."""
        return list(self._filters_of.get(client_id, ()))

    def holds(self, client_id: str, topic_filter: bytes) -> bool:
        return topic_filter in self._filters_of.get(client_id, ())

    def add(self, client_id: str, topic_filter: bytes, since: float) -> Topic | bytes | None:
        """Add a client's subscription to a relevant filter. Return what to publish: a topic, or the topics of a
        filter."""
        if self.memberships >= MAX_MEMBERSHIPS:
            self.left_out += 1
            return None
        watched = _watched_topic(topic_filter)
        if watched:
            topic = self._watch(watched)
            if topic is None:
                return None
            topic.watchers += 1
            self._note(client_id, topic_filter)
            return topic
        clients = self._by_filter.get(topic_filter)
        plain = split_share(topic_filter)[1]
        is_topic = not has_wildcard(plain)
        if clients is None:
            if is_topic:
                direct = self._topics.get(plain) or self._make(plain)
                if direct is None:
                    return None
                direct.direct += 1
            clients = self._by_filter[topic_filter] = Clients(plain)
            self._tree.add(plain, clients)
        clients.since[client_id] = since
        self._note(client_id, topic_filter)
        return self._topics.get(plain) if is_topic else plain

    def remove(self, client_id: str, topic_filter: bytes) -> Topic | bytes | None:
        """A client is gone, or no longer subscribes to a filter with which it is here."""
        filters = self._filters_of[client_id]
        del filters[topic_filter]
        if not filters:
            del self._filters_of[client_id]
        self.memberships -= 1
        watched = _watched_topic(topic_filter)
        if watched:
            topic = self._topics.get(watched)
            if topic is not None:
                topic.watchers -= 1
            return topic
        clients = self._by_filter[topic_filter]
        del clients.since[client_id]
        plain = clients.plain
        direct = None if has_wildcard(plain) else self._topics.get(plain)
        if not clients.since:
            del self._by_filter[topic_filter]
            self._tree.remove(plain, clients)
            if direct is not None:
                direct.direct -= 1
        return plain if direct is None else direct

    def _note(self, client_id: str, topic_filter: bytes) -> None:
        self._filters_of.setdefault(client_id, {})[topic_filter] = None
        self.memberships += 1

    # ------------------------------------------------------------------ topics

    def search(self, topic_filter: bytes) -> Search[Topic]:
        """The topics with published presence that a filter matches."""
        return self._topics.search(topic_filter)

    def all_topics(self) -> list[Topic]:
        return self._topics.values()

    def is_here(self, topic: Topic) -> bool:
        """Whether the topic has published presence."""
        return self._topics.get(topic.name) is topic

    def has_presence(self, topic: Topic) -> bool:
        """Whether a policy still asks for it."""
        return self._subjects.has_presence(topic.name)

    def use(self, subjects: Subjects) -> None:
        """Other policies are in force."""
        self._subjects = subjects
        self._overlaps.clear()

    def add_named(self) -> None:
        """Include exactly the topics that policies name, besides those included for other reasons."""
        named = set(self._subjects.presence_topics())
        for topic in self._topics.values():
            topic.is_named = False
        for name in named:
            found = self._topics.get(name) or self._make(name)
            if found is not None:
                found.is_named = True

    def forget(self, topic: Topic) -> None:
        """Stop to publish the presence of a topic."""
        self.names -= len(topic.known or ())
        self._watched -= topic.was_watched
        self._topics.remove(topic.name)

    def _watch(self, name: bytes) -> Topic | None:
        """The topic whose presence is asked for by name."""
        topic = self._topics.get(name)
        if topic is not None or not self._subjects.has_presence(name):
            return topic
        return self._make(name, is_watched=True)

    def _make(self, name: bytes, is_watched: bool = False) -> Topic | None:
        if len(self._topics) >= MAX_TOPICS or (is_watched and self._watched >= MAX_WATCHED) or not _fits(name):
            self.left_out += 1
            return None
        topic = Topic(name, is_watched)
        self._watched += is_watched
        self._topics.put(name, topic)
        return topic

    # ------------------------------------------------------------------ members

    def now_in(self, topic: Topic, who: Callable[[str, bytes, float], Member | None]) -> Mapping[str, Member] | int:
        """The clients that subscribe to a topic, or only their number if they are many. `who` returns the member for a
        client; None: it may not receive the topic."""
        found = self._tree.match(topic.name)
        total = sum(len(each.since) for each in found)
        room = MAX_NAMES - self.names + len(topic.known or ())
        if total > min(MAX_NAMED, room):
            return len(found[0].since) if len(found) == 1 else len(set().union(*(each.since for each in found)))
        members: dict[str, Member] = {}
        for client_id, since in _earliest(found).items():
            member = who(client_id, topic.name, since)
            if member is not None:
                members[client_id] = member
        return members

    def note_told(self, topic: Topic, known: dict[str, Member] | None, count: int) -> None:
        """Remember what was published for a topic."""
        self.names += len(known or ()) - len(topic.known or ())
        topic.known, topic.count, topic.is_told = known, count, True


def _earliest(found: Iterable[Clients]) -> dict[str, float]:
    """When each client first subscribed, the earliest of several filters."""
    merged: dict[str, float] = {}
    for clients in found:
        for client_id, since in clients.since.items():
            merged[client_id] = min(since, merged.get(client_id, since))
    return merged


def _watched_topic(topic_filter: bytes) -> bytes:
    """The topic whose presence a filter asks for by name; empty where it does not."""
    plain = split_share(topic_filter)[1]
    return b"" if has_wildcard(plain) else presence_subject(plain)


def _fits(name: bytes) -> bool:
    """Whether the topic with the presence prefix is not too long."""
    try:
        check_name(PRESENCE_EVENTS + name)
    except TopicNameInvalid:
        return False
    return True
