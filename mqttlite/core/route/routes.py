"""Finds the receivers of a topic in the tree of bindings, through a cache keyed by the topic's raw bytes.

A cached route means that the name is valid and the tree was walked. Invariant: a cached route equals the result of
walking the tree now. So a change of subscriptions or of a session's connection at once drops the routes of the topics
that the filter matches, or the whole cache if too many cached topics would have to be compared.
"""

from typing import Final, final

from mqttlite.core.authorizer import Authorizer
from mqttlite.core.effects import Effects
from mqttlite.core.hook import Hook, HookFinder
from mqttlite.core.interest import Interest
from mqttlite.core.limits import (
    COMPARED_PER_ITERATION,
    FOUND_WORK,
    ROUTE_WORK,
    SCANNED_PER_WORK_UNIT,
    STEPS_PER_WORK_UNIT,
    TOPICS_COMPARED,
)
from mqttlite.core.message import Delivery, Message, RawProperties, StoredOrigin
from mqttlite.core.namespace import Namespace
from mqttlite.core.route.filtered_receivers import filtered_receivers
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.relayed import number_of, numbers_of
from mqttlite.core.route.route import NO_RECEIVERS, Observed, Receiver, Route
from mqttlite.core.route.share_members import ROUND_ROBIN
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.route.subscription import Binding, RoutePlan, SinkBinding, Subscription
from mqttlite.core.route.topic_limits import NO_TOPIC_LIMITS, TopicLimits
from mqttlite.core.route.traffic import Traffic
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.topics.known import KnownTopics
from mqttlite.topics.names import check_filter, check_name, has_wildcard, is_own, matches
from mqttlite.topics.namespaces import CONTROL, DELAYED, split_share
from mqttlite.topics.tree import SubscriptionTree

MAX_QOS: Final = 2

_DOLLAR: Final = 0x24
"""Most filters do not begin with `$`, and need no further check."""

_TOPIC_BYTES: Final = 200
_LEVEL_BYTES: Final = 100
"""About how much memory a cached topic takes beside its route, and each further level, for `max_route_cache_bytes`."""

_SEARCH_COST: Final = 4
"""The cost of finding the candidates for a filter, in comparisons."""


@final
class Routes:
    """Use `cached` and `find` to read `cache`. State that a `Route` copies when it is made must call `forget` when it
    changes."""

    __slots__ = (
        "_bound",
        "_cached_bytes",
        "_compared",
        "_compared_at",
        "_effects",
        "_ending",
        "_groups",
        "_known",
        "_max_bytes",
        "_named",
        "_observes",
        "_policies",
        "_served",
        "_sessions",
        "_shares",
        "_shares_by_number",
        "_topic_limits",
        "_tree",
        "cache",
        "hooks",
        "limits_topics",
        "namespaces",
        "permissions",
        "shared_subscriptions",
        "subscriptions",
        "traffic",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        max_cache_bytes: int,
        share_policies: dict[str, str],
        permissions: Permissions,
        effects: Effects,
    ) -> None:
        self._effects: Final = effects
        self.namespaces: Final = effects.namespaces
        self._served: Final[dict[bytes, Namespace]] = {}
        """The namespaces with members, by first level."""
        self.permissions: Final = permissions
        self._sessions: Final = sessions
        self._max_bytes: Final = max_cache_bytes
        self._policies: Final = share_policies
        self._tree: Final[SubscriptionTree[Binding]] = SubscriptionTree()
        self._shares: Final[dict[bytes, SharedSubscription]] = {}
        self._shares_by_number: Final[dict[int, list[SharedSubscription]]] = {}
        """Those that other brokers can name. Two names may have the same number."""
        self._named: Final[dict[tuple[int, ...], Sink]] = {}
        """By `numbers_of` their names."""
        self._groups: Final[dict[str, int]] = {}
        self._ending: Final[dict[str, int]] = {}  # sessions that ended and have subscriptions in the tree, by client
        self._bound: Final[dict[tuple[bytes, int], SinkBinding]] = {}
        self.cache: Final[dict[bytes, Route | None]] = {}
        """None: the route was dropped, and the index still has the topic."""
        self._known: Final = KnownTopics(TOPICS_COMPARED)
        self._compared = 0  # the cost of this iteration's subscription changes, in comparisons
        self._compared_at = 0.0
        self._cached_bytes = 0
        self.subscriptions: int = 0
        self.shared_subscriptions: int = 0
        self.traffic: Traffic | None = None
        """Counts messages by topic; set by `observe`."""
        self._observes = False
        self.hooks: HookFinder | None = None
        """Finds the hooks of topics; set by `hook_with`."""
        self.limits_topics: bool = False
        """Whether some clients have lower limits of topics than the broker."""
        self._topic_limits = NO_TOPIC_LIMITS
        """The lowest limits of all clients."""

    def limit_topics(self, limits: TopicLimits) -> None:
        """Register the limits of some clients. If they are the lowest so far, drop all routes."""
        lowest = self._topic_limits
        if limits.max_levels < lowest.max_levels or limits.max_bytes < lowest.max_bytes:
            self.limits_topics = True
            self._topic_limits = TopicLimits(
                min(limits.max_levels, lowest.max_levels), min(limits.max_bytes, lowest.max_bytes), 0
            )
            self._clear()

    def authorize(self, authorizer: Authorizer) -> None:
        """Replace the authorizer, and drop all routes."""
        self.permissions.authorize(authorizer)
        self._clear()

    def bind(
        self,
        topic_filter: bytes,
        sink: Sink,
        *,
        hears_others: bool = False,
        tells_others: bool = True,
        is_alone: bool = False,
    ) -> None:
        """Deliver every message that matches a topic filter to a sink, until `unbind`. With `hears_others` also those
        that were published at other brokers, which send them if it `tells_others`. With `is_alone`, no other sink gets
        messages of a namespace with members.

        Raises `TopicFilterInvalid`, and `ValueError` for a sink that has this filter already.
        """
        check_filter(topic_filter)
        key = (topic_filter, id(sink))
        if key in self._bound:
            raise ValueError(f"{topic_filter!r} is bound to this sink already")
        binding = self._bound[key] = SinkBinding(sink, hears_others, hears_others and tells_others, is_alone)
        self._tree.add(topic_filter, binding)
        if binding.tells_others and self._effects.interest is not None:
            self._effects.interest.add("", topic_filter, MAX_QOS)
        self.forget(topic_filter)

    def unbind(self, topic_filter: bytes, sink: Sink) -> None:
        """The opposite of `bind`. Raises `KeyError` for a sink that does not have this filter."""
        binding = self._bound.pop((topic_filter, id(sink)))
        self._tree.remove(topic_filter, binding)
        if binding.tells_others and self._effects.interest is not None:
            self._effects.interest.remove("", topic_filter, MAX_QOS)
        self.forget(topic_filter)

    def tell(self, interest: Interest) -> None:
        """Count in `interest` what is subscribed, from now on. Called once."""
        self._effects.interest = interest
        for session in self._sessions.values():
            for subscription in session.subscriptions.values():
                if not subscription.share_name:
                    interest.add(subscription.client_id, subscription.topic_filter, subscription.qos)
        for (topic_filter, _sink), binding in self._bound.items():
            if binding.tells_others:
                interest.add("", topic_filter, MAX_QOS)
        for share in self._shares.values():
            self._tell_of(share)

    def _tell_of(self, share: SharedSubscription) -> None:
        """Others may have members of a shared subscription, too. Those below `$` are each broker's own."""
        if not split_share(share.name)[1].startswith(b"$"):
            share.number = number_of(share.name)
            same = self._shares_by_number.get(share.number)
            if same is None:
                self._shares_by_number[share.number] = [share]
            else:
                same.append(share)
            share.tell()

    def hook_with(self, hooks: HookFinder) -> None:
        """Set what finds the hooks of topics, and drop all routes. Called again when it has others."""
        self.hooks = hooks
        self._clear()

    def observe(self, traffic: Traffic | None) -> None:
        """Set the counters of messages. Also called after a change of `Effects.tracer`. Drops all routes."""
        self.traffic = traffic
        self._observes = traffic is not None or self._effects.tracer is not None
        for session in self._sessions.values():
            self.start_tracing(session)
        self._clear()

    def start_tracing(self, session: Session) -> None:
        """Ask the tracer whether it traces all messages of a client. The caller must then forget the client's
        routes."""
        tracer = self._effects.tracer
        traced = tracer is not None and tracer.traces_client(session.client_id)
        if traced == session.traced:
            return
        session.traced = traced
        if session.client_id in self._groups:
            for name, subscription in session.subscriptions.items():
                share = self._shares.get(name)
                if share is not None:
                    self._trace_share(share, session, subscription.filter)

    def cached(self, topic: bytes) -> Route | None:
        """The cached route of a topic, or None."""
        return self.cache.get(topic)

    def find(self, topic: bytes) -> Route:
        """The route of a topic. Raises `TopicNameInvalid` for a name that breaks the rules.

        Routes of `$SYS` topics are not cached: they are as many as clients, with few messages each. Routes of
        `$delayed` topics are not cached either: there may be one for each message.
        """
        cached = self.cache.get(topic)
        if cached is not None:
            return cached
        if topic not in self.cache:
            check_name(topic)
        if topic[0] == _DOLLAR:
            return self._find_special(topic, True)
        route = self.make(topic)
        self._remember(topic, route)
        return route

    def look(self, topic: bytes) -> Route:
        """The same, but a route that is not cached is made for this call only, and counts no messages."""
        cached = self.cache.get(topic)
        if cached is not None:
            return cached
        check_name(topic)
        observes, self._observes = self._observes, False
        try:
            return self._find_special(topic, False) if topic.startswith(b"$") else self.make(topic)
        finally:
            self._observes = observes

    def _find_special(self, topic: bytes, remembers: bool) -> Route:
        """The route of a valid topic that begins with `$`."""
        parsed = self.namespaces.parse_name(topic)
        refusal = parsed.name_refusal
        if parsed.namespace == DELAYED:
            self._effects.work += ROUTE_WORK
            hook = self._hook_of(parsed.rest)
            return Route([], [], is_open=False, refusal=refusal, delayed=None if refusal else parsed, hook=hook)
        if parsed.namespace == CONTROL or parsed.has_members:
            route = self._make_bound(topic, refusal)
        else:
            route = Route([], [], is_open=False, refusal=refusal) if refusal else self.make(topic)
        if remembers and not is_own(topic):
            self._remember(topic, route)
        return route

    def _make_bound(self, topic: bytes, refusal: str) -> Route:
        """The route of a topic whose messages go only to the sink bound to it, not to clients.

        They are neither counted by topic nor traced: those of `$CONTROL` may hold passwords.
        """
        bound = [found for found in self._tree.match(topic) if isinstance(found, SinkBinding)]
        alone = [found for found in bound if found.is_alone]
        plan = RoutePlan()
        for each in alone or bound:
            each.join(plan)
        self._effects.work += ROUTE_WORK
        refusal = "" if plan.sinks else refusal
        return Route([], plan.sinks, is_open=False, refusal=refusal, retains=False, heard=plan.heard)

    def make(self, topic: bytes) -> Route:
        """Make the route of a valid topic name from the tree, as it is now."""
        plan = RoutePlan()
        matching = self._tree.match(topic)  # [MQTT-3.3.2-3] [MQTT-4.5.0-1]
        self._effects.work += ROUTE_WORK + self._tree.steps // STEPS_PER_WORK_UNIT + FOUND_WORK * len(matching)
        for binding in matching:
            binding.join(plan)
        if self._ending:
            self._leave_out_ended(plan)
        authorizer = self.permissions.authorizer
        if self.permissions.hides(topic):
            self._leave_out_denied(plan, topic)
        filtered, sinks, heard = NO_RECEIVERS, plan.sinks, plan.heard
        if plan.filtering:
            found = filtered_receivers(plan, self._sessions, self._effects, self.permissions.drops)
            filtered = [receiver for each in found for receiver in each.receivers]
            sinks, heard = [*plan.sinks, *found], [*plan.heard, *found]
        receivers = [Receiver(self._sessions[client_id], theirs) for client_id, theirs in plan.by_client.items()]
        policy = authorizer.policy_of(topic)
        is_limited = self.limits_topics and self._topic_limits.excludes(topic)
        hook = None if self.hooks is None else self._hook_of(topic)
        if policy.is_plain and not is_limited and hook is None:
            route = Route(receivers, sinks, authorizer.is_open(topic), filtered, heard=heard)
        else:
            if policy.is_ephemeral:
                for each in self._served.values():
                    sinks = each.refuse_ephemeral(sinks, policy.name)
                    heard = each.refuse_ephemeral(heard, policy.name)
            kept = None if policy.is_plain else policy
            route = Route(
                *(receivers, sinks, False, filtered), policy=kept, is_limited=is_limited, hook=hook, heard=heard
            )
        if self._observes:
            own = is_own(topic)
            traced = self._is_traced(topic, route, plan)
            traffic = None if self.traffic is None or own else self.traffic.of(topic)
            if traced or not own:  # otherwise it is not observed
                route.observed = Observed(receivers + filtered, len(plan.sinks), traced, traffic)
        return route

    @staticmethod
    def takes_batches(route: Route, topic: bytes, raw: RawProperties) -> bool:
        """Whether the sinks of a route take QoS 1 and 2 messages with these properties in batches."""
        return all(sink.takes_batches(topic, raw) for sink in route.sinks)

    def name(self, name: bytes, sink: Sink) -> None:
        """Let other brokers name a sink (`relayed.numbers_of`), in place of one that had the name before."""
        self._named[numbers_of(name)] = sink

    def unname(self, name: bytes, sink: Sink) -> None:
        """They name it no longer. Harmless if another sink has the name by now."""
        numbers = numbers_of(name)
        if self._named.get(numbers) is sink:
            del self._named[numbers]

    def serve(self, namespace: Namespace) -> None:
        """Hand the subscriptions to a namespace over to a feature, or to one that passes them on to the former one."""
        self._served[namespace.syntax.first_level] = namespace

    def serves(self, topic_filter: bytes) -> Namespace | None:
        """The feature that takes subscriptions to a filter; None if they go to the tree."""
        share, rest = split_share(topic_filter)
        namespace = self._served.get(rest.partition(b"/")[0])
        return None if share and namespace is not None and not namespace.syntax.has_groups else namespace

    @property
    def served(self) -> list[Namespace]:
        """Those with members."""
        return list(self._served.values())

    def keep_invalid(self, message: Message, reason: str) -> bool:
        """Offer a message with an invalid payload to the features as a dead letter. Return whether one keeps it."""
        sinks = self.find(message.topic).sinks
        kept = False
        for each in self._served.values():
            kept |= each.keep_invalid(sinks, message, reason)
        return kept

    def _hook_of(self, topic: bytes) -> Hook | None:
        return None if self.hooks is None else self.hooks.hook_of(topic)

    def denied(self, topic: bytes) -> list[str]:
        """The clients that subscribe to a valid topic and may not receive it."""
        if not self.permissions.hides(topic):
            return []
        plan = RoutePlan()
        for binding in self._tree.match(topic):
            binding.join(plan)
        self._leave_out_ended(plan)
        subscribers = list(plan.by_client)
        self._leave_out_denied(plan, topic)
        return [client_id for client_id in subscribers if client_id not in plan.by_client]

    def reaches(self, topic: bytes) -> bool:
        """Whether it has a subscriber. Raises like `find`."""
        check_name(topic)
        return bool(self._tree.match(topic))

    def subscribers(self, topic: bytes) -> tuple[list[Subscription], int]:
        """The subscriptions by which clients may get messages of a topic, one for each client, with those of members of
        shared subscriptions; and the number of other sinks, such as queues. Raises like `find`."""
        check_name(topic)
        plan = RoutePlan()
        for binding in self._tree.match(topic):
            binding.join(plan)
        self._leave_out_ended(plan)
        others = 0
        for sink in plan.sinks:
            if isinstance(sink, SharedSubscription):
                for session, subscription in sink.receivers():
                    plan.by_client.setdefault(session.client_id, [subscription])
            else:
                others += 1
        if self.permissions.hides(topic):
            self._leave_out_denied(plan, topic)
        return [theirs[0] for theirs in plan.by_client.values()], others

    def add(self, subscription: Subscription, replaced: Subscription | None) -> None:
        """Add a subscription. `replaced` is the session's earlier one with the same filter, if there was one."""
        topic_filter = subscription.topic_filter
        if subscription.share_name:
            if replaced is None:
                self.shared_subscriptions += 1
                self._groups[subscription.client_id] = self._groups.get(subscription.client_id, 0) + 1
            self._add_to_share(subscription)
            return
        self.subscriptions += replaced is None
        if topic_filter[0] == _DOLLAR:
            namespace = self.serves(topic_filter)
            if namespace is not None:
                namespace.add(self._sessions[subscription.client_id], subscription)
                return
        if replaced is not None:
            self._tree.remove(topic_filter, replaced)
        self._tree.add(topic_filter, subscription)
        self.forget(topic_filter)
        interest = self._effects.interest
        if interest is not None:
            interest.add(subscription.client_id, topic_filter, subscription.qos)
            if replaced is not None:
                interest.remove(replaced.client_id, topic_filter, replaced.qos)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription that was added."""
        if subscription.share_name:
            self._remove_from_share(subscription)
            return
        self._remove(subscription)
        self.forget(subscription.topic_filter)

    def end_session(self, session: Session) -> None:
        """A session has ended and left the table: no route leads to it any more.

        The caller removes its subscriptions from the tree in parts with `remove_ended`, and then calls `end_ended`.
        """
        self.forget_session(session)
        groups = self.groups_of(session)
        if groups:
            self._effects.work += groups + len(session.subscriptions) // SCANNED_PER_WORK_UNIT
            for subscription in list(session.subscriptions.values()):
                if subscription.share_name:
                    session.pop_subscription(subscription.topic_filter)
                    self._remove_from_share(subscription)
        self._ending[session.client_id] = self._ending.get(session.client_id, 0) + 1

    def remove_ended(self, subscription: Subscription) -> None:
        """Remove a non-shared subscription of an ended session."""
        self._remove(subscription)

    def end_ended(self, session: Session) -> None:
        """All subscriptions of an ended session are removed."""
        sessions = self._ending.pop(session.client_id) - 1
        if sessions:
            self._ending[session.client_id] = sessions

    def _leave_out_ended(self, plan: RoutePlan) -> None:
        """Remove the subscriptions of ended sessions from a plan."""
        for client_id in [client_id for client_id in plan.by_client if client_id in self._ending]:
            session = self._sessions.get(client_id)
            kept: list[Subscription] = []
            if session is not None:
                for subscription in plan.by_client[client_id]:
                    if session.subscriptions.get(subscription.topic_filter) is subscription:
                        kept.append(subscription)
            if kept:
                plan.by_client[client_id] = kept
            else:
                del plan.by_client[client_id]

    def _leave_out_denied(self, plan: RoutePlan, topic: bytes) -> None:
        """Remove the subscriptions of clients that may not receive a topic from its plan."""
        permissions = self.permissions
        verdicts: dict[int, bool] = {}
        denied: list[str] = []
        for client_id in plan.by_client:
            session = self._sessions[client_id]
            if session.identity.is_trusted:
                continue
            role = permissions.role_of(session)
            verdict = verdicts.get(role)
            if verdict is None:
                verdict = verdicts[role] = permissions.authorizer.may_receive(role, topic)
            if not verdict:
                denied.append(client_id)
        for client_id in denied:
            del plan.by_client[client_id]
        self._effects.work += FOUND_WORK * len(verdicts)

    def _remove(self, subscription: Subscription) -> None:
        self.subscriptions -= 1
        topic_filter = subscription.topic_filter
        namespace = self.serves(topic_filter) if topic_filter[0] == _DOLLAR else None
        if namespace is None:
            self._tree.remove(topic_filter, subscription)
            if self._effects.interest is not None:
                self._effects.interest.remove(subscription.client_id, topic_filter, subscription.qos)
        else:
            namespace.remove(subscription)

    def groups_of(self, session: Session) -> int:
        """How many shared subscriptions a session has."""
        return self._groups.get(session.client_id, 0)

    def share(self, name: bytes) -> SharedSubscription | None:
        """The shared subscription `$share/group/filter` with this name, while it has members."""
        return self._shares.get(name)

    def target_of(self, target: tuple[int, ...], topic: bytes) -> Sink:
        """What another broker names by numbers: a sink with a name, or a shared subscription that matches the topic,
        best one with members here. If there is none, it is a new one without members, which gives messages back."""
        named = self._named.get(target)
        if named is not None:
            return named
        number = target[0]
        found: SharedSubscription | None = None
        for share in self._shares_by_number.get(number, ()):
            if matches(split_share(share.name)[1], topic) and (found is None or not len(found.members)):
                found = share
        if found is None:
            found = SharedSubscription(b"", ROUND_ROBIN, self._effects, self.permissions, self._shares)
            found.number = number
        return found

    def with_origin(self, delivery: Delivery) -> Delivery:
        """A delivery from a store with its shared subscription as the origin, if that still has members."""
        origin = delivery.origin
        if not isinstance(origin, StoredOrigin):
            return delivery
        share = self._shares.get(origin.name)
        return Delivery(delivery.message, delivery.qos, delivery.retain, delivery.identifiers, share)

    def forget_session(self, session: Session) -> None:
        """The session connected or disconnected: drop the cached routes that hold its outbox."""
        if self._effects.interest is not None and session.client_id in self._groups:
            self._effects.work += len(session.subscriptions) // SCANNED_PER_WORK_UNIT
            for name, subscription in session.subscriptions.items():
                if subscription.share_name:
                    share = self._shares.get(name)
                    if share is not None:
                        share.count(session.client_id)
        if len(session.subscriptions) > COMPARED_PER_ITERATION:
            self._clear()
            return
        compared = 0
        for topic_filter in session.subscriptions:  # no route holds the sessions of a shared one
            if not self.cache:
                break
            self.forget(topic_filter)
            compared += 1
        self._effects.work += compared

    def forget(self, topic_filter: bytes) -> None:
        """Drop the cached routes of the topics that a filter matches, or all routes if that is cheaper."""
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

    def _add_to_share(self, subscription: Subscription) -> None:
        name, topic_filter = subscription.topic_filter, subscription.filter
        namespace = self.serves(name) if topic_filter[0] == _DOLLAR else None
        if namespace is not None:
            namespace.add(self._sessions[subscription.client_id], subscription)
            return
        share = self._shares.get(name)
        if share is None:
            default = self._policies.get("*", ROUND_ROBIN)
            policy = self._policies.get(subscription.share_name.decode(), default)
            share = SharedSubscription(name, policy, self._effects, self.permissions, self._shares)
            self._shares[name] = share
            if self._effects.interest is not None:
                self._tell_of(share)
            self._tree.add(topic_filter, share)
            self.forget(topic_filter)
        session = self._sessions[subscription.client_id]
        share.add(session, subscription)
        if session.traced:
            self._trace_share(share, session, topic_filter)

    def _remove_from_share(self, subscription: Subscription) -> None:
        topic_filter = subscription.filter
        self.shared_subscriptions -= 1
        groups = self._groups.pop(subscription.client_id) - 1
        if groups:
            self._groups[subscription.client_id] = groups
        namespace = self.serves(subscription.topic_filter) if topic_filter[0] == _DOLLAR else None
        if namespace is not None:
            namespace.remove(subscription)
            return
        share = self._shares[subscription.topic_filter]
        share.remove(subscription)
        if share.traced.pop(subscription.client_id, True) is None:
            self.forget(topic_filter)
        if len(share) == 0:
            del self._shares[share.name]
            same = self._shares_by_number.get(share.number)
            if same is not None:
                same.remove(share)
                if not same:
                    del self._shares_by_number[share.number]
            self._tree.remove(topic_filter, share)
            self.forget(topic_filter)

    def _trace_share(self, share: SharedSubscription, session: Session, topic_filter: bytes) -> None:
        """The tracer started or stopped tracing a member."""
        if session.traced:
            share.traced[session.client_id] = None
        else:
            share.traced.pop(session.client_id, None)
        self.forget(topic_filter)

    def _is_traced(self, topic: bytes, route: Route, plan: RoutePlan) -> bool:
        """Whether each message of a topic is traced, from any publisher."""
        tracer = self._effects.tracer
        if tracer is None:
            return False
        traced = plan.traced or tracer.traces_topic(topic)
        for receiver in route.receivers + route.filtered:
            traced = traced or receiver.session.traced
        return traced

    def _remember(self, topic: bytes, route: Route) -> None:
        is_known = topic in self.cache
        size = route.size if is_known else route.size + _topic_size(topic)
        if self._cached_bytes + size > self._max_bytes:
            self._clear()  # dropping all at once is cheaper, over time, than finding the oldest each time
            is_known = False
            size = route.size + _topic_size(topic)
            if size > self._max_bytes:
                return
        self.cache[topic] = route
        self._charge(size)
        if not is_known:
            self._known.add(topic)

    def _clear(self) -> None:
        self.cache.clear()
        self._known.clear()
        self._charge(-self._cached_bytes)

    def _drop(self, topic: bytes) -> None:
        route = self.cache[topic]
        if route is not None:
            self._charge(-route.size)
            self.cache[topic] = None

    def _charge(self, size: int) -> None:
        self._cached_bytes += size
        self._effects.memory.used += size


def _topic_size(topic: bytes) -> int:
    """The memory of a cached topic without its route. With many levels, the index dominates."""
    return _TOPIC_BYTES + len(topic) + _LEVEL_BYTES * topic.count(b"/")
