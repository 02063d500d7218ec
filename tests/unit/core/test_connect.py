"""CONNECT: what is taken, what is refused and how, and what the CONNACK says."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.topics.names import MAX_LEVELS
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack, Connect, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.packets import raw


def refused(world: World, packet: Connect) -> Client:
    client = world.open(packet.version)
    client.send(packet)
    assert client.closed
    assert world.broker.connections == {}
    assert not client.connection.accepted
    return client


# ── taken ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("asked", "ours", "in_force"), [(0, 0, 0), (9, 0, 9), (0, 9, 9), (8, 9, 8), (10, 9, 9)])
def test_the_shorter_keep_alive_is_in_force(asked: int, ours: int, in_force: int) -> None:
    world = World(Limits(server_keep_alive_s=ours))
    assert world.connect("5", keep_alive=asked).connection.keep_alive_s == in_force
    assert world.connect("3", V311, keep_alive=asked).connection.keep_alive_s == in_force


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_without_an_identifier_is_given_one_that_nobody_has(version: int) -> None:
    world = World()
    namesake = world.connect("auto-3")
    world.connect("auto-3x", expiry=10).lose()
    client = world.connect("", version)
    assert client.connection.client_id == "auto-3xx"
    assert not namesake.closed
    assert world.connect("", version).connection.client_id == "auto-4"


def test_the_negotiated_values_of_a_connection_are_known() -> None:
    world = World()
    client = world.open(identity="sensor")
    client.connect("c", clean_start=False, keep_alive=9, expiry=10, username="someone", maximum_packet_size=100)
    connection = client.connection
    assert connection.accepted
    assert connection.username == "sensor", "a verified certificate says who it is"
    assert (connection.client_id, connection.version, connection.clean_start) == ("c", V5, False)
    assert (connection.keep_alive_s, connection.session_expiry_s, connection.connected_at) == (9, 10, world.now)
    assert repr(connection) == "Connection(1, 'c', connected, version=5, identity='sensor')"
    assert world.connect("d", username="someone").connection.username == "someone"


# ── refused ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_authentication_method_is_refused_by_name() -> None:
    packet = Connect("c", properties=Properties(authentication_method="SCRAM", authentication_data=b"x"))
    (connack,) = refused(World(), packet).received()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x8C
    assert connack.properties.reason_string == "authentication method 'SCRAM' is not known here"


@pytest.mark.parametrize("topic", [b"a/+", b"#", b"/" * MAX_LEVELS])
def test_a_will_for_no_topic_name_is_refused(topic: bytes) -> None:
    (connack,) = refused(World(), Connect("c", will=Will(topic, b""))).received()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x90
    assert refused(World(), Connect("c", V311, will=Will(topic, b""))).received() == [], "3.1.1 has no word for it"


def test_a_malformed_connect_is_answered_as_its_version_can_say() -> None:
    for version, answers in [(V311, []), (V5, [0x81])]:
        client = World().open(version)
        client.send_bytes(raw(f"10 0d 0004 'MQTT' 0{version} 03 0000 0001 'c'"))
        assert client.closed
        assert [packet.reason_code for packet in client.received() if isinstance(packet, Connack)] == answers
        assert client.connection.close_reason == CloseReason.MALFORMED_PACKET
        assert client.connection.version == version


@pytest.mark.parametrize(
    ("chunk", "detail"),
    [
        (raw("16 0301 0200 01"), "TLS bytes on a listener without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the first packet is not CONNECT: an HTTP request?"),
        (raw("c0 00"), "the first packet is PINGREQ and not CONNECT [MQTT-3.1.0-1]"),
        (raw("00 00"), "the first packet is packet type 0 and not CONNECT [MQTT-3.1.0-1]"),
        (raw("11 00"), "CONNECT with header flags 0b0001 [MQTT-2.1.3-1]"),
    ],
)
def test_a_first_packet_other_than_connect_is_named_and_gets_no_answer(chunk: bytes, detail: str) -> None:
    client = World().open()
    client.send_bytes(chunk)
    assert client.closed
    assert client.received() == []
    assert client.connection.close_detail == detail


# ── authentication ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_former_connection_stays_until_the_new_client_is_let_in() -> None:
    world = World()
    first = world.connect("c")
    second = world.open(must_authenticate=True)
    second.connect("c")
    assert not first.closed
    world.answer(second, False)
    assert not first.closed
    third = world.open(must_authenticate=True)
    third.connect("c")
    world.answer(third, True)
    assert first.closed


def test_no_more_is_kept_of_a_client_that_waits_than_about_one_packet() -> None:
    world = World(Limits(max_packet_bytes=1_000))
    client = world.open(must_authenticate=True)
    client.connect("c")
    sent = 0
    while not client.closed:
        client.send_bytes(raw("c000") * 50)
        sent += 100
        assert client.connection.framer.kept_bytes <= 1_200
        assert sent < 2_000
    assert client.connection.close_reason == CloseReason.QUOTA_EXCEEDED


def test_before_its_version_is_known_a_client_is_just_closed() -> None:
    client = World().open()
    client.send_bytes(raw("10 01 00"))
    assert client.closed
    assert client.received() == []
    assert client.connection.version == 0
