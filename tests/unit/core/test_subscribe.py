"""SUBSCRIBE and UNSUBSCRIBE: what is granted, what is refused, and what changes."""

from collections import Counter

import pytest

from mqttlite.core.changes import RemoveSubscription, SaveSubscription
from mqttlite.core.limits import RETAINED_WAITING, Limits
from mqttlite.core.source import Source
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, Subscribe, Unsubscribe
from tests.support.core_driver import World, publishes, request


def test_the_same_filter_twice_in_one_packet_is_one_subscription() -> None:
    world = World()
    client = world.connect("c")
    assert client.subscribe(request("t", 2), request("t", 1)) == b"\2\1"
    world.publish("t", "x", 2)
    assert [packet.qos for packet in publishes(client.received())] == [1]


@pytest.mark.parametrize(("version", "refused"), [(V5, 0x97), (V311, 0x80)])
def test_as_many_subscriptions_as_allowed_are_granted_and_one_more_is_refused(version: int, refused: int) -> None:
    world = World(Limits(max_subscriptions=2))
    client = world.connect("c", version)
    assert client.subscribe("a", "b", "c", "b") == bytes([0, 0, refused, 0])
    client.send(Unsubscribe(9, (b"a",)))
    client.received()
    assert client.subscribe("c") == b"\0"


@pytest.mark.parametrize(("version", "refused"), [(V5, 0x97), (V311, 0x80)])
def test_as_many_of_them_are_shared_as_allowed_and_one_more_is_refused(version: int, refused: int) -> None:
    world = World(Limits(max_shared_subscriptions=2))
    client = world.connect("c", version)
    names = [f"$share/{group}/#" for group in "abc"]
    assert client.subscribe(*names, names[1], "plain") == bytes([0, 0, refused, 0, 0])
    assert world.connect("another").subscribe(*names) == bytes([0, 0, 0x97])
    client.send(Unsubscribe(9, (names[0].encode(),)))
    client.received()
    assert client.subscribe(names[2], names[0]) == bytes([0, refused])


def test_the_suback_comes_before_the_retained_messages() -> None:
    world = World()
    world.publish("t", "x", retain=True)
    client = world.connect("c")
    client.send(Subscribe(1, (request("t"),)))
    suback, message = client.received()
    assert not isinstance(suback, Publish)
    assert isinstance(message, Publish)


def test_a_subscription_knows_since_when_it_is_there_also_if_it_is_made_again() -> None:
    world = World(now=2.5)
    client = world.connect("c")
    client.subscribe("a")
    world.now = 7.0
    client.subscribe("a", "b", qos=1)
    subscriptions = world.session("c").subscriptions
    assert [each.subscribed_at for each in subscriptions.values()] == [2_500_000, 7_000_000]
    client.send(Unsubscribe(9, (b"a",)))
    client.subscribe("a")
    assert subscriptions[b"a"].subscribed_at == 7_000_000


def test_only_subscriptions_that_outlive_the_connection_are_kept_in_the_store() -> None:
    world = World()
    brief, lasting = world.connect("brief"), world.connect("lasting", expiry=100)
    for client in (brief, lasting):
        client.subscribe("t")
        client.send(Unsubscribe(9, (b"t", b"u")))
    changes = [change for change in world.changes if isinstance(change, SaveSubscription | RemoveSubscription)]
    assert [type(change) for change in changes] == [SaveSubscription, RemoveSubscription]
    assert all(change.client_id == "lasting" for change in changes)


def test_the_broker_ends_a_subscription_of_an_absent_client_and_keeps_its_messages() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe("t", "u", qos=1)
    client.lose()
    world.publish("t", "kept", 1)
    assert [world.broker.unsubscribe("c", topic, world.now) for topic in (b"t", b"t", b"v")] == [True, False, False]
    assert not world.broker.unsubscribe("nobody", b"t", world.now)
    world.publish("t", "late", 1)
    again = world.restart().connect("c", clean_start=False)
    assert again.payloads() == ["kept"]
    assert list(again.world.session("c").subscriptions) == [b"u"]


@pytest.mark.long
@pytest.mark.parametrize("version", [V5, V311])
def test_repeated_requests_for_everything_prepare_a_limited_amount(version: int) -> None:
    """What was not found for a subscription is found for the one that takes its place."""
    world = World()
    for number in range(100):
        world.publish(f"r/{number}", "x", retain=True)
    copies = RETAINED_WAITING // 100
    client = world.connect("c", version)
    for asked in (copies - 1, copies, copies + 1, copies + 2, 3 * copies):
        assert client.subscribe(*["r/#"] * asked) == bytes(asked)
        sent = min(asked, copies + 1)
        assert Counter(client.messages()) == {(f"r/{number}", "x"): sent for number in range(100)}
    client.block()
    for _ in range(3 * copies):
        client.send(Subscribe(1, (request("r/#"),)))
    assert world.session("c").retained_waiting == (copies + 1) * 100
    client.unblock()
    assert len(client.payloads()) == (copies + 1) * 100


@pytest.mark.long
def test_many_filters_at_once_are_all_granted_and_all_find_what_is_retained() -> None:
    """However little it is, and however many searches wait."""
    world = World()
    for number in range(10):
        world.publish(f"r/{number}/x", str(number), retain=True)
    client = world.connect("c")
    filters = [f"+/{number % 10}/x" if number < 10 else f"r/+/none{number}" for number in range(3_000)]
    assert client.subscribe(*filters) == bytes(len(filters))
    assert sorted(client.payloads()) == [str(number) for number in range(10)]


def test_after_unsubscribing_nothing_more_of_what_was_retained_is_sent() -> None:
    world = World()
    for number in range(3):
        world.publish(f"r/{number}", "r", retain=True)
        world.publish(f"s/{number}", "s", retain=True)
    client = world.connect("c")
    client.block()
    client.send(Subscribe(1, (request("r/#"), request("s/#"), request("r/1"))))
    client.send(Unsubscribe(2, (b"r/#", b"none")))
    client.unblock()
    assert client.payloads() == ["s", "s", "s", "r"]


class Narrow:
    """Refuses one filter."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, int]] = []

    def refusal(self, source: Source, topic_filter: bytes, qos: int) -> tuple[int, str]:
        self.asked.append((source.client_id, topic_filter, qos))
        return (0x97, "enough") if topic_filter == b"b" else (0, "")


@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, 0x97)])
def test_a_hook_may_refuse_what_the_rules_allow(version: int, code: int) -> None:
    world, hook = World(), Narrow()
    world.broker.ask_about_subscriptions(hook)
    client = world.connect("c", version)
    assert client.subscribe(request("a", 1), request("b", 2)) == bytes([1, code])
    assert hook.asked == [("c", b"a", 1), ("c", b"b", 2)]
    assert world.broker.planner.subscribe("c", None, b"a", 1).has_hook
    assert len(hook.asked) == 2, "a plan does not ask"
    assert list(world.session("c").subscriptions) == [b"a"]
    own = world.open(is_trusted=True)
    own.connect("own")
    own.subscribe("b")
    assert len(hook.asked) == 2
    world.end()


@pytest.mark.parametrize(("is_bridge", "payloads"), [(True, ["other"]), (False, ["own", "other"])])
def test_a_bridge_before_5_0_gets_no_message_of_its_own_and_each_as_it_was_published(
    is_bridge: bool, payloads: list[str]
) -> None:
    world = World()
    bridge = world.connect("b", V311, is_bridge=is_bridge)
    assert bridge.subscribe("t") == b"\0"
    bridge.publish("t", "own")
    world.publish("t", "other", retain=True)
    received = publishes(bridge.received())
    assert [packet.payload.decode() for packet in received] == payloads
    assert received[-1].retain == is_bridge


def test_a_bridge_before_5_0_may_have_a_shared_subscription() -> None:
    world = World()
    bridge = world.connect("b", V311, is_bridge=True)
    assert bridge.subscribe("$share/g/t") == b"\0"
    bridge.publish("t", "own")
    assert bridge.payloads() == ["own"]
