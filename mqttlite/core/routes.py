"""Who gets what is published to a topic: the subscription tree, and before it a cache keyed by the topic's raw bytes.

A cached route means: the name is valid, the tree is walked. Invariant: a cached route is what the tree would say now.
So a change of subscriptions or of a session's connection drops at once the routes of the topics that its filter
matches. Where too many cached topics would have to be compared with the filter, it drops the whole cache.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    COMPARED_PER_ITERATION,
    ROUTE_WORK,
    STEPS_PER_WORK_UNIT,
    TOPICS_COMPARED,
)
from mqttlite.core.outbox import NO_OUTBOXES, Outbox
from mqttlite.core.session import Session
from mqttlite.core.shares import ROUND_ROBIN, Share
from mqttlite.core.subscription import Subscription
from mqttlite.core.traffic import TopicTraffic, Traffic
from mqttlite.topics.known import KnownTopics
from mqttlite.topics.names import check_name, has_wildcard, is_own, matches, split_share
from mqttlite.topics.tree import SubscriptionTree
from mqttlite.wire.constants import V5

_TOPIC_BYTES: Final = 200
_LEVEL_BYTES: Final = 100
_ROUTE_BYTES: Final = 150
_RECEIVER_BYTES: Final = 150
_IDENTIFIER_BYTES: Final = 40
"""About what a cached topic and each further level of it take, its route, each receiver in that, and each subscription
identifier; for `max_route_cache_bytes`."""

_SEARCH_COST: Final = 4
"""Comparisons that it costs to find the cached topics to compare with a filter."""

_NO_RECEIVERS: Final[list["Receiver"]] = []
_NO_SHARES: Final[list[Share]] = []
"""Never added to, as `NO_OUTBOXES`."""


@final
class Receiver:
    """One session that a topic reaches: its overlapping subscriptions made one, so that it gets one copy (§3.3.4)."""

    __slots__ = ("has_no_local", "identifiers", "own", "qos", "retain_as_published", "session")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session: Final = session
        self.qos = 0
        self.retain_as_published = False
        self.has_no_local = False
        identifiers: list[int] = []
        for subscription in subscriptions:
            self.qos = max(self.qos, subscription.qos)  # [MQTT-3.3.4-2]
            self.retain_as_published |= subscription.retain_as_published
            self.has_no_local |= subscription.no_local
            if subscription.identifier:
                identifiers.append(subscription.identifier)  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
        self.identifiers: Final = tuple(identifiers)
        self.own: Receiver | None = None
        """What the session gets of its own messages, where a No Local subscription is among them [MQTT-3.8.3-3]."""
        if self.has_no_local:
            others = [subscription for subscription in subscriptions if not subscription.no_local]
            if others:
                self.own = Receiver(session, others)

    def for_messages_of(self, publisher: Session | None) -> "Receiver | None":
        """This receiver, or what it is for messages that its own session published; None: it gets none of them."""
        return self.own if self.has_no_local and self.session is publisher else self


@final
class Observed:
    """What a route of which something is to be known has beside its receivers."""

    __slots__ = ("has_no_local", "receivers", "traced", "traffic")

    def __init__(
        self, receivers: list[Receiver], shares: list[Share], traced: bool, traffic: TopicTraffic | None
    ) -> None:
        self.traced: Final = traced
        """Whether every message is, for its topic or for somebody who gets it."""
        self.traffic = traffic
        """Where its messages are counted, until the next harvest."""
        self.receivers: Final = len(receivers) + len(shares)
        """Sessions that a message is for, one for each group."""
        self.has_no_local = False
        """Whether it is for fewer when one of these published it."""
        for receiver in receivers:
            self.has_no_local |= receiver.has_no_local


@final
class Route:
    """The delivery plan of one topic, its receivers grouped by what a QoS 0 copy for them looks like."""

    __slots__ = (
        "aliased",
        "observed",
        "others",
        "plain3",
        "plain5",
        "receivers",
        "refused",
        "shares",
        "size",
        "special",
    )

    def __init__(self, receivers: list[Receiver], shares: list[Share], refused: bool = False) -> None:
        # What every message asks for comes first, to be in as few lines of the processor's cache as may be.
        self.observed: Observed | None = None
        """What is to be known of its messages; None: nothing."""
        self.plain3 = NO_OUTBOXES
        """Connected 3.1.1 clients: the frame alone decides."""
        self.plain5 = NO_OUTBOXES
        """Connected 5.0 clients without subscription identifiers or a Maximum Packet Size."""
        self.special = bool(shares)
        """Whether others are among its receivers than connected clients that get the frame as it is, or that of
        their version."""
        self.refused: Final = refused
        """Clients may not publish here; such a route has no receivers, so that only who finds none needs to ask."""
        self.receivers: Final = receivers
        self.shares: Final = shares
        """Groups of which one member gets a copy."""
        self.aliased = NO_OUTBOXES
        """As `plain5`, but they take topic aliases."""
        self.others = _NO_RECEIVERS
        """Those that must be looked at one by one."""
        size = _ROUTE_BYTES + _RECEIVER_BYTES * (len(receivers) + len(shares))
        for receiver in receivers:
            size += _IDENTIFIER_BYTES * len(receiver.identifiers)
            if receiver.own is not None:
                size += _RECEIVER_BYTES + _IDENTIFIER_BYTES * len(receiver.own.identifiers)
            outbox = receiver.session.outbox
            if outbox is None or receiver.identifiers or receiver.has_no_local or outbox.max_packet_bytes:
                if self.others is _NO_RECEIVERS:
                    self.others = []
                self.others.append(receiver)
            elif outbox.topic_alias_maximum:
                self.aliased = _with(self.aliased, receiver.session, outbox)
            elif outbox.version == V5:
                self.plain5 = _with(self.plain5, receiver.session, outbox)
            else:
                self.plain3 = _with(self.plain3, receiver.session, outbox)
        self.size: Final = size
        if self.others or self.aliased:
            self.special = True


def _with(outboxes: list[Outbox], session: Session, outbox: Outbox) -> list[Outbox]:
    """The outboxes and that of a session.

    Most topics have one receiver, and most receivers many topics: where all share a list it is in the processor's
    cache.
    """
    if not outboxes:
        if not session.alone:
            session.alone = [outbox]
        return session.alone
    if len(outboxes) == 1:
        return [outboxes[0], outbox]
    outboxes.append(outbox)
    return outboxes


@final
class Routes:
    """`cache` is to be asked through `cached` and `find`. What follows a message to its receivers may be added to a
    `Route` when it is made, and must then be forgotten by `forget` when it changes."""

    __slots__ = (
        "_cached_bytes",
        "_compared",
        "_compared_at",
        "_effects",
        "_groups",
        "_known",
        "_max_bytes",
        "_observes",
        "_policies",
        "_sessions",
        "_shares",
        "_tree",
        "cache",
        "shared_subscriptions",
        "subscriptions",
        "traffic",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        max_cache_bytes: int,
        share_policies: dict[str, str],
        effects: Effects,
    ) -> None:
        self._effects: Final = effects
        self._sessions: Final = sessions
        self._max_bytes: Final = max_cache_bytes
        self._policies: Final = share_policies
        self._tree: Final[SubscriptionTree[Subscription | Share]] = SubscriptionTree()
        self._shares: Final[dict[bytes, Share]] = {}
        self._groups: Final[dict[str, int]] = {}
        self.cache: Final[dict[bytes, Route | None]] = {}
        """None: the route was dropped, and the index still has the topic."""
        self._known: Final = KnownTopics(TOPICS_COMPARED)
        self._compared = 0  # what changes of subscriptions cost in this pass, in comparisons of a filter with a topic
        self._compared_at = 0.0
        self._cached_bytes = 0
        self.subscriptions = 0
        self.shared_subscriptions = 0
        self.traffic: Traffic | None = None
        """Where messages are counted by topic; set by `observe`."""
        self._observes = False

    def observe(self, traffic: Traffic | None) -> None:
        """Messages are counted there from now on; and `Effects.tracer` is another: all routes are made anew."""
        self.traffic = traffic
        self._observes = traffic is not None or self._effects.tracer is not None
        for session in self._sessions.values():
            self.start_tracing(session)
        self._clear()

    def start_tracing(self, session: Session) -> None:
        """Ask whether all messages from and to a client are followed. Its routes are to be forgotten after it."""
        tracer = self._effects.tracer
        traced = tracer is not None and tracer.traces_client(session.client_id)
        if traced == session.traced:
            return
        session.traced = traced
        if session.client_id in self._groups:
            for topic_filter in session.subscriptions:
                share = self._shares.get(topic_filter)
                if share is not None:
                    self._trace_share(share, session)

    def cached(self, topic: bytes) -> Route | None:
        """The route of a client's message, if it is cached."""
        return self.cache.get(topic)

    def find(self, topic: bytes) -> Route:
        """The route of a client's message. Raises `TopicNameInvalid` for a name that breaks the rules."""
        cached = self.cache.get(topic)
        if cached is not None:
            return cached
        if topic not in self.cache:
            check_name(topic)
        if is_own(topic):
            route = Route(_NO_RECEIVERS, _NO_SHARES, True)
            if self._observes:
                route.observed = Observed(_NO_RECEIVERS, _NO_SHARES, self._is_traced(topic, route), None)
        else:
            route = self._make(topic)
            if self._observes:
                traffic = None if self.traffic is None else self.traffic.of(topic)
                route.observed = Observed(route.receivers, route.shares, self._is_traced(topic, route), traffic)
        self._remember(topic, route)
        return route

    def find_own(self, topic: bytes) -> Route:
        """The route of a message of the broker's own, which may go to `$SYS`; raises as `find` does."""
        if not is_own(topic):
            return self.find(topic)
        check_name(topic)
        route = self._make(topic)
        if self._observes and self._is_traced(topic, route):  # else nobody wants to know of it
            route.observed = Observed(route.receivers, route.shares, True, None)
        return route

    def reaches(self, topic: bytes) -> bool:
        """Whether anybody subscribes to it; raises as `find` does."""
        check_name(topic)
        return bool(self._tree.match(topic))

    def add(self, subscription: Subscription, replaced: Subscription | None) -> None:
        """Enter a subscription in the place of an earlier one of the same session and filter, if there was one."""
        topic_filter = subscription.topic_filter
        shared = split_share(topic_filter)
        if shared is not None:
            if replaced is None:
                self.shared_subscriptions += 1
                self._groups[subscription.client_id] = self._groups.get(subscription.client_id, 0) + 1
            self._add_to_share(subscription, *shared)
            return
        self.subscriptions += replaced is None
        if replaced is not None:
            self._tree.remove(topic_filter, replaced)
        self._tree.add(topic_filter, subscription)
        self.forget(topic_filter)

    def remove(self, subscription: Subscription) -> None:
        """Take out a subscription that was entered."""
        shared = split_share(subscription.topic_filter)
        if shared is not None:
            self._remove_from_share(subscription, shared[1])
            return
        self._remove(subscription)
        self.forget(subscription.topic_filter)

    def remove_all(self, session: Session) -> None:
        """Take out all subscriptions of a session that ends."""
        for subscription in session.subscriptions.values():
            shared = split_share(subscription.topic_filter)
            if shared is not None:
                self._remove_from_share(subscription, shared[1])
            else:
                self._remove(subscription)
        self.forget_session(session)

    def _remove(self, subscription: Subscription) -> None:
        self.subscriptions -= 1
        self._tree.remove(subscription.topic_filter, subscription)

    def groups_of(self, session: Session) -> int:
        """How many shared subscriptions it has."""
        return self._groups.get(session.client_id, 0)

    def share(self, name: bytes) -> Share | None:
        """The shared subscription of that name, `$share/group/filter`, while it has members."""
        return self._shares.get(name)

    def forget_session(self, session: Session) -> None:
        """The session came or went: its outbox in the cached routes is no longer the right one."""
        for topic_filter in session.subscriptions:  # of a shared one no route knows the session
            if not self.cache:
                return
            self.forget(topic_filter)

    def forget(self, topic_filter: bytes) -> None:
        """Drop the cached routes of the topics that a filter matches; all routes where that costs less."""
        if not self.cache:
            return
        if not has_wildcard(topic_filter):
            if topic_filter in self.cache:
                self._drop(topic_filter)
            return
        if self._compared_at != self._effects.now:
            self._compared_at = self._effects.now
            self._compared = 0
        topics = self._known.candidates(topic_filter)
        if topics is None or self._compared > COMPARED_PER_ITERATION:
            self._clear()
            return
        for topic in topics:
            if matches(topic_filter, topic):
                self._drop(topic)
        self._compared += len(topics) + _SEARCH_COST

    def _add_to_share(self, subscription: Subscription, group: bytes, topic_filter: bytes) -> None:
        name = subscription.topic_filter
        share = self._shares.get(name)
        if share is None:
            default = self._policies.get("*", ROUND_ROBIN)
            share = self._shares[name] = Share(name, self._policies.get(group.decode(), default))
            self._tree.add(topic_filter, share)
            self.forget(topic_filter)
        session = self._sessions[subscription.client_id]
        share.add(session, subscription)
        if session.traced:
            self._trace_share(share, session)

    def _remove_from_share(self, subscription: Subscription, topic_filter: bytes) -> None:
        self.shared_subscriptions -= 1
        groups = self._groups.pop(subscription.client_id) - 1
        if groups:
            self._groups[subscription.client_id] = groups
        share = self._shares[subscription.topic_filter]
        share.remove(subscription)
        if share.traced.pop(subscription.client_id, True) is None:
            self.forget(topic_filter)
        if len(share) == 0:
            del self._shares[share.name]
            self._tree.remove(topic_filter, share)
            self.forget(topic_filter)

    def _trace_share(self, share: Share, session: Session) -> None:
        """A member is followed, or is so no longer."""
        if session.traced:
            share.traced[session.client_id] = None
        else:
            share.traced.pop(session.client_id, None)
        shared = split_share(share.name)
        assert shared is not None
        self.forget(shared[1])

    def _is_traced(self, topic: bytes, route: Route) -> bool:
        """Whether each message of that topic is followed, whoever publishes it."""
        tracer = self._effects.tracer
        if tracer is None:
            return False
        traced = tracer.traces_topic(topic)
        for receiver in route.receivers:
            traced = traced or receiver.session.traced
        for share in route.shares:
            traced = traced or len(share.traced) > 0
        return traced

    def _make(self, topic: bytes) -> Route:
        by_client: dict[str, list[Subscription]] = {}
        shares = _NO_SHARES
        matching = self._tree.match(topic)  # [MQTT-3.3.2-3] [MQTT-4.5.0-1]
        self._effects.work += ROUTE_WORK + (self._tree.steps + len(matching)) // STEPS_PER_WORK_UNIT
        for found in matching:
            if isinstance(found, Share):
                if shares is _NO_SHARES:
                    shares = []
                shares.append(found)
            elif found.client_id in by_client:
                by_client[found.client_id].append(found)
            else:
                by_client[found.client_id] = [found]
        receivers = [Receiver(self._sessions[client_id], theirs) for client_id, theirs in by_client.items()]
        return Route(receivers, shares)

    def _remember(self, topic: bytes, route: Route) -> None:
        is_known = topic in self.cache
        size = route.size if is_known else route.size + _topic_size(topic)
        if self._cached_bytes + size > self._max_bytes:
            self._clear()  # dropping all at once costs less, over time, than finding the oldest each time
            is_known = False
            size = route.size + _topic_size(topic)
            if size > self._max_bytes:
                return
        self.cache[topic] = route
        self._cached_bytes += size
        if not is_known:
            self._known.add(topic)

    def _clear(self) -> None:
        self.cache.clear()
        self._known.clear()
        self._cached_bytes = 0

    def _drop(self, topic: bytes) -> None:
        route = self.cache[topic]
        if route is not None:
            self._cached_bytes -= route.size
            self.cache[topic] = None


def _topic_size(topic: bytes) -> int:
    """What a topic takes besides its route: with very many levels that is mostly their index."""
    return _TOPIC_BYTES + len(topic) + _LEVEL_BYTES * topic.count(b"/")
