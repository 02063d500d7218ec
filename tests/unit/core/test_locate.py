"""Where the session of a client is, is asked before anything else is done with its CONNECT."""

import pytest

from mqttlite.core.authentication import Verdict
from mqttlite.core.connect.connection import CLOSED
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Will
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import World, publishes


def asking() -> World:
    world = World()
    world.broker.locate_sessions()
    return world


def answer(world: World) -> None:
    """The session is here, or nowhere."""
    (question,) = world.located
    world.located.clear()
    world.broker.answer(question.id, True, world.now)
    world.settle()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_waits_until_its_session_is_located_and_so_do_packets_sent_early(version: int) -> None:
    world = asking()
    client = world.open(version)
    assert client.connect("c") is None
    client.send(Pingreq())
    assert client.received() == []
    (question,) = world.located
    assert (question.client_id, question.number) == ("c", client.connection.number)
    answer(world)
    connack, pong = client.received()
    assert isinstance(connack, Connack)
    assert pong == Pingresp()
    world.end()


def test_a_client_is_authenticated_where_its_session_is() -> None:
    world = asking()
    client = world.open(must_authenticate=True)
    client.connect("c", username="ann", password=b"guess")
    assert world.questions == []
    answer(world)
    (question,) = world.questions
    assert question.username == "ann"
    world.answer(client, False)
    (connack,) = client.received()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0x86
    world.end()


def test_packets_before_an_exchange_of_auth_are_looked_at_after_the_answer() -> None:
    world = asking()
    client = world.open(methods=frozenset({"KNOCK"}))
    properties = Properties(authentication_method="KNOCK", authentication_data=b"knock")
    client.send(Connect("c", properties=properties), Pingreq())
    answer(world)
    assert client.closed
    assert client.connection.close_detail == "PINGREQ is not a client's to send now"
    client = world.open(methods=frozenset({"KNOCK"}))
    client.send(Connect("c", properties=properties))
    answer(world)
    world.decide(client, Verdict(0, b"hello", "ann"))
    (connack,) = client.received()
    assert isinstance(connack, Connack)
    assert connack.properties.authentication_data == b"hello"


def test_it_is_not_asked_about_clients_that_have_no_other_place() -> None:
    world = asking()
    world.connect("")
    assert world.open(is_inside=True).connect("page") is not None
    passed_on = world.open()
    passed_on.connection.is_located = True
    assert passed_on.connect("c") is not None
    assert world.located == []


def test_it_is_asked_about_unnamed_clients_too_while_no_session_may_begin_here() -> None:
    world = asking()
    world.broker.locate_unnamed(True)
    assert world.open(is_inside=True).connect("") is not None
    client = world.open()
    client.connect("")
    assert [each.client_id for each in world.located] == [""]
    assert isinstance(decode_connect(world.broker.give_up(client.connection, world.now)), Connect)
    world.located.clear()
    world.broker.locate_unnamed(False)
    world.connect("")
    assert world.located == []
    world.end()


def decode_connect(sent: bytes) -> object:
    [(first, body), *_more] = Framer(1_000).split(sent)
    return decode(first, body, V5)


def test_a_connect_that_is_refused_anyway_is_not_asked_about() -> None:
    world = asking()
    client = world.open()
    client.connect("c", will=Will(b"$SYS/x", b"", 0, False))
    assert client.closed
    assert world.located == []


@pytest.mark.parametrize("version", [V311, V5])
def test_a_connection_that_is_given_up_leaves_all_that_its_client_has_sent(version: int) -> None:
    world = asking()
    client = world.open(version)
    connect = Connect("c", version, False, 9, "ann", b"pw", Will(b"w", b"x", 1, True), NONE)
    later = encode(Publish(b"t", b"payload", 0), version)
    client.send(connect)
    client.send_bytes(later)
    client.send_bytes(later[:5])
    sent = world.broker.give_up(client.connection, world.now)
    world.settle()
    assert sent == encode(connect, version) + later + later[:5]
    [(first, body), *_more] = Framer(1_000).split(sent)
    assert isinstance(decode(first, body, version), Connect)
    assert client.closed
    assert client.received() == []
    assert client.connection.state == CLOSED
    assert client.connection.close_reason == CloseReason.PASSED_ON
    assert world.broker.sessions.get("c") is None
    answer(world)  # too late, and harmless
    world.end()


def test_an_answer_about_a_client_that_has_left_is_harmless() -> None:
    world = asking()
    client = world.open()
    client.connect("c")
    client.lose()
    answer(world)
    assert world.broker.sessions.get("c") is None
    world.end()


def test_a_broker_without_others_asks_nothing() -> None:
    world = World()
    world.connect("c")
    assert world.located == []


def test_packets_of_a_client_that_leaves_are_handled_when_its_session_is_located() -> None:
    world = asking()
    reader = world.open(is_inside=True)
    reader.connect("reader")
    reader.subscribe("t")
    for must_authenticate in (False, True):
        client = world.open(must_authenticate=must_authenticate)
        client.send(Connect("c"), Publish(b"t", b"last"))
        assert client.connection.deferred, "its link waits, though its socket is gone"
        answer(world)
        if must_authenticate:
            assert client.connection.deferred
            world.answer(client, True)
        assert not client.connection.deferred
        assert reader.payloads() == ["last"]


# ── a client that has its session at another broker ────────────────────────────────────────────────────────────────


def test_a_client_that_is_connected_elsewhere_is_disconnected_with_0x8e() -> None:
    world = World()
    client = world.connect("c", expiry=100, will=Will(b"w", b"", 0, False))
    world.broker.displace("c", world.now)
    world.settle()
    (goodbye,) = client.received()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == 0x8E
    assert client.connection.close_reason == CloseReason.TAKEN_OVER
    world.broker.displace("c", world.now)
    world.broker.displace("nobody", world.now)
    world.settle()
    assert world.broker.sessions.get("c") is not None


def publish(**fields: object) -> Publish:
    return Publish(b"t", b"x", 1, True, packet_id=7, properties=Properties(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("mount_point", [b"", b"site/"])
def test_a_message_is_handed_over_to_one_session_with_all_that_it_had(mount_point: bytes) -> None:
    world = World()
    client, other = world.open(mount_point=mount_point), world.connect("other")
    client.connect("c", expiry=100)
    other.subscribe("#")
    assert world.broker.hand_over(
        "c",
        publish(subscription_identifiers=[3, 4], message_expiry_interval=9, user_properties=[("k", "v")]),
        world.now,
    )
    world.settle()
    (got,) = publishes(client.received())
    assert (got.topic, got.payload, got.qos, got.retain) == (b"t", b"x", 1, True)
    assert got.properties.subscription_identifiers == [3, 4]
    assert got.properties.user_properties == [("k", "v")]
    assert got.properties.message_expiry_interval == 9
    assert other.received() == []
    assert not world.broker.hand_over("nobody", publish(), world.now)


def test_a_message_that_is_handed_over_waits_for_a_client_that_is_away_also_after_a_restart() -> None:
    world = World()
    world.connect("c", expiry=100).lose()
    assert world.broker.hand_over("c", Publish(b"t", b"x", 1, packet_id=7), world.now)
    world.settle()
    client = world.restart().connect("c", clean_start=False, expiry=100)
    assert client.payloads() == ["x"]


@pytest.mark.parametrize("how", ["displace", "hand over"])
def test_a_client_that_does_not_read_is_cut_off_by_what_comes_from_elsewhere(how: str) -> None:
    world = World(Limits(max_outbox_messages=1, max_queued_messages=1, on_overflow="disconnect"))
    slow = world.connect("slow", expiry=100, receive_maximum=1, auto_ack=False)
    slow.subscribe("w")
    world.broker.block(slow.connection, world.now)
    if how == "displace":
        world.publish("w", "first")
        world.connect("c", will=Will(b"w", b"second", 0, False))
        world.broker.displace("c", world.now)
    else:
        for _ in range(3):
            world.broker.hand_over("slow", Publish(b"w", b"x", 1, packet_id=7), world.now)
    world.settle()
    assert slow.closed
