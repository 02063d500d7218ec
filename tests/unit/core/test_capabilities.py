"""What a listener does not offer is told in CONNACK and refused when it is used (5.0 §3.2.2.3)."""

import pytest

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Connack, Connect, Disconnect, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.recorder import Recorder

NOT_UTF8 = b"\xff"
IS_TEXT = Properties(payload_format_indicator=1)


def connected(world: World, capabilities: Capabilities, version: int = V5, **options: object) -> tuple[Client, Connack]:
    client = world.open(version, capabilities=capabilities)
    connack = client.connect("client", **options)  # type: ignore[arg-type]
    assert connack is not None
    return client, connack


def test_a_maximum_qos_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="maximum_qos is 3"):
        Capabilities(maximum_qos=3)


@pytest.mark.parametrize("properties", [Properties(), Properties(content_type="x")])
def test_a_publish_above_the_maximum_qos_closes_the_connection_with_0x9b(properties: Properties) -> None:
    client, _connack = connected(World(), Capabilities(maximum_qos=1))
    client.send(Publish(b"a", b"", 1, packet_id=1, properties=properties))
    assert not client.closed
    client.send(Publish(b"a", b"", 2, packet_id=2, properties=properties))
    assert client.received()[-1] == Disconnect(0x9B, client_said(client))


def client_said(client: Client) -> Properties:
    return Properties(reason_string=client.connection.close_detail)


@pytest.mark.parametrize(
    ("capabilities", "will", "code"),
    [
        (Capabilities(maximum_qos=0), Will(b"w", b"", 1), 0x9B),
        (Capabilities(retain_available=False), Will(b"w", b"", 0, True), 0x9A),
        (Capabilities(check_payload_format=True), Will(b"w", NOT_UTF8, properties=IS_TEXT), 0x99),
    ],
)
def test_a_will_that_the_listener_does_not_offer_is_refused_at_connect(
    capabilities: Capabilities, will: Will, code: int
) -> None:
    client, connack = connected(World(), capabilities, will=will)
    assert connack.reason_code == code
    assert client.closed


def test_a_will_within_what_is_offered_is_taken() -> None:
    _client, connack = connected(World(), Capabilities(maximum_qos=1), will=Will(b"w", b"x", 1, True))
    assert connack.reason_code == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_payload_that_is_not_what_it_says_is_answered_0x99_and_goes_nowhere(qos: int) -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("#")
    client, _connack = connected(world, Capabilities(check_payload_format=True))
    client.send(Publish(b"a", NOT_UTF8, qos, packet_id=1, properties=IS_TEXT))
    (answer,) = client.received()
    assert isinstance(answer, Ack)
    assert answer.reason_code == 0x99
    client.send(Publish(b"a", b"text", qos, packet_id=1, properties=IS_TEXT))
    assert reader.payloads() == ["text"]
    assert world.broker.router.drops.by_reason == {"schema_invalid": 1}


def test_such_a_payload_at_qos_0_is_dropped_and_counted() -> None:
    world = World()
    client, _connack = connected(world, Capabilities(check_payload_format=True))
    client.send(Publish(b"a", NOT_UTF8, properties=IS_TEXT))
    assert not client.closed
    assert world.broker.router.drops.by_reason == {"schema_invalid": 1}


def test_an_acknowledgement_tells_what_became_of_the_message() -> None:
    world = World(Limits(max_queued_messages=1))
    world.connect("live").subscribe("a", qos=1)
    away = world.connect("away", expiry=100)
    away.subscribe("a", qos=1)
    away.lose()
    client, _connack = connected(world, Capabilities(tell_delivery=True))
    client.publish("a", "x", 1)
    client.publish("a", "y", 1)
    first, second = client.received()
    assert isinstance(first, Ack)
    assert isinstance(second, Ack)
    assert first.properties.user_properties[1:] == [("delivered-to", "1"), ("queued-for", "1"), ("dropped-for", "0")]
    assert second.reason_code == 0x97
    assert second.properties.user_properties[1:] == [("delivered-to", "1"), ("queued-for", "0"), ("dropped-for", "1")]
    ids = [ack.properties.user_properties[0] for ack in (first, second)]
    (waiting,) = world.session("away").queue.deliveries
    assert ids[0] == ("message-id", str(waiting.message.number))
    assert ids[0] < ids[1], "the second was dropped, and has an id all the same"
    world.broker.watch(Recorder((b"a",)))
    client.publish("a", "z", 1)
    (third,) = client.received()
    assert isinstance(third, Ack)
    assert third.properties.user_properties[0] == ("message-id", str(world.broker.effects.numbers.latest))


@pytest.mark.parametrize("why", ["no problem information", "small packets", "3.1.1"])
def test_it_tells_nothing_to_clients_that_do_not_want_or_cannot_take_it(why: str) -> None:
    world = World()
    version = V311 if why == "3.1.1" else V5
    client = world.open(version, capabilities=Capabilities(tell_delivery=True))
    properties = Properties(
        request_problem_information=0 if why == "no problem information" else None,
        maximum_packet_size=30 if why == "small packets" else None,
    )
    client.send(Connect("c", version, properties=Properties() if version == V311 else properties))
    client.received()
    client.publish("a", "x", 1)
    assert client.received() == [Ack(4, 1, 0x10 if version == V5 else 0)]


@pytest.mark.parametrize("versions", [(), ("3.1.1", "4"), ("5",)])
def test_a_protocol_version_that_is_none_is_refused(versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"protocol_versions is \[.*\]: one at least of 3.1, 3.1.1, 5.0"):
        Capabilities(protocol_versions=versions)


@pytest.mark.parametrize(
    ("offered", "version", "code"),
    [(("3.1.1",), V5, 0x84), (("5.0",), V311, 1), (("5.0",), V5, 0), (("3.1.1", "5.0"), V311, 0)],
)
def test_a_listener_refuses_protocol_versions_that_it_does_not_offer(
    offered: tuple[str, ...], version: int, code: int
) -> None:
    client, connack = connected(World(), Capabilities(protocol_versions=offered), version)
    assert connack.reason_code == code
    assert client.closed == (code != 0)


@pytest.mark.parametrize(("version", "code"), [(V5, 0x85), (V311, 2)])
def test_a_listener_may_refuse_clients_without_an_identifier(version: int, code: int) -> None:
    client = World().open(version, capabilities=Capabilities(allow_empty_client_id=False))
    connack = client.connect("")
    assert connack is not None
    assert connack.reason_code == code
    named, connack = connected(World(), Capabilities(allow_empty_client_id=False), version)
    assert connack.reason_code == 0
    assert not named.closed
