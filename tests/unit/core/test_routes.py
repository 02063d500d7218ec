"""Who gets what is published to a topic; and the cache of that, which must never tell of yesterday."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.effects import Effects
from mqttlite.core.limits import COMPARED_PER_ITERATION, TOPICS_COMPARED, Limits
from mqttlite.core.route.routes import (
    _SEARCH_COST,
    _TOPIC_BYTES,
    Receiver,
    Route,
    Routes,
    _topic_size,
)
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.source import THE_BROKER
from mqttlite.topics.names import MAX_LEVELS
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Unsubscribe
from tests.support.core_driver import Client, World, request
from tests.support.examples import examples
from tests.support.rules import permissions


def session_of(client_id: str = "c") -> Session:
    return Session(client_id, 0, Effects(), Limits())


@given(st.integers(0, 2), st.booleans(), st.booleans(), st.sampled_from([0, 1, 7, 268_435_455]))
def test_a_subscription_is_as_it_was_made(qos: int, no_local: bool, retain_as_published: bool, identifier: int) -> None:
    made = Subscription("c", b"a", qos, no_local, retain_as_published, identifier)
    told = (made.qos, made.no_local, made.retain_as_published, made.identifier)
    assert told == (qos, no_local, retain_as_published, identifier)


# ── overlapping subscriptions ──────────────────────────────────────────────────────────────────────────────────────


def test_overlapping_subscriptions_make_one_receiver_with_the_highest_qos_and_all_identifiers() -> None:
    subscriptions = [
        Subscription("c", b"a/#", 1, identifier=7),
        Subscription("c", b"a/+", 2, retain_as_published=True),
        Subscription("c", b"a/b", 0, identifier=9),
    ]
    receiver = Receiver(session_of(), subscriptions)
    assert receiver.qos == 2
    assert receiver.identifiers == (7, 9)
    assert receiver.retain_as_published
    assert not receiver.has_no_local


def test_no_local_keeps_only_the_sessions_own_messages_from_it() -> None:
    session = session_of()
    receiver = Receiver(session, [Subscription("c", b"a", 2, no_local=True)])
    assert receiver.for_messages_of(session) is None
    assert receiver.for_messages_of(session_of("other")) is receiver
    assert receiver.for_messages_of(THE_BROKER) is receiver


def test_of_its_own_messages_a_session_gets_what_its_other_subscriptions_ask_for() -> None:
    session = session_of()
    subscriptions = [Subscription("c", b"a", 2, no_local=True, identifier=1), Subscription("c", b"#", 1, identifier=2)]
    own = Receiver(session, subscriptions).for_messages_of(session)
    assert own is not None
    assert (own.qos, own.identifiers) == (1, (2,))


# ── the cache ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_routed_once() -> None:
    routes = Routes({}, 10_000, {}, permissions(), Effects())
    assert routes.find(b"a") is routes.find(b"a")


def test_a_bad_topic_name_is_not_routed_and_not_cached() -> None:
    routes = Routes({}, 10_000, {}, permissions(), Effects())
    with pytest.raises(TopicNameInvalid):
        routes.find(b"a/+")
    assert routes.cache == {}


def taken(routes: Routes) -> int:
    """What the cache takes, counted anew."""
    return sum(_topic_size(topic) + (0 if route is None else route.size) for topic, route in routes.cache.items())


@pytest.mark.long
@pytest.mark.parametrize("levels", [1, 3, 20, MAX_LEVELS])
def test_the_stated_memory_of_topics_is_about_what_they_take(levels: int) -> None:
    """However many levels they have, and none of them in common."""
    routes = Routes({}, 10**8, {}, permissions(), Effects())
    tracemalloc.start()
    for number in range(500):
        routes.find(b"/".join(b"%d" % (number * MAX_LEVELS + level) for level in range(levels)))
    said, taken_up = routes._cached_bytes, tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.6 * said < taken_up < 1.1 * said


def test_a_route_takes_more_with_each_subscription_identifier() -> None:
    session = session_of()
    sizes = []
    for no_local in (False, True):
        for identifiers in (0, 1_000):
            filters = [Subscription("c", b"#", 1, no_local)]
            filters += [Subscription("c", b"a/+", 1, identifier=1_000 + number) for number in range(identifiers)]
            filters += [Subscription("c", b"a", 1)]
            sizes.append(Route([Receiver(session, filters)], []).size)
    assert sizes == [300, 40_300, 450, 80_450]


def test_the_cache_forgets_all_rather_than_grow_beyond_its_limit() -> None:
    size = _TOPIC_BYTES + 2 + Route([], []).size
    routes = Routes({}, 3 * size, {}, permissions(), Effects())
    for number in range(10, 20):
        routes.find(b"%d" % number)
        assert len(routes.cache) <= 3
        assert routes._cached_bytes == size * len(routes.cache)


@pytest.mark.parametrize(("limit", "cached"), [(-1, False), (0, True)])
def test_a_route_is_cached_if_it_fits_the_limit(limit: int, cached: bool) -> None:
    routes = Routes({}, _TOPIC_BYTES + 1 + Route([], []).size + limit, {}, permissions(), Effects())
    assert routes.find(b"a").receivers == []
    assert (routes.cached(b"a") is not None) is cached


def filled(*topics: bytes, most: int = 10**8) -> Routes:
    routes = Routes({}, most, {}, permissions(), Effects())
    for topic in topics:
        routes.find(topic)
    return routes


def still_cached(routes: Routes) -> list[bytes]:
    return [topic for topic in routes.cache if routes.cached(topic) is not None]


MANY = [b"many/%d/x" % number for number in range(2 * TOPICS_COMPARED)]


@pytest.mark.long
def test_a_changed_filter_drops_what_it_matches_and_nothing_else() -> None:
    routes = filled(*MANY, b"few/1/x", b"many/5/y", b"many")
    for untouched in (b"few/+/y", b"none/+", b"many/1/y/#", b"+/+/z", b"+/+/+/+", b"many/none"):
        routes.forget(untouched)
    assert len(still_cached(routes)) == len(MANY) + 3
    routes.forget(b"+/5/+")
    routes.forget(b"few/#")
    assert [topic for topic in routes.cache if topic not in still_cached(routes)] == [MANY[5], b"few/1/x", b"many/5/y"]
    assert routes._cached_bytes == taken(routes)
    routes.find(MANY[5])
    assert routes._cached_bytes == taken(routes)
    assert len(still_cached(routes)) == len(MANY) + 1


@pytest.mark.parametrize(("topics", "dropped"), [(TOPICS_COMPARED, False), (TOPICS_COMPARED + 1, True)])
@pytest.mark.parametrize("topic_filter", [b"many/+/x", b"+/+/x/#", b"many/#"])
def test_a_filter_that_may_match_too_many_topics_drops_all_routes(
    topic_filter: bytes, topics: int, dropped: bool
) -> None:
    routes = filled(*(b"many/%d/x" % number for number in range(topics)), b"other")
    routes.forget(topic_filter)
    assert (routes.cache == {}) is dropped
    assert (routes.cached(b"other") is None) is dropped
    assert routes._cached_bytes == taken(routes)
    routes.find(b"other")
    routes.forget(topic_filter)  # which may not match too many topics any more, or still not
    assert routes.cached(b"other") is not None
    assert routes._cached_bytes == taken(routes)


SOME = TOPICS_COMPARED // 2
WITHIN = COMPARED_PER_ITERATION // (SOME + _SEARCH_COST) + 1
"""How many filters that may match some topics are compared with them in one pass."""

FILTERS_OF_SOME = ["some/+/" + "/".join(levels) for levels in itertools.product("x+", repeat=5)][: WITHIN + 2]


def among_some() -> tuple[World, Routes, Client]:
    world = World()
    world.connect("other").subscribe("other")
    for number in range(SOME):
        world.broker._routes.find(b"some/%d/x/x/x/x/x" % number)
    return world, world.broker._routes, world.connect("changer", expiry=100)


@pytest.mark.parametrize(("filters", "dropped"), [(WITHIN, False), (WITHIN + 1, True)])
def test_a_pass_compares_only_so_much_however_many_filters_change_in_it(filters: int, dropped: bool) -> None:
    """Else a SUBSCRIBE of a hundred kilobytes would hold the broker up for seconds."""
    world, routes, changer = among_some()
    route = routes.find(b"other")
    changer.subscribe(*FILTERS_OF_SOME[:filters])
    again = routes.find(b"other")
    assert (again is not route) is dropped
    assert [receiver.session.client_id for receiver in again.receivers] == ["other"]
    changer.subscribe("+/y")  # still in the same pass
    assert routes.cached(b"other") is None
    again = routes.find(b"other")
    world.advance(1)
    changer.subscribe("+/y")
    assert routes.cached(b"other") is again


@pytest.mark.long
def test_a_session_with_very_many_filters_drops_all_routes_when_it_comes_back() -> None:
    world, routes, changer = among_some()
    changer.subscribe(*FILTERS_OF_SOME)
    changer.lose()
    topics = [b"some/%d/x/x/x/x/x" % number for number in range(SOME)]
    world.advance(1)
    for topic in [*topics, b"other"]:
        routes.find(topic)
    changer = world.connect("changer", clean_start=False, expiry=100)
    assert routes.cache == {}
    for topic in topics:
        (receiver,) = routes.find(topic).receivers
        assert receiver.session.outbox is changer.connection.outbox
    changer.disconnect()
    world.advance(200)
    assert world.broker.subscriptions == 1
    assert all(routes.find(topic).receivers == [] for topic in topics)


@pytest.mark.reaches
@pytest.mark.long
@pytest.mark.parametrize("more", [0, 1])
def test_only_a_session_with_more_filters_than_are_compared_drops_all_routes_when_it_goes(more: int) -> None:
    world, routes, changer = among_some()
    changer.subscribe(*(f"own/{number}" for number in range(COMPARED_PER_ITERATION + more)))
    world.advance(1)
    routes.find(b"other")
    changer.lose()
    assert (routes.cached(b"other") is None) is bool(more)


# ── the model ──────────────────────────────────────────────────────────────────────────────────────────────────────

TOPICS = ["a", "a/b", "a/c", "b", "b/c", "$a/b"]
FILTERS = [*TOPICS, "#", "+", "a/#", "a/+", "+/b", "+/+", "$a/#", "$share/g/a/+", "$share/g/#", "$share/h/a"]


def plan(route: Route) -> tuple[object, ...]:
    """All that a route says, in a form that can be compared."""

    def told(receiver: Receiver | None) -> object:
        if receiver is None:
            return None
        fields = (receiver.qos, receiver.retain_as_published, receiver.has_no_local, receiver.identifiers)
        return (receiver.session.client_id, id(receiver.session), fields, told(receiver.own))

    return (
        {told(receiver) for receiver in route.receivers},
        {told(receiver) for receiver in route.others},
        {outbox.number for outbox in route.direct3},
        {outbox.number for outbox in route.direct5},
        {share.name for share in route.sinks},
        route.size,
    )


steps = st.lists(
    st.tuples(
        st.tuples(st.just("connect"), st.integers(0, 2), st.sampled_from([V311, V5]), st.sampled_from([0, 100]))
        | st.tuples(st.sampled_from(["lose", "forget"]), st.integers(0, 2), st.just(0), st.just(0))
        | st.tuples(
            st.sampled_from(["subscribe", "subscribe", "unsubscribe"]),
            st.integers(0, 2),
            st.integers(0, len(FILTERS) - 1),
            st.integers(0, 3),
        ),
        st.sets(st.sampled_from(TOPICS)),
    ),
    max_size=20,
)
beginning = [
    (("connect", who, version, expiry), set(TOPICS))
    for who, version, expiry in [(0, V5, 100), (1, V311, 100), (2, V5, 0)]
]


@pytest.mark.long
@examples(80)
@given(steps, st.sampled_from([1_000, 2_500, 10**6]), st.booleans())
def test_a_cached_route_always_equals_a_new_one(
    steps: list[tuple[tuple[str, int, int, int], set[str]]], max_bytes: int, among_many: bool
) -> None:
    """Whether few topics are cached, or so many that filters with few literal levels are not held against all."""
    world = World(Limits(max_route_cache_bytes=max_bytes))
    clients: dict[int, Client] = {}
    routes = world.broker._routes
    if among_many:
        for topic in [*MANY, *(b"a/%d" % number for number in range(TOPICS_COMPARED))]:
            routes.find(topic)
    for (step, who, which, how), asked in [*beginning, *steps]:
        for topic in asked:
            assert plan(routes.find(topic.encode())) == plan(routes.make(topic.encode()))
        client = clients.get(who)
        if step == "connect":
            options = {"maximum_packet_size": 1_000} if how and who == 1 else {}
            clients[who] = world.connect(str(who), which, clean_start=not how, expiry=how, **options)
        elif client is None or client.closed:
            continue
        elif step == "lose":
            client.lose()
        elif step == "forget":
            client.disconnect()
            world.advance(200)
        elif step == "unsubscribe":
            client.send(Unsubscribe(1, (FILTERS[which].encode(),)))
        else:
            no_local = how == 2 and client.version == V5 and not FILTERS[which].startswith("$share")
            identifier = 5 if how == 3 and client.version == V5 else 0
            client.subscribe(request(FILTERS[which], how % 3, no_local, False, 0), identifier=identifier)
        for topic in TOPICS:
            route = routes.cached(topic.encode())
            assert route is None or plan(route) == plan(routes.make(topic.encode())), topic
        assert routes._cached_bytes == taken(routes) <= max_bytes


def test_a_client_that_comes_back_is_on_the_short_path_again() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("a")
    away.lose()
    world.publish("a", "missed")
    assert [receiver.session.client_id for receiver in world.broker._routes.cache[b"a"].others] == ["away"]
    world.connect("away", expiry=100, clean_start=False)
    world.publish("a", "there")
    assert world.broker._routes.cache[b"a"].others == []


def test_receivers_of_each_kind_stand_together_however_many_they_are() -> None:
    world = World()
    for number in range(3):
        aliased = world.connect(f"aliased-{number}")
        aliased.connection.outbox.topic_alias_maximum = 5  # as its CONNECT would have said
        aliased.subscribe("a")
        world.connect(f"direct5-{number}").subscribe("a")
        world.connect(f"direct3-{number}", V311).subscribe("a")
        world.connect(f"other-{number}").subscribe("a", identifier=7)
    route = world.broker._routes.find(b"a")
    assert [len(each) for each in (route.others, route.direct5, route.direct3)] == [6, 3, 3]
    assert {receiver.session.client_id for receiver in route.others} == {
        *(f"{kind}-{number}" for kind in ("aliased", "other") for number in range(3))
    }
    nobody = world.broker._routes.find(b"nobody")
    assert [*nobody.direct5, *nobody.direct3, *nobody.others, *nobody.sinks] == []
