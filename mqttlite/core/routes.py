"""Who gets what is published to a topic: the subscription tree, and before it a cache keyed by the topic's raw bytes.

A cached route means: the name is valid, the tree is walked. Invariant: a route that a change of subscriptions or of a
session's connection can affect is not in the cache afterwards.
"""

from typing import Final, final

from mqttlite.core.forwards import Interest
from mqttlite.core.session import Session
from mqttlite.core.shares import ROUND_ROBIN, Share
from mqttlite.core.subscription import Subscription
from mqttlite.core.turn import Outbox
from mqttlite.core.workers import Workers
from mqttlite.topics.names import check_name, has_wildcard, is_own, matches, split_share
from mqttlite.topics.tree import SubscriptionTree
from mqttlite.wire.constants import V5

_SCAN_LIMIT: Final = 5_000
"""Cached topics to hold against one changed wildcard filter: some milliseconds. Where there are more, all go."""

_COMPARISONS_PER_ROUTE: Final = 4
"""Such comparisons that a cached route is worth: after so many it costs less to route anew than to go on comparing."""

_ROUTE_BYTES: Final = 600
_RECEIVER_BYTES: Final = 150
"""About what a cached route, and each receiver in it, takes; for `max_route_cache_bytes`."""


@final
class Remote:
    """Another worker, in the place of its subscriptions of a filter."""

    __slots__ = ("worker",)

    def __init__(self, worker: int) -> None:
        self.worker: Final = worker


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
class Route:
    """The delivery plan of one topic, its receivers grouped by what a QoS 0 copy for them looks like."""

    __slots__ = ("aliased", "others", "plain3", "plain5", "receivers", "refused", "remotes", "shares", "size")

    def __init__(
        self,
        topic: bytes,
        receivers: list[Receiver],
        shares: list[Share],
        remotes: list[int],
        refused: bool = False,
    ) -> None:
        self.refused: Final = refused
        """Clients may not publish here; such a route has no receivers, so that only who finds none needs to ask."""
        self.receivers: Final = receivers
        self.shares: Final = shares
        """Groups of which one member gets a copy."""
        self.remotes: Final = remotes
        """Workers that have subscribers too."""
        self.plain3: Final[list[Outbox]] = []
        """Connected 3.1.1 clients: the frame alone decides."""
        self.plain5: Final[list[Outbox]] = []
        """Connected 5.0 clients without subscription identifiers or a Maximum Packet Size."""
        self.aliased: Final[list[Outbox]] = []
        """The same, that take topic aliases."""
        self.others: Final[list[Receiver]] = []
        """Those that must be looked at one by one."""
        self.size: Final = _ROUTE_BYTES + len(topic) + _RECEIVER_BYTES * (len(receivers) + len(shares))
        for receiver in receivers:
            outbox = receiver.session.outbox
            if outbox is None or receiver.identifiers or receiver.has_no_local or outbox.max_packet_bytes:
                self.others.append(receiver)
            elif outbox.topic_alias_maximum:
                self.aliased.append(outbox)
            elif outbox.version == V5:
                self.plain5.append(outbox)
            else:
                self.plain3.append(outbox)


@final
class Routes:
    __slots__ = (
        "_by_first_level",
        "_cached_bytes",
        "_comparisons",
        "_groups",
        "_max_bytes",
        "_policies",
        "_remotes",
        "_sessions",
        "_shares",
        "_tree",
        "_workers",
        "cache",
        "shared_subscriptions",
        "subscriptions",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        max_cache_bytes: int,
        share_policies: dict[str, str],
        workers: Workers | None = None,
    ) -> None:
        self._workers: Final = workers
        self._remotes: Final = [Remote(worker) for worker in range(workers.count if workers is not None else 0)]
        self._sessions: Final = sessions
        self._max_bytes: Final = max_cache_bytes
        self._policies: Final = share_policies
        self._tree: Final[SubscriptionTree[Subscription | Share | Remote]] = SubscriptionTree()
        self._shares: Final[dict[bytes, Share]] = {}
        self._groups: Final[dict[str, int]] = {}
        self.cache: Final[dict[bytes, Route]] = {}
        self._by_first_level: Final[dict[bytes, dict[bytes, None]]] = {}
        self._cached_bytes = 0
        self._comparisons = 0
        self.subscriptions = 0
        self.shared_subscriptions = 0

    def find(self, topic: bytes) -> Route:
        """The route of a client's message. Raises `TopicNameInvalid` for a name that breaks the rules."""
        route = self.cache.get(topic)
        if route is None:
            check_name(topic)
            route = Route(topic, [], [], [], True) if is_own(topic) else self._make(topic)
            self._remember(topic, route)
        return route

    def find_own(self, topic: bytes) -> Route:
        """The route of a message of the broker's own, which may go to `$SYS`; raises as `find` does."""
        if not is_own(topic):
            return self.find(topic)
        check_name(topic)
        return self._make(topic)

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
        elif self._workers is not None:
            self._workers.want(topic_filter)
        self._tree.add(topic_filter, subscription)
        self.forget(topic_filter)

    def remove(self, subscription: Subscription) -> None:
        topic_filter = subscription.topic_filter
        shared = split_share(topic_filter)
        if shared is None:
            self.subscriptions -= 1
            self._tree.remove(topic_filter, subscription)
            if self._workers is not None:
                self._workers.unwant(topic_filter)
            self.forget(topic_filter)
            return
        self.shared_subscriptions -= 1
        groups = self._groups.pop(subscription.client_id) - 1
        if groups:
            self._groups[subscription.client_id] = groups
        share = self._shares[topic_filter]
        share.remove(subscription)
        self._tell_share(share)
        self._forget_empty(share, shared[1])

    def on_interest(self, worker: int, interest: Interest) -> None:
        """Another worker has subscribers of a filter, or has none any more; or so many members of a group."""
        shared = split_share(interest.topic_filter)
        if shared is None:
            if interest.members:
                self._tree.add(interest.topic_filter, self._remotes[worker])
            else:
                self._tree.remove(interest.topic_filter, self._remotes[worker])
            self.forget(interest.topic_filter)
        elif interest.members:
            share = self._share_of(interest.topic_filter, *shared)
            share.elsewhere[worker] = (interest.members, interest.online)
        else:
            share = self._shares[interest.topic_filter]
            del share.elsewhere[worker]
            self._forget_empty(share, shared[1])

    def groups_of(self, session: Session) -> int:
        """How many shared subscriptions it has."""
        return self._groups.get(session.client_id, 0)

    def share(self, name: bytes) -> Share | None:
        """The shared subscription of that name, `$share/group/filter`, while it has members."""
        return self._shares.get(name)

    def forget_session(self, session: Session) -> None:
        """The session came or went: its outbox in the cached routes is no longer the right one."""
        for topic_filter in session.subscriptions:
            self.forget(topic_filter)
            share = self._shares.get(topic_filter) if self._workers is not None else None
            if share is not None:
                self._tell_share(share)

    def forget(self, topic_filter: bytes) -> None:
        """Drop the cached routes of the topics that a filter matches."""
        if not self.cache:
            return
        if not has_wildcard(topic_filter):
            if topic_filter in self.cache:
                self._drop(topic_filter)
            return
        first = _first_level(topic_filter)
        if first in (b"+", b"#"):
            buckets = list(self._by_first_level.values())
        elif first in self._by_first_level:
            buckets = [self._by_first_level[first]]
        else:
            return
        comparisons = 0
        for bucket in buckets:
            comparisons += len(bucket)
        self._comparisons += comparisons
        if comparisons > _SCAN_LIMIT or self._comparisons > _COMPARISONS_PER_ROUTE * max(len(self.cache), 100):
            self._clear()
            return
        for bucket in buckets:
            for topic in list(bucket):
                if matches(topic_filter, topic):
                    self._drop(topic)

    def _add_to_share(self, subscription: Subscription, group: bytes, topic_filter: bytes) -> None:
        share = self._share_of(subscription.topic_filter, group, topic_filter)
        share.add(self._sessions[subscription.client_id], subscription)
        self._tell_share(share)

    def _share_of(self, name: bytes, group: bytes, topic_filter: bytes) -> Share:
        share = self._shares.get(name)
        if share is None:
            default = self._policies.get("*", ROUND_ROBIN)
            share = self._shares[name] = Share(name, self._policies.get(group.decode(), default))
            self._tree.add(topic_filter, share)
            self.forget(topic_filter)
        return share

    def _forget_empty(self, share: Share, topic_filter: bytes) -> None:
        if len(share) == 0 and not share.elsewhere:
            del self._shares[share.name]
            self._tree.remove(topic_filter, share)
            self.forget(topic_filter)

    def _tell_share(self, share: Share) -> None:
        if self._workers is not None:
            share.count_online()
            self._workers.tell_share(share.name, len(share), share.online)

    def _make(self, topic: bytes) -> Route:
        by_client: dict[str, list[Subscription]] = {}
        shares: list[Share] = []
        remotes: list[int] = []
        for found in self._tree.match(topic):  # [MQTT-3.3.2-3] [MQTT-4.5.0-1]
            if isinstance(found, Share):
                shares.append(found)
            elif isinstance(found, Remote):
                if found.worker not in remotes:  # it has several filters that match
                    remotes.append(found.worker)
            elif found.client_id in by_client:
                by_client[found.client_id].append(found)
            else:
                by_client[found.client_id] = [found]
        receivers = [Receiver(self._sessions[client_id], theirs) for client_id, theirs in by_client.items()]
        return Route(topic, receivers, shares, remotes)

    def _remember(self, topic: bytes, route: Route) -> None:
        if self._cached_bytes + route.size > self._max_bytes:
            self._clear()  # dropping all at once costs less, over time, than finding the oldest each time
            if route.size > self._max_bytes:
                return
        self.cache[topic] = route
        self._cached_bytes += route.size
        if self._comparisons > 0:
            self._comparisons -= _COMPARISONS_PER_ROUTE
        self._by_first_level.setdefault(_first_level(topic), {})[topic] = None

    def _clear(self) -> None:
        self.cache.clear()
        self._by_first_level.clear()
        self._cached_bytes = 0
        self._comparisons = 0

    def _drop(self, topic: bytes) -> None:
        self._cached_bytes -= self.cache.pop(topic).size
        first = _first_level(topic)
        bucket = self._by_first_level[first]
        del bucket[topic]
        if not bucket:
            del self._by_first_level[first]


def _first_level(topic: bytes) -> bytes:
    return topic.split(b"/", 1)[0]
