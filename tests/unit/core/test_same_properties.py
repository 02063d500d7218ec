"""Messages with the properties of the one before go the short way, and reach everybody with all of them."""

import pytest

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import MAX_RAW_PROPERTIES_BYTES
from mqttlite.core.message import NO_PROPERTIES
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Packet, Publish
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, publishes, request
from tests.support.recorder import Everything

BESIDE = Properties(
    payload_format_indicator=1,
    message_expiry_interval=60,
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"7",
    user_properties=[("trace", "1"), ("trace", "0")],
)


def alike(letters: str, qos: int, properties: Properties = BESIDE, first: int = 1) -> list[Packet]:
    return [
        Publish(b"t", letter.encode(), qos, packet_id=at if qos else 0, properties=properties)
        for at, letter in enumerate(letters, first)
    ]


def writer(world: World, qos: int, **options: object) -> Client:
    """A client whose first message has those properties."""
    client = world.connect("w", **options)
    client.send(*alike("a", qos, first=100))
    return client


def without_alias(client: Client) -> list[tuple[bytes, Properties]]:
    arrived = publishes(client.received())
    for each in arrived:
        each.properties.topic_alias = None
    return [(each.payload, each.properties) for each in arrived]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kind", ["plain", "qos 0", "aliases", "identifier", "small", "no local", "shared", "others"])
def test_every_kind_of_receiver_gets_them(qos: int, kind: str) -> None:
    world = World()
    reader = world.open()
    asked = Properties(
        topic_alias_maximum=5 if kind == "aliases" else None, maximum_packet_size=1_000 if kind == "small" else None
    )
    reader.send(Connect("r", properties=asked))
    reader.received()
    topic_filter = "$share/g/t" if kind in ("shared", "others") else "t"
    reader.subscribe(
        request(topic_filter, 0 if kind == "qos 0" else 2, no_local=kind == "no local"),
        identifier=3 if kind in ("identifier", "others") else 0,
    )
    expected = BESIDE
    if kind in ("identifier", "others"):
        expected = Properties(**{**dict(BESIDE.present()), "subscription_identifiers": [3]})  # type: ignore[arg-type]
    writer(world, qos).send(*alike("bcde", qos))
    assert without_alias(reader) == [(letter.encode(), expected) for letter in "abcde"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_3_1_1_client_gets_the_messages_without(qos: int) -> None:
    world = World()
    reader = world.connect("r", V311)
    reader.subscribe("t", qos=2)
    writer(world, qos).send(*alike("bc", qos))
    assert without_alias(reader) == [(letter.encode(), NONE) for letter in "abc"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_those_that_are_followed_too(qos: int) -> None:
    world = World()
    world.broker.watch(Everything())
    reader = world.connect("r")
    reader.subscribe("t", qos=2)
    writer(world, qos).send(*alike("bc", qos))
    assert without_alias(reader) == [(letter.encode(), BESIDE) for letter in "abc"]


@pytest.mark.parametrize("qos", [1, 2])
def test_waiting_messages_have_less_time_left_and_expire(qos: int) -> None:
    world = World()
    reader = world.connect("r", expiry=1_000)
    reader.subscribe("t", qos=2)
    reader.disconnect()
    sender = writer(world, qos)
    sender.send(*alike("b", qos))
    world.advance(20.0)
    sender.send(*alike("c", qos, first=2))
    world.advance(41.0)
    reader = world.connect("r", clean_start=False, expiry=1_000)
    (arrived,) = publishes(reader.received())
    assert (arrived.payload, arrived.properties.message_expiry_interval) == (b"c", 19)
    assert arrived.properties.user_properties == BESIDE.user_properties


def test_each_who_was_away_is_told_what_is_left_when_he_is_back() -> None:
    world = World()
    for name in ("r", "s"):
        reader = world.connect(name, expiry=1_000)
        reader.subscribe("t", qos=1)
        reader.disconnect()
    writer(world, 1)
    left = []
    for name in ("r", "s"):
        world.advance(20.0)
        (arrived,) = publishes(world.connect(name, clean_start=False, expiry=1_000).received())
        left.append(arrived.properties.message_expiry_interval)
    assert left == [40, 20]


@pytest.mark.parametrize("granted", [0, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_other_properties_are_seen_wherever_they_begin(qos: int, granted: int) -> None:
    world = World()
    reader = world.connect("r")
    reader.subscribe("t", qos=granted)
    kinds = [BESIDE, NONE, Properties(content_type="a"), Properties(content_type="b"), BESIDE, BESIDE, NONE, NONE]
    packets = [packet for at, each in enumerate(kinds, 1) for packet in alike("x", qos, each, at)]
    world.connect("w").send(*packets)
    assert [properties for _payload, properties in without_alias(reader)] == kinds


@pytest.mark.parametrize("qos", [0, 1])
def test_a_payload_is_looked_at_each_time_where_the_listener_asks(qos: int) -> None:
    world = World()
    reader = world.connect("r")
    reader.subscribe("t", qos=1)
    client = world.open(capabilities=Capabilities(check_payload_format=True))
    client.connect("w")
    is_text = Properties(payload_format_indicator=1)
    for payload in (b"good", b"\xff"):
        client.send(Publish(b"t", payload, qos, packet_id=qos, properties=is_text))
    assert reader.payloads() == ["good"]
    assert world.broker.router.drops.by_reason == {"schema_invalid": 1}


def test_an_alias_is_nobody_else_s() -> None:
    world = World()
    reader = world.connect("r")
    reader.subscribe("#")
    client = world.connect("w")
    for topic in (b"a", b"b", b"", b""):
        client.send(Publish(topic, b"x", properties=Properties(topic_alias=1)))
    assert [(each.topic, each.properties) for each in publishes(reader.received())] == [
        (topic, NONE) for topic in (b"a", b"b", b"b", b"b")
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_the_memory_of_a_connection_is_bounded(more: int) -> None:
    client = World().connect("w")
    value = "x" * (
        MAX_RAW_PROPERTIES_BYTES - 6 + more
    )  # beside the property's identifier and two lengths, and a name of one letter
    client.send(Publish(b"t", b"", properties=Properties(user_properties=[("n", value)])))
    kept = client.connection.raw
    assert len(kept.data) == (1 if more else 1 + MAX_RAW_PROPERTIES_BYTES)
    assert (kept is NO_PROPERTIES) == bool(more)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_packet_that_ends_before_them_is_malformed(qos: int) -> None:
    world = World()
    client = world.connect("w")
    client.send(Publish(b"t", b"", qos, packet_id=qos and 1))
    client.send_bytes(b"\x30\3\0\1t" if qos == 0 else bytes((0x30 | qos << 1,)) + b"\5\0\1t\0\2")
    assert client.closed
    assert client.connection.reason_code == 0x81


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_length_of_two_bytes_is_not_taken_for_one(qos: int) -> None:
    world = World()
    reader, older = world.connect("r"), world.connect("o", V311)
    for each in (reader, older):
        each.subscribe("t", qos=2)
    # Its second byte could be an expiry's identifier, and the rest empty user properties as far as the first one says.
    properties = Properties(correlation_data=b"1" + b"\x26\0\0\0\0" * 25 + b"1" * 129)
    world.connect("w").send(*[Publish(b"t", b"x", qos, packet_id=qos and at, properties=properties) for at in (1, 2)])
    assert without_alias(reader) == [(b"x", properties)] * 2
    assert older.payloads() == ["x", "x"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_packet_that_ends_in_them_is_malformed(qos: int) -> None:
    world = World()
    client = writer(world, qos)
    frame = encode(Publish(b"t", b"", qos, packet_id=9 if qos else 0, properties=BESIDE), V5)
    client.send_bytes(frame[:1] + bytes((frame[1] - 1,)) + frame[2:])
    assert client.closed
    assert client.connection.reason_code == 0x81
