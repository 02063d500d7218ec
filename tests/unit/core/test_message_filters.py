"""Filters on subscriptions: who gets a message, on every way that it takes, and what is counted where nobody does."""

import itertools
import json

import pytest

from mqttlite.core.changes import SaveSession, SaveSubscription
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import FILTERED_RECEIVERS, ITERATION_WORK, MAX_COMBINATIONS, RETAINED_LOOKED_INTO, Limits
from mqttlite.core.message import Message
from mqttlite.core.message_filter import MessageFilter, StoredFilter
from mqttlite.core.reasons import FILTER_MISMATCH
from mqttlite.core.route.subscription import FilteredSubscription
from mqttlite.filters import Filters
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Subscribe, Unsuback, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import START, Client, World, publishes, request
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules

US = 'attributes.region = "us"'
EU = 'attributes.region = "eu"'
LARGE = "payload > 2"
SUFFIXES = Capabilities(filter_suffix=True)


def region(name: str, topic: str = "t", payload: str = "x", qos: int = 0, packet_id: int = 0) -> Publish:
    properties = Properties(user_properties=[("region", name)])
    return Publish(topic.encode(), payload.encode(), qos, packet_id=packet_id, properties=properties)


def filtered_world(limits: Limits | None = None) -> World:
    return World(limits, filters=Filters())


def send_numbers(publisher: Client, numbers: range, topic: str = "t", qos: int = 0) -> None:
    packets = [Publish(topic.encode(), b"%d" % number, qos, packet_id=qos and number + 1) for number in numbers]
    publisher.send(*packets)


# ── plain subscriptions ────────────────────────────────────────────────────────────────────────────────────────────


def test_of_messages_that_come_together_the_publisher_is_told_which_no_filter_lets_pass() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    client.subscribe("t", qos=1, where=LARGE)
    send_numbers(publisher, range(1, 5), qos=1)
    assert client.payloads() == ["3", "4"]
    assert [each.reason_code for each in publisher.received() if isinstance(each, Ack)] == [0x10, 0x10, 0, 0]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_subscription_gets_the_messages_that_pass_its_filter(qos: int, version: int) -> None:
    world = filtered_world()
    us, eu, everything, old, publisher = (
        world.connect("us"),
        world.connect("eu"),
        world.connect("all"),
        world.connect("old", version),
        world.connect("p"),
    )
    us.subscribe("t", qos=2, where=US)
    eu.subscribe("#", qos=1, where=EU)
    everything.subscribe("t", where="")
    old.subscribe("+", qos=qos)
    publisher.send(
        region("us", payload="1", qos=qos, packet_id=qos), region("eu", payload="2", qos=qos, packet_id=qos * 2)
    )
    assert [us.payloads(), eu.payloads(), everything.payloads(), old.payloads()] == [
        ["1"],
        ["2"],
        ["1", "2"],
        ["1", "2"],
    ]
    assert world.broker.router.drops.filtered == 2
    assert world.broker.router.drops.by_reason == {}
    world.end()


@pytest.mark.parametrize("qos", [0, 1])
def test_of_a_run_of_messages_those_pass_that_the_filter_lets_pass(qos: int) -> None:
    world = filtered_world()
    reader, aliased, publisher = world.connect("r"), world.open(), world.connect("p", V311)
    aliased.send_bytes(b"")
    aliased.connect("a")
    for client in (reader, aliased):
        client.subscribe("t", qos=1, where=LARGE)
    send_numbers(publisher, range(6), qos=qos)
    assert reader.payloads() == aliased.payloads() == ["3", "4", "5"]
    assert world.broker.router.drops.filtered == 6
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 3}


def test_a_run_that_passes_as_a_whole_is_one_batch() -> None:
    world = filtered_world()
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", where=LARGE)
    send_numbers(publisher, range(3, 9))
    send_numbers(publisher, range(2))
    assert reader.payloads() == ["3", "4", "5", "6", "7", "8"]
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 2}


def test_a_message_that_nobody_gets_for_their_filters_is_counted_apart() -> None:
    world = filtered_world()
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", "$SYS/broker/x", qos=1, where=US)
    publisher.send(region("eu", qos=1, packet_id=7))
    [answer] = publisher.received()
    assert isinstance(answer, Ack)
    assert (answer.packet_type, answer.reason_code) == (PUBACK, 0x10)
    publisher.send(region("eu"), region("eu"))
    world.publish("$SYS/broker/x", "1")
    assert reader.payloads() == []
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 3}


@pytest.mark.long
def test_sessions_with_the_same_filter_ask_it_once_for_so_many() -> None:
    asked: list[bytes] = []

    class Counting:
        expression = "counting"
        reads_payload = False

        def matches(self, message: Message) -> bool:
            asked.append(message.payload)
            return True

    class OnlyCounting:
        def __init__(self) -> None:
            self.counting = Counting()

        def compile(self, expression: str, mount_point: bytes) -> MessageFilter | str:
            return self.counting

    world = World(filters=OnlyCounting())
    readers = [world.connect(f"r{number}") for number in range(FILTERED_RECEIVERS + 1)]
    for reader in readers:
        reader.subscribe("t", where="x")
    world.publish("t", "1")
    assert [reader.payloads() for reader in readers] == [["1"]] * len(readers)
    assert asked == [b"1", b"1"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_does_not_get_its_own_messages_if_it_says_so(qos: int) -> None:
    world = filtered_world()
    client, other = world.connect("c"), world.connect("o")
    client.subscribe(request("t", qos, no_local=True), where=US)
    client.subscribe(request("u", qos, no_local=True), request("u/#", qos, no_local=True), where=US)
    for topic in ("t", "u"):
        client.send(region("us", topic, qos=qos, packet_id=qos), region("eu", topic, qos=qos, packet_id=qos * 2))
        other.send(region("us", topic, qos=qos, packet_id=qos))
    assert client.messages() == [("t", "x"), ("u", "x")]


def test_a_filtered_copy_has_the_retain_flag_and_identifier_that_were_asked_for() -> None:
    world = filtered_world()
    reader = world.connect("r")
    reader.subscribe(request("t", 1, retain_as_published=True), where=LARGE, identifier=5)
    world.publish("t", "3", 1, retain=True)
    [arrived] = publishes(reader.received())
    assert (arrived.retain, arrived.qos, arrived.properties.subscription_identifiers) == (True, 1, [5])


# ── overlapping subscriptions of one session ───────────────────────────────────────────────────────────────────────


def overlapping(world: World) -> Client:
    client = world.connect("c")
    client.subscribe("t", qos=0, identifier=1)
    client.subscribe("t/#", qos=1, identifier=2, where=US)
    client.subscribe("+", qos=2, identifier=3, where=LARGE)
    return client


@pytest.mark.parametrize(
    ("name", "payload", "qos", "identifiers"),
    [("eu", "1", 0, [1]), ("us", "1", 1, [1, 2]), ("eu", "3", 2, [1, 3]), ("us", "3", 2, [1, 2, 3])],
)
def test_one_copy_is_what_the_matching_subscriptions_ask_for(
    name: str, payload: str, qos: int, identifiers: list[int]
) -> None:
    world = filtered_world()
    client, publisher = overlapping(world), world.connect("p")
    for published in (2, 0):
        publisher.send(region(name, payload=payload, qos=published, packet_id=published))
        [arrived] = publishes(client.received())
        assert arrived.qos == min(qos, published)
        assert sorted(arrived.properties.subscription_identifiers) == identifiers


def test_overlapping_filters_none_of_which_matches_keep_a_message_out() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    client.subscribe("t", qos=1, where=US)
    client.subscribe("#", qos=1, where=LARGE)
    client.subscribe("u", where=US)
    client.subscribe("+", where=EU)
    send_numbers(publisher, range(5))
    publisher.send(region("us"), region("eu"))
    assert client.payloads() == ["3", "4", "x", "x"]
    publisher.send(region("cn", "u"), region("cn", "u"))
    publisher.send(region("eu", "u", "1"), region("eu", "u", "2"))
    assert client.payloads() == ["1", "2"]
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 5}


def test_a_no_local_subscription_that_alone_matches_gives_a_client_nothing_of_its_own() -> None:
    world = filtered_world()
    client = world.connect("c")
    client.subscribe(request("t", no_local=True), where=US)
    client.subscribe("#", where=EU)
    client.send(region("us"), region("us"))
    assert client.payloads() == []
    client.send(region("eu"))
    assert client.payloads() == ["x"]


def test_messages_of_a_run_that_pass_different_subscriptions_arrive_once_and_in_order() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    client.subscribe("t", where="payload > 6", identifier=1)
    client.subscribe("+", where="payload < 4", identifier=2)
    client.subscribe("#", where="payload > 7", identifier=3)
    send_numbers(publisher, range(10))
    got = [(each.payload, sorted(each.properties.subscription_identifiers)) for each in publishes(client.received())]
    assert got == [(b"0", [2]), (b"1", [2]), (b"2", [2]), (b"3", [2]), (b"7", [1]), (b"8", [1, 3]), (b"9", [1, 3])]
    assert world.broker.router.drops.filtered == 3


def test_a_run_that_two_clients_share_has_nobody_without_a_receiver() -> None:
    world = filtered_world()
    low, high, publisher = world.connect("low"), world.connect("high"), world.connect("p")
    low.subscribe("t", where="payload < 5")
    high.subscribe("t", where="payload >= 5")
    send_numbers(publisher, range(10))
    assert low.payloads() + high.payloads() == [str(number) for number in range(10)]
    assert world.broker.router.drops.by_reason == {}


def test_combinations_that_are_not_kept_work_all_the_same() -> None:
    world = filtered_world()
    client = world.connect("c")
    names = ["t/t", "t/+", "+/t", "+/+", "t/#", "#", "+/#"]
    for number, name in enumerate(names):
        client.subscribe(name, where=f'attributes.a{number} = "1"', identifier=number + 1)
    combinations = [chosen for size in range(1, 8) for chosen in itertools.combinations(range(7), size)]
    assert len(combinations) > MAX_COMBINATIONS
    for chosen in combinations:
        properties = Properties(user_properties=[(f"a{number}", "1") for number in chosen])
        world.broker.publish(b"t/t", b"x", 0, False, world.now, properties)
    world.settle()
    got = [sorted(each.properties.subscription_identifiers) for each in publishes(client.received())]
    assert got == [[number + 1 for number in chosen] for chosen in combinations]


# ── SUBSCRIBE ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_filter_holds_for_all_topic_filters_of_the_packet() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    assert client.subscribe("a", "b", qos=1, where=US) == b"\1\1"
    publisher.send(region("us", "a"), region("us", "b"), region("eu", "a"), region("eu", "b"))
    assert client.messages() == [("a", "x"), ("b", "x")]


def test_a_wrong_filter_is_refused_with_its_place_and_a_reason() -> None:
    world = filtered_world()
    client = world.connect("c")
    answer = client.suback("a", "b", where='attributes.region == "us"')
    assert answer.reason_codes == b"\x8f\x8f"
    assert answer.properties.reason_string is not None
    assert answer.properties.reason_string.startswith("filter: position 20: found =,")
    assert world.session("c").subscriptions == {}


def test_a_filter_that_comes_twice_is_refused() -> None:
    world = filtered_world()
    client = world.connect("c")
    properties = Properties(user_properties=[("filter", US), ("filter", US)])
    client.send(Subscribe(1, (request("t"),), properties))
    [answer] = client.received()
    assert answer.reason_codes == b"\x8f"  # type: ignore[union-attr]
    assert answer.properties.reason_string == "the user property filter comes 2 times"  # type: ignore[union-attr]


def test_a_broker_that_has_no_filters_refuses_them() -> None:
    client = World().connect("c")
    client.send(Subscribe(7, (request("t"),), Properties(user_properties=[("a", "b")])))
    client.received()
    answer = client.suback("t", where=US)
    assert (answer.reason_codes, answer.properties.reason_string) == (b"\x8f", "this broker has no filters")


def test_subscribing_again_replaces_the_filter() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    for where in (US, EU, None):
        client.subscribe("t", where=where)
        publisher.send(region("us", payload="us"), region("eu", payload="eu"))
    assert client.payloads() == ["us", "eu", "us", "eu"]
    assert world.session("c").filters == 0
    client.send(Unsubscribe(1, (b"t",)))
    world.end()


def test_filters_of_a_session_have_a_limit() -> None:
    world = filtered_world(Limits(max_filtered_subscriptions=2))
    client = world.connect("c")
    assert client.subscribe("a", "b", "c", where=US) == b"\0\0\x97"
    assert client.subscribe("a", where=EU) == b"\0"
    assert client.subscribe("c") == b"\0"
    assert client.subscribe("c", where=US) == b"\x97"
    client.send(Unsubscribe(9, (b"a",)))
    client.received()
    assert client.subscribe("c", where=US) == b"\0"
    client.disconnect()
    world.end()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_filter_may_stand_behind_the_topic_filter_where_the_listener_allows_it(version: int) -> None:
    world = filtered_world()
    client, publisher = world.open(version, capabilities=SUFFIXES), world.connect("p")
    client.connect("c")
    assert client.subscribe(f"t/#?{LARGE}", "u?", "v", f"w/+/?{LARGE}") == b"\0\0\0\0"
    assert list(world.session("c").subscriptions) == [b"t/#", b"u", b"v", b"w/+"]
    send_numbers(publisher, range(5), "t/a")
    send_numbers(publisher, range(2), "u")
    assert client.messages() == [("t/a", "3"), ("t/a", "4"), ("u", "0"), ("u", "1")]
    client.send(Unsubscribe(3, (f"t/#?{LARGE}".encode(), b"v")))
    assert list(world.session("c").subscriptions) == [b"u", b"w/+"]
    assert [isinstance(packet, Unsuback) for packet in client.received()] == [True]


@pytest.mark.parametrize("has_suffix", [False, True])
def test_below_a_mount_point_a_filter_means_the_topics_behind_it(has_suffix: bool) -> None:
    world = filtered_world()
    client = world.open(capabilities=SUFFIXES, mount_point=b"tenant/")
    client.connect("c", expiry=1000, clean_start=False)
    where = "hasPrefix(topic, 'a/') OR topic = 'b'"
    if has_suffix:
        client.subscribe(f"#?{where}")
    else:
        client.subscribe("#", where=where)
    client.subscribe("$SYS/#", where="topic: '$SYS/x'")
    for topic in ("tenant/a/1", "tenant/b", "tenant/c", "a/1", "$SYS/x", "$SYS/y"):
        world.publish(topic, "x")
    assert [topic for topic, _payload in client.messages()] == ["a/1", "b", "$SYS/x"]
    client.lose()
    again = world.restart()
    back = again.open(capabilities=SUFFIXES, mount_point=b"tenant/")
    back.connect("c", expiry=1000, clean_start=False)
    for topic in ("tenant/a/1", "tenant/c"):
        again.publish(topic, "x")
    assert [topic for topic, _payload in back.messages()] == ["a/1"]


def test_elsewhere_the_sign_is_a_part_of_the_topic() -> None:
    world = filtered_world()
    client = world.connect("c")
    client.subscribe("what?", where=US)
    assert list(world.session("c").subscriptions) == [b"what?"]


@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, 0x8F)])
def test_a_wrong_filter_behind_a_topic_filter_is_refused(version: int, code: int) -> None:
    world = filtered_world()
    client = world.open(version, capabilities=SUFFIXES)
    client.connect("c")
    assert client.subscribe("a?nonsense", "b") == bytes([code, 0])
    assert list(world.session("c").subscriptions) == [b"b"]


def test_a_filter_in_both_places_is_refused() -> None:
    client = filtered_world().open(capabilities=SUFFIXES)
    client.connect("c")
    answer = client.suback("a?qos=1", "b", where=US)
    assert answer.reason_codes == b"\x8f\0"
    assert answer.properties.reason_string == "a filter is behind ? or in the user property filter, and not in both"


def test_the_rules_are_asked_about_the_topic_filter_alone() -> None:
    class Closed(OpenRules):
        def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
            return topic_filter != b"secret"

    world = filtered_world()
    world.broker.authorize(built_in_rules(authorizer=Closed()))
    client = world.open(capabilities=SUFFIXES)
    client.connect("c")
    assert client.subscribe("secret?qos=1", "t?qos=0", "secret?nonsense") == b"\x87\0\x87"


@pytest.mark.parametrize("has_suffixes", [False, True])
def test_a_long_packet_has_filters_too(has_suffixes: bool) -> None:
    world = filtered_world()
    client, publisher = world.open(capabilities=Capabilities(filter_suffix=has_suffixes)), world.connect("p")
    client.connect("c")
    names = [f"topic/number/{number}" for number in range(200)]
    written = [f"{name}?{US}" for name in names] if has_suffixes else names
    codes = client.subscribe(*written, where=None if has_suffixes else US)
    assert codes == bytes(200)
    publisher.send(region("us", names[7]), region("eu", names[7]))
    assert client.messages() == [(names[7], "x")]
    client.send(Unsubscribe(5, tuple([name.encode() for name in written])))
    assert world.session("c").subscriptions == {}


# ── retained messages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_retained_messages_pass_the_filter_too() -> None:
    world = filtered_world()
    for number in range(5):
        world.publish(
            f"t/{number}", str(number), retain=True, user_properties=[("region", "us" if number % 2 else "eu")]
        )
    client = world.connect("c")
    client.subscribe("t/+", where=LARGE)
    assert client.payloads() == ["3", "4"]
    client.subscribe("t/+", where=US)
    assert client.payloads() == ["1", "3"]
    client.subscribe("t/+")
    assert client.payloads() == ["0", "1", "2", "3", "4"]


def test_many_retained_messages_are_looked_into_by_and_by() -> None:
    world = filtered_world()
    count = 50 * RETAINED_LOOKED_INTO
    for number in range(count):
        world.publish(f"t/{number}", json.dumps({"n": number, "x": "x" * 10_000}), retain=True)
    client = world.connect("c")
    client.subscribe("t/+", where=f"payload.n >= {count - 3}")
    assert len(client.payloads()) == 3


# ── kept sessions ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_kept_session_keeps_its_filters() -> None:
    world = filtered_world()
    client = world.connect("c", expiry=1000, clean_start=False)
    client.subscribe("t", qos=1, where=LARGE)
    client.lose()
    world.publish("t", "1", 1)
    world.publish("t", "3", 1)
    again = world.restart()
    again.publish("t", "2", 1)
    again.publish("t", "4", 1)
    back = again.connect("c", expiry=1000, clean_start=False)
    assert back.payloads() == ["3", "4"]
    assert again.session("c").filters == 1


@pytest.mark.parametrize(("expression", "payloads"), [(LARGE, ["3"]), ("of a later version", ["1", "3"])])
def test_a_filter_from_a_store_is_made_again_or_lets_everything_pass(expression: str, payloads: list[str]) -> None:
    store = MemoryStore()
    stored = FilteredSubscription("c", b"t", 1, False, False, 0, StoredFilter(expression))
    store.commit([SaveSession("c", NEVER_EXPIRES, 0.0), SaveSubscription("c", stored)])
    world = World(store=store, filters=Filters())
    world.publish("t", "1", 1)
    world.publish("t", "3", 1)
    client = world.connect("c", expiry=NEVER_EXPIRES, clean_start=False)
    assert client.payloads() == payloads


# ── shared subscriptions ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["round_robin", "least_inflight", "hash_topic", "hash_key"])
@pytest.mark.parametrize("qos", [0, 1])
def test_each_member_gets_messages_that_pass_its_filter(policy: str, qos: int) -> None:
    world = World(share_policies={"*": policy}, filters=Filters())
    members = {name: world.connect(name) for name in ("us", "eu", "us2")}
    for name, where in (("us", US), ("eu", EU), ("us2", US)):
        members[name].subscribe("$share/g/t", qos=1, where=where)
    publisher = world.connect("p")
    for number in range(4):
        publisher.send(region("us", qos=qos, packet_id=qos), region("eu", payload="e", qos=qos, packet_id=2 * qos))
        publisher.send(region("cn", payload=str(number), qos=qos, packet_id=3 * qos))
    got = {name: member.payloads() for name, member in members.items()}
    assert got["eu"] == ["e"] * 4
    assert sorted(got["us"] + got["us2"]) == ["x"] * 4
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 4}
    assert world.broker.router.drops.filtered == 4


def test_a_run_of_messages_to_a_group_is_looked_at_one_by_one() -> None:
    world = filtered_world()
    member, other, publisher = world.connect("m"), world.connect("o"), world.connect("p")
    member.subscribe("$share/g/t", where=LARGE)
    other.subscribe("$share/g/u")
    send_numbers(publisher, range(6))
    assert member.payloads() == ["3", "4", "5"]
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 3}
    send_numbers(publisher, range(6), "u")
    assert len(other.payloads()) == 6


def test_a_member_without_filter_gets_what_the_others_do_not() -> None:
    world = filtered_world()
    us, everything = world.connect("us"), world.connect("all")
    us.subscribe("$share/g/t", where=US)
    everything.subscribe("$share/g/t")
    for _ in range(4):
        world.publish("t", "x")
    assert (us.payloads(), everything.payloads()) == ([], ["x"] * 4)
    us.subscribe("$share/g/t")
    for _ in range(4):
        world.publish("t", "x")
    assert (us.payloads(), everything.payloads()) == (["x"] * 2, ["x"] * 2)


def test_a_message_goes_to_another_member_only_if_it_passes_its_filter() -> None:
    world = filtered_world()
    first, second, third = [world.connect(name, auto_ack=False) for name in "abc"]
    first.subscribe("$share/g/t", qos=1, where=US)
    second.subscribe("$share/g/t", qos=1, where=EU)
    world.publish("t", "1", 1, user_properties=[("region", "us")])
    assert first.payloads() == ["1"]
    third.subscribe("$share/g/t", qos=1, where=US)
    first.lose()
    assert (second.payloads(), third.payloads()) == ([], ["1"])


def test_a_message_of_a_member_that_is_gone_goes_to_one_that_subscribed_with_qos_0() -> None:
    world = World()
    first, second = (world.connect(name, auto_ack=False) for name in "ab")
    first.subscribe("$share/g/t", qos=1)
    world.publish("t", "1", 1)
    assert first.payloads() == ["1"]
    second.subscribe("$share/g/t", qos=0)
    first.lose()
    assert [(each.payload, each.qos) for each in publishes(second.received())] == [(b"1", 0)]


def test_a_full_member_hands_on_to_one_whose_filter_matches() -> None:
    world = filtered_world(Limits(max_queued_messages=1))
    members = [world.connect(name, auto_ack=False, receive_maximum=1) for name in "abc"]
    for member, where in zip(members, (US, EU, US), strict=True):
        member.subscribe("$share/g/t", qos=1, where=where)
    for _ in range(4):
        world.publish("t", "x", 1, user_properties=[("region", "us")])
    assert [world.session(name).queued + len(world.session(name).inflight) for name in "abc"] == [2, 0, 2]
    assert world.publish("t", "x", 1, user_properties=[("region", "us")]) == 0x97


class Readers(OpenRules):
    """Only some may receive what is private."""

    def __init__(self, readers: str = "") -> None:
        super().__init__()
        self._readers = readers

    def is_readable(self, topic: bytes) -> bool:
        return not topic.startswith(b"private")

    def may_receive(self, role: int, topic: bytes) -> bool:
        return chr(role) in self._readers or self.is_readable(topic)

    def role_of(self, client_id: str, username: str | None, grants: object) -> int:
        return ord(client_id[:1] or "?")


def test_a_member_needs_the_rules_and_its_filter() -> None:
    world = filtered_world()
    world.broker.authorize(built_in_rules(authorizer=Readers("a")))
    a, b = world.connect("a"), world.connect("b")
    a.subscribe("$share/g/private", where=US)
    b.subscribe("$share/g/private", where=EU)
    for name in ("us", "eu"):
        world.publish("private", name, user_properties=[("region", name)])
    assert (a.payloads(), b.payloads()) == (["us"], [])
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 1}
    a.disconnect()
    world.publish("private", "eu", user_properties=[("region", "eu")])
    assert world.broker.router.drops.by_reason == {FILTER_MISMATCH: 1, "not_authorized": 1}


def test_new_rules_hold_for_a_message_that_is_on_its_way_to_filtered_receivers() -> None:
    world = filtered_world()
    world.broker.authorize(built_in_rules(authorizer=Readers("abc")))
    readers = [world.connect(name) for name in "abcd"]
    readers[0].subscribe("private", where=US)
    for reader in readers[1:]:
        reader.subscribe("private", "#", where=US)
    world.broker.effects.work = ITERATION_WORK
    properties = Properties(user_properties=[("region", "us")])
    world.broker.publish(b"private", b"x", 0, False, world.now, properties)
    assert len(world.broker.jobs) == 1
    world.broker.authorize(built_in_rules(authorizer=Readers("b")))
    world.settle()
    assert [reader.payloads() for reader in readers] == [[], ["x"], [], []]


# ── what is told ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tracer_hears_whom_a_filter_kept_a_message_from() -> None:
    world = filtered_world()
    recorder = Recorder((b"t",))
    world.broker.watch(recorder)
    us, both, member, publisher = [world.connect(name) for name in ("us", "both", "member", "p")]
    us.subscribe("t", where=US)
    both.subscribe("t", where=US)
    both.subscribe("#", where=LARGE)
    member.subscribe("$share/g/t", where=US)
    publisher.subscribe(request("t", no_local=True), where=US)
    publisher.send(region("eu", payload="1"), region("us", payload="2"))
    assert recorder.of(1)[1:] == [
        ("routed", 3),
        ("filtered", "$share/g/t"),
        ("filtered", "us"),
        ("filtered", "both"),
    ]
    assert recorder.receivers[2] == 3
    recorder.check_outcomes("$share")


def test_all_messages_of_a_followed_client_are_traced_though_it_has_a_filter() -> None:
    world = filtered_world()
    recorder = Recorder(clients=("c",))
    world.broker.watch(recorder)
    world.connect("c").subscribe("t", where=LARGE)
    world.publish("t", "1")
    assert recorder.of(1)[2:] == [("filtered", "c")]


def test_a_message_for_many_filters_gives_way() -> None:
    world = filtered_world()
    count = 50
    for number in range(count):
        world.connect(f"c{number}").subscribe("t", where=f"payload >= {number}")
    world.broker.effects.work = ITERATION_WORK - 100
    world.broker.publish(b"t", b"1", 0, False, START)
    assert len(world.broker.jobs) == 1
    world.settle()
    assert world.broker.router.drops.filtered == count - 2


def test_a_session_that_ends_leaves_the_filtered_receivers() -> None:
    world = filtered_world()
    client, publisher = world.connect("c"), world.connect("p")
    client.subscribe("t", "+", where=US)
    publisher.send(region("us"))
    client.disconnect()
    publisher.send_bytes(encode(region("us"), V5))
    assert world.broker.router.drops.by_reason == {"no_subscribers": 1}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_filter_holds_for_a_member_that_joins_a_group_with_a_cached_route(qos: int) -> None:
    world = filtered_world()
    first, second, publisher = world.connect("1"), world.connect("2"), world.connect("p")
    first.subscribe("$share/g/t", qos=qos)
    publisher.publish("t", "1", qos)
    second.subscribe("$share/g/t", qos=qos, where=LARGE)
    for _ in range(4):
        publisher.publish("t", "1", qos)
    assert (first.payloads(), second.payloads()) == (["1"] * 5, [])


def test_a_filter_holds_for_a_member_that_subscribes_again() -> None:
    world = filtered_world()
    first, second, publisher = world.connect("1"), world.connect("2"), world.connect("p")
    for member in (first, second):
        member.subscribe("$share/g/t", qos=1)
    send_numbers(publisher, range(2), qos=1)
    second.subscribe("$share/g/t", qos=1, where=LARGE)
    publisher.received()
    send_numbers(publisher, range(2), qos=1)
    assert (first.payloads(), second.payloads()) == (["0", "0", "1"], ["1"])
    second.subscribe("$share/g/t", qos=1, where="")
    send_numbers(publisher, range(2), qos=1)
    assert [len(first.payloads()), len(second.payloads())] == [1, 1]
