"""Who gets what is published to a topic; and the cache of that, which must never tell of yesterday."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttlite.core.limits import Limits
from mqttlite.core.routes import Receiver, Route, Routes
from mqttlite.core.session import Session
from mqttlite.core.subscription import Subscription
from mqttlite.core.turn import Turn
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Unsubscribe
from tests.support.core_driver import Client, World, request


def session_of(client_id: str = "c") -> Session:
    return Session(client_id, 0, Turn(), Limits())


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
    assert receiver.for_messages_of(None) is receiver


def test_of_its_own_messages_a_session_gets_what_its_other_subscriptions_ask_for() -> None:
    session = session_of()
    subscriptions = [Subscription("c", b"a", 2, no_local=True, identifier=1), Subscription("c", b"#", 1, identifier=2)]
    own = Receiver(session, subscriptions).for_messages_of(session)
    assert own is not None
    assert (own.qos, own.identifiers) == (1, (2,))


# ── the cache ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_routed_once() -> None:
    routes = Routes({}, 10_000, {})
    assert routes.find(b"a") is routes.find(b"a")


def test_a_bad_topic_name_is_not_routed_and_not_cached() -> None:
    routes = Routes({}, 10_000, {})
    with pytest.raises(TopicNameInvalid):
        routes.find(b"a/+")
    assert routes.cache == {}


def test_the_cache_forgets_all_rather_than_grow_beyond_its_limit() -> None:
    size = Route(b"00", [], [], []).size
    routes = Routes({}, 3 * size, {})
    for number in range(10, 20):
        routes.find(b"%d" % number)
        assert len(routes.cache) <= 3
        assert set(routes._by_first_level) == set(routes.cache)
        assert routes._cached_bytes == size * len(routes.cache)


@pytest.mark.parametrize(("limit", "cached"), [(-1, False), (0, True)])
def test_a_route_is_cached_if_it_fits_the_limit(limit: int, cached: bool) -> None:
    routes = Routes({}, Route(b"a", [], [], []).size + limit, {})
    assert routes.find(b"a").receivers == []
    assert (b"a" in routes.cache) is cached


def test_one_wildcard_compares_some_thousand_topics_and_drops_them_all_where_there_are_more() -> None:
    routes = Routes({}, 10**8, {})
    for number in range(5_000):
        routes.find(b"many/%d" % number)
    routes.find(b"few/1")
    routes.forget(b"few/+/x")
    routes.forget(b"none/+")
    routes.forget(b"many/1/#")
    assert len(routes.cache) == 5_000
    routes.find(b"many/1")
    routes.find(b"many/5000")
    routes.forget(b"many/+/x")
    assert routes.cache == {}
    assert routes._cached_bytes == 0


def test_many_wildcards_one_after_the_other_cost_no_more_than_routing_anew() -> None:
    routes = Routes({}, 10**8, {})
    for number in range(1_000):
        routes.find(b"topic/%d" % number)
    for number in range(4):
        routes.forget(b"topic/+/%d" % number)
    assert len(routes.cache) == 1_000
    routes.forget(b"topic/+/x")
    assert routes.cache == {}
    for _ in range(100):
        routes.find(b"topic/1")
    for number in range(4):
        routes.forget(b"topic/+/%d" % number)
    assert len(routes.cache) == 1


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
        {outbox.number for outbox in route.plain3},
        {outbox.number for outbox in route.plain5},
        {share.name for share in route.shares},
        route.size,
    )


steps = st.lists(
    st.tuples(st.just("connect"), st.integers(0, 2), st.sampled_from([V311, V5]), st.sampled_from([0, 100]))
    | st.tuples(st.sampled_from(["lose", "forget"]), st.integers(0, 2), st.just(0), st.just(0))
    | st.tuples(
        st.sampled_from(["subscribe", "subscribe", "unsubscribe"]),
        st.integers(0, 2),
        st.integers(0, len(FILTERS) - 1),
        st.integers(0, 3),
    ),
    max_size=20,
)
beginning = [("connect", who, version, expiry) for who, version, expiry in [(0, V5, 100), (1, V311, 100), (2, V5, 0)]]


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([3_000, 100_000]))
def test_a_cached_route_always_equals_a_new_one(steps: list[tuple[str, int, int, int]], max_bytes: int) -> None:
    world = World(Limits(max_route_cache_bytes=max_bytes))
    clients: dict[int, Client] = {}
    routes = world.broker._routes
    for step, who, which, how in [*beginning, *steps]:
        for topic in TOPICS:
            routes.find(topic.encode())
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
        for topic, route in routes.cache.items():
            assert plan(route) == plan(routes._make(topic)), topic
        assert routes._cached_bytes == sum(route.size for route in routes.cache.values()) <= max_bytes
        assert sum(len(bucket) for bucket in routes._by_first_level.values()) == len(routes.cache)


def test_who_comes_back_is_on_the_short_way_again() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("a")
    away.lose()
    world.publish("a", "missed")
    assert [receiver.session.client_id for receiver in world.broker._routes.cache[b"a"].others] == ["away"]
    world.connect("away", expiry=100, clean_start=False)
    world.publish("a", "there")
    assert world.broker._routes.cache[b"a"].others == []
