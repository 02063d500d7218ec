"""How long topics and payloads may be: for all clients, and for those of one listener."""

import pytest

from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.route.outlook import PlannedReceiver
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import Source
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Disconnect, Publish, Suback, Subscribe, SubscriptionRequest, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.rules import OpenRules

SHORT = Limits(max_topic_levels=3, max_topic_bytes=10, max_payload_bytes=4)
NARROW = Capabilities(max_topic_levels=3, max_topic_bytes=10, max_payload_bytes=4)

DEEP = "topic with 4 levels, at most 3 accepted"
LONG = "topic of 11 bytes, at most 10 accepted"
LARGE = "payload of 5 bytes, at most 4 accepted"


def limited(where: str) -> tuple[World, Capabilities]:
    """A world with limits for all clients, or only for those of a listener."""
    return (World(SHORT), EVERYTHING) if where == "broker" else (World(), NARROW)


def connect(world: World, capabilities: Capabilities, version: int = V5, name: str = "p") -> Client:
    client = world.open(version, capabilities=capabilities)
    connack = client.connect(name)
    assert connack is not None
    assert connack.reason_code == 0
    return client


def answer(client: Client) -> tuple[int, str | None]:
    """The reason code and string of the PUBACK or PUBREC that came."""
    ack, *_pubcomp = client.received()
    assert isinstance(ack, Ack)
    return ack.reason_code, ack.properties.reason_string


@pytest.mark.parametrize(
    "options",
    [
        {"max_topic_levels": 0},
        {"max_topic_levels": 202},
        {"max_topic_bytes": 0},
        {"max_topic_bytes": 65_536},
        {"max_payload_bytes": -1},
        {"on_large_payload": "explode"},
    ],
)
def test_limits_that_are_none_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Limits(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["max_topic_levels", "max_topic_bytes", "max_payload_bytes"])
def test_a_listener_has_no_limit_below_zero(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is -1"):
        Capabilities(**{option: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["broker", "listener"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(("topic", "sentence"), [("a/b/c/d", DEEP), ("12345678901", LONG)])
def test_a_message_to_a_longer_topic_is_refused(where: str, qos: int, version: int, topic: str, sentence: str) -> None:
    world, capabilities = limited(where)
    reader = world.open(is_trusted=True)
    reader.connect("r")
    reader.subscribe("#")
    denied: list[str] = []
    world.broker.permissions.on_denied = lambda _client, _user, _action, _topic, reason: denied.append(reason)
    client = connect(world, capabilities, version)
    client.publish(topic, "x", qos)
    if qos:
        assert answer(client) == ((0, None) if version == V311 else (0x90, sentence))
    assert reader.payloads() == []
    assert not client.closed
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}
    assert denied == [sentence]
    client.publish("a/b/c", "y", qos)
    client.publish("1234567890", "z", qos)
    assert reader.payloads() == ["y", "z"]


def test_clients_of_other_listeners_use_longer_topics_all_the_same() -> None:
    world = World()
    first, reader = world.connect("first"), world.connect("r")
    reader.subscribe("#")
    first.publish("a/b/c/d", "1", 1)
    narrow = connect(world, NARROW)
    first.publish("a/b/c/d", "2", 1)
    narrow.publish("a/b/c/d", "3", 1)
    first.publish("a/b/c/d", "4", 1)
    assert answer(narrow)[0] == 0x90
    assert reader.payloads() == ["1", "2", "4"]
    world.broker.publish(b"a/b/c/d", b"5", 0, False, world.now)
    world.settle()
    assert reader.payloads() == ["5"]


def test_rules_and_limits_both_count() -> None:
    class Closed(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return False

        def policy_of(self, topic: bytes) -> TopicPolicy:
            return TopicPolicy("all", max_payload_bytes=1)

    world = World()
    world.broker.authorize(built_in_rules(authorizer=Closed()))
    narrow, other = connect(world, NARROW), world.connect("other")
    for client in (narrow, other):
        client.publish("a/b/c/d", "12", 1)
    assert answer(narrow) == (0x90, DEEP)
    assert answer(other)[0] == 0x87


@pytest.mark.parametrize("topic", ["$delayed/1/a/b/c/d", "$delayed/1/12345678901"])
@pytest.mark.parametrize("qos", [0, 1])
def test_the_topic_of_a_delayed_message_is_the_one_behind_the_seconds(topic: str, qos: int) -> None:
    world = World(SHORT)
    client = world.connect("p")
    client.publish(topic, "x", qos)
    if qos:
        assert answer(client) == (0x90, DEEP if "/b" in topic else LONG)
    client.publish("$delayed/1/a/b/c", "x", 1)
    assert answer(client)[0] == 0
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}


@pytest.mark.parametrize("where", ["broker", "listener"])
@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, 0x8F)])
def test_a_longer_filter_is_refused(where: str, version: int, code: int) -> None:
    world, capabilities = limited(where)
    client = connect(world, capabilities, version)
    for topic_filter, is_accepted in [
        ("a/+/c", True),
        ("a/+/c/#", False),
        ("$share/group/a/b/c", True),
        ("$share/group/a/b/c/d", False),
        ("12345678901", False),
    ]:
        client.send(Subscribe(client.packet_id(), (SubscriptionRequest(topic_filter.encode(), 0),)))
        (suback,) = client.received()
        assert isinstance(suback, Suback)
        assert suback.reason_codes == (b"\0" if is_accepted else bytes([code]))
        if version == V5 and not is_accepted:
            assert suback.properties.reason_string in (DEEP, LONG)


@pytest.mark.parametrize("where", ["broker", "listener"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("properties", [Properties(), Properties(content_type="x")])
def test_a_longer_payload_is_refused_and_counted(where: str, qos: int, version: int, properties: Properties) -> None:
    world, capabilities = limited(where)
    reader = world.connect("r")
    reader.subscribe("#")
    client = connect(world, capabilities, version)
    if version == V311:
        properties = Properties()
    client.send(Publish(b"t", b"12345", qos, packet_id=1 if qos else 0, properties=properties))
    if qos:
        assert answer(client) == ((0, None) if version == V311 else (0x97, LARGE))
    assert world.broker.router.drops.by_reason == {"packet_too_large": 1}
    client.publish("t", "1234", qos)
    assert reader.payloads() == ["1234"]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
def test_a_longer_payload_closes_the_connection_where_that_is_the_policy(qos: int, retain: bool) -> None:
    world = World(Limits(max_payload_bytes=4, on_large_payload="disconnect"))
    client = world.connect("p")
    client.send(Publish(b"t", b"12345", qos, retain, packet_id=1 if qos else 0))
    last = client.received()[-1]
    assert isinstance(last, Disconnect)
    assert (last.reason_code, last.properties.reason_string) == (0x95, LARGE)


@pytest.mark.parametrize(
    ("will", "code"),
    [
        (Will(b"a/b/c/d", b""), 0x90),
        (Will(b"12345678901", b""), 0x90),
        (Will(b"t", b"12345"), 0x95),
        (Will(b"a/b/c", b"1234"), 0),
    ],
)
def test_a_will_has_the_same_limits(will: Will, code: int) -> None:
    for where in ("broker", "listener"):
        world, capabilities = limited(where)
        client = world.open(V5, capabilities=capabilities)
        connack = client.connect("p", will=will)
        assert connack is not None
        assert connack.reason_code == code


def test_a_listeners_limits_do_not_lift_those_of_all() -> None:
    world = World(SHORT)
    client = connect(world, Capabilities(max_topic_levels=100, max_topic_bytes=50, max_payload_bytes=9))
    client.publish("a/b/c/d", "x", 1)
    assert answer(client) == (0x90, DEEP)
    client.publish("t", "12345", 1)
    assert answer(client) == (0x97, LARGE)


def test_the_programs_own_clients_have_no_limits() -> None:
    world = World(SHORT)
    reader = world.open(is_trusted=True)
    reader.connect("r")
    assert reader.subscribe("a/b/c/d/#") == b"\0"


@pytest.mark.parametrize("policy", ["refuse", "disconnect"])
def test_commands_may_be_longer(policy: str) -> None:
    world = World(Limits(max_payload_bytes=4, on_large_payload=policy))
    taken: list[bytes] = []

    class Commands:
        def prepare(self, messages: int) -> bool:
            return True

        def accept(self, message: Message, source: Source, tally: Tally) -> None:
            taken.append(message.payload)

        def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
            return False

        def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
            taken.extend(batch.payload(number) for number in range(batch.count))

        def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
            return []

    world.broker.bind(b"$CONTROL/x", Commands())
    client = world.connect("admin")
    for qos in (0, 1):
        assert world.broker.planner.publish("admin", None, b"$CONTROL/x", b"12345", qos, False).code == 0
        client.publish("$CONTROL/x", "12345", qos)
    assert taken == [b"12345"] * 2
    assert not client.closed
