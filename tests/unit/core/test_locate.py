"""Where the session of a client is, is asked before anything else is done with its CONNECT."""

import pytest

from mqttlite.core.authentication import Verdict
from mqttlite.core.connect.connection import CLOSED
from mqttlite.core.reasons import CloseReason
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connack, Connect, Pingreq, Pingresp, Publish, Will
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import World


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
