"""Who is asked before a client comes in: by user name and password, or by a method and its AUTH packets (5.0 §4.12)."""

import pytest

from mqttlite.core.authentication import Grants, Verdict
from mqttlite.core.connect.connection import AUTHENTICATING, CONNECTED
from mqttlite.core.limits import MAX_AUTHENTICATION_STEPS, Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Auth, Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Publish
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import Client, World

METHOD = "KNOCK"
MORE = Verdict(ReasonCode.CONTINUE_AUTHENTICATION, b"who?")
REFUSED = Verdict(ReasonCode.NOT_AUTHORIZED)


def welcome(username: str | None = "ann", data: bytes | None = b"hello") -> Verdict:
    return Verdict(ReasonCode.SUCCESS, data, username)


def auth(code: int, data: bytes | None = None, method: str | None = METHOD) -> Auth:
    return Auth(code, Properties(authentication_method=method, authentication_data=data))


def knocking(world: World, **fields: object) -> Client:
    """A client whose CONNECT asks a question."""
    client = world.open(methods=frozenset({METHOD}), identity=fields.pop("identity", None))  # type: ignore[arg-type]
    properties = Properties(authentication_method=METHOD, authentication_data=b"knock", **fields)  # type: ignore[arg-type]
    client.send(Connect("c", username="said", properties=properties))
    return client


def inside(world: World, **fields: object) -> Client:
    """A client that a method let in."""
    client = knocking(world, **fields)
    world.decide(client, welcome())
    (connack,) = client.received()
    assert isinstance(connack, Connack)
    assert connack.reason_code == 0
    world.questions.clear()
    return client


def gone(client: Client, code: int) -> None:
    """The client got only this CONNACK or DISCONNECT, and its connection is over."""
    (last,) = client.received()
    assert isinstance(last, Connack | Disconnect)
    assert last.reason_code == code
    assert client.closed
    assert client.world.broker.connections == {}
    assert client.world.broker.tick(client.world.now + 1e9) is None, "nothing is due any more"


# ── user name and password ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_that_must_authenticate_waits_and_so_do_packets_sent_early(version: int) -> None:
    world = World()
    client = world.open(version, must_authenticate=True)
    assert client.connect("c", username="ann", password=b"pw") is None
    client.send(Pingreq())
    (question,) = world.questions
    assert (question.client_id, question.username, question.password) == ("c", "ann", b"pw")
    assert (question.method, question.data, question.begins) == ("", None, True)
    assert client.connection.state == AUTHENTICATING
    assert client.received() == []
    world.answer(client, True)
    connack, pong = client.received()
    assert isinstance(connack, Connack)
    assert pong == Pingresp()
    assert client.connection.username == "ann"


@pytest.mark.parametrize("version", [V311, V5])
def test_a_question_can_be_asked_where_no_login_is_needed_and_trusts_no_name(version: int) -> None:
    world = World()
    world.broker.permissions.trusts_names = False
    world.broker.ask_about_clients()
    client = world.open(version)
    assert client.connect("c", username="ann", password=b"pw") is None
    world.decide(client, Verdict(0))
    assert isinstance(client.received()[0], Connack)
    assert client.connection.username is None
    refused = world.open(version)
    refused.connect("d")
    world.decide(refused, Verdict(0x87, reason="not on the list"))
    (connack,) = refused.received()
    assert isinstance(connack, Connack)
    assert refused.connection.close_detail == "not on the list"
    assert world.open(version, is_inside=True).connect("page") is not None, "its login was judged by another door"


@pytest.mark.parametrize(
    ("code", "before", "reason", "close_reason"),
    [
        (0x86, 4, "user name or password is not accepted", CloseReason.NOT_AUTHORIZED),
        (0x87, 5, "not authorized", CloseReason.NOT_AUTHORIZED),
        (0x88, 3, "authentication is not possible now", CloseReason.NOT_AUTHORIZED),
        (0x89, 3, "too many clients wait for authentication", CloseReason.QUOTA_EXCEEDED),
        (0x9F, 5, "too many failed logins from this address; try again later", CloseReason.NOT_AUTHORIZED),
    ],
)
@pytest.mark.parametrize("version", [V311, V5])
def test_a_refusal_says_why_as_its_version_can(
    version: int, code: int, before: int, reason: str, close_reason: CloseReason
) -> None:
    world = World()
    client = world.open(version, must_authenticate=True)
    client.connect("c", username="ann", password=b"pw")
    client.send(Pingreq())
    world.decide(client, Verdict(code))
    gone(client, code if version == V5 else before)
    assert client.connection.close_reason == close_reason
    assert client.connection.close_detail == reason
    assert client.connection.username == "ann", "who it claimed to be, for the log"


def test_an_answer_to_nothing_is_harmless() -> None:
    world = World()
    plain, method = world.connect("plain"), inside(world)
    for client in (plain, method):
        world.decide(client, REFUSED)
        assert client.connection.state == CONNECTED
    world.broker.answer(99, REFUSED, world.now)
    method.lose()
    world.decide(method, welcome())


@pytest.mark.parametrize("code", [1, 0x19, 0x80, 0x8C])
def test_a_verdict_is_one_of_six(code: int) -> None:
    with pytest.raises(ValueError, match=f"0x{code:02x}"):
        Verdict(code)
    assert repr(welcome()) == "Verdict(0x00, username='ann')"


# ── a method at CONNECT ────────────────────────────────────────────────────────────────────────────────────────────


def test_mqtt_4_12_0_2_the_server_asks_for_more_until_it_decides() -> None:
    world = World()
    client = knocking(world)
    (question,) = world.questions
    assert (question.method, question.data, question.begins, question.username) == (METHOD, b"knock", True, "said")
    world.decide(client, MORE)
    assert client.received() == [auth(0x18, b"who?")]
    client.send(auth(0x18, b"me"))
    question = world.questions[-1]
    assert (question.method, question.data, question.begins, question.client_id) == (METHOD, b"me", False, "c")
    assert client.connection.state == AUTHENTICATING
    world.decide(client, welcome())
    (connack,) = client.received()
    assert isinstance(connack, Connack)
    assert connack.properties.authentication_method == METHOD, "[MQTT-4.12.0-5]"
    assert connack.properties.authentication_data == b"hello"
    assert client.connection.state == CONNECTED


def test_the_identity_of_a_client_comes_from_the_method_and_not_from_the_client() -> None:
    world = World()
    assert inside(world).connection.username == "ann"
    assert inside(world, identity="cn").connection.username == "cn"
    client = knocking(world)
    world.decide(client, welcome(None))
    assert client.connection.username is None


def test_mqtt_4_12_0_4_the_server_refuses_at_any_point() -> None:
    world = World()
    client = knocking(world)
    world.decide(client, Verdict(ReasonCode.NOT_AUTHORIZED, None, "claimed"))
    gone(client, 0x87)
    assert client.connection.username == "claimed", "for the log"
    assert client.connection.close_detail == "authentication by KNOCK failed"
    client = knocking(world)
    world.decide(client, MORE)
    client.send(auth(0x18, b"me"))
    client.received()
    world.decide(client, Verdict(ReasonCode.BAD_USER_NAME_OR_PASSWORD))
    gone(client, 0x86)


@pytest.mark.parametrize(
    "packet",
    [auth(0x18, b"me", "other"), auth(0x19, b"me"), Auth(), Publish(b"t", b""), Pingreq(), Connect("c")],
    ids=["another method", "begins again", "bare", "PUBLISH", "PINGREQ", "CONNECT"],
)
@pytest.mark.parametrize("asked", [True, False], ids=["while the server thinks", "while the client should"])
def test_mqtt_3_1_2_30_only_the_right_auth_and_disconnect_come_before_connack(asked: bool, packet: Packet) -> None:
    world = World()
    client = knocking(world)
    if not asked:
        world.decide(client, MORE)
        client.received()
    client.send(packet)
    gone(client, 0x82)


def test_auth_before_the_last_one_was_answered_is_a_protocol_error() -> None:
    client = knocking(World())
    client.send(auth(0x18, b"me"))
    gone(client, 0x82)


def test_a_client_may_leave_instead_of_authenticating() -> None:
    world = World()
    client = knocking(world)
    client.send(Disconnect())
    assert client.closed
    assert client.received() == []
    assert client.connection.close_reason == CloseReason.CLIENT_DISCONNECTED
    assert client.connection.close_detail == "the client left instead of authenticating"
    world.decide(client, welcome())
    assert len(world.broker.sessions) == 0


def test_the_connect_timeout_holds_for_the_whole_exchange() -> None:
    world = World(Limits(connect_timeout_s=10))
    client = knocking(world)
    for _ in range(3):
        world.decide(client, MORE)
        world.advance(3)
        client.send(auth(0x18))
    assert not client.closed
    world.advance(1.01)
    assert client.closed
    assert client.connection.close_reason == CloseReason.CONNECT_TIMEOUT
    world.decide(client, welcome())
    assert len(world.broker.sessions) == 0


def test_an_exchange_has_so_many_packets_and_no_more() -> None:
    world = World()
    client = knocking(world)
    for _ in range(MAX_AUTHENTICATION_STEPS - 1):
        world.decide(client, MORE)
        client.send(auth(0x18))
        assert not client.closed
    world.decide(client, MORE)
    client.received()
    client.send(auth(0x18))
    gone(client, 0x97)


def test_packets_behind_the_last_auth_wait_for_nothing() -> None:
    world = World()
    client = inside(world)
    assert client.subscribe("t") == b"\0"
    world.publish("t", "x")
    assert client.messages() == [("t", "x")]


# ── again ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_mqtt_4_12_1_1_a_client_authenticates_again_and_publishes_meanwhile() -> None:
    world = World()
    client = inside(world)
    client.subscribe("t", qos=1)
    for _ in range(2):
        client.send(auth(0x19, b"knock"))
        question = world.questions[-1]
        assert (question.data, question.begins, question.client_id, question.username) == (b"knock", True, "c", "ann")
        client.publish("t", "meanwhile", qos=1)
        world.decide(client, MORE)
        client.send(auth(0x18, b"me"))
        assert not world.questions[-1].begins
        client.publish("t", "still")
        world.decide(client, welcome())
        received = client.received()
        assert [packet for packet in received if isinstance(packet, Auth)] == [auth(0x18, b"who?"), auth(0, b"hello")]
        assert [packet.payload for packet in received if isinstance(packet, Publish)] == [b"meanwhile", b"still"]
    world.advance(1_000)
    assert client.connection.state == CONNECTED


@pytest.mark.parametrize("code", [0x00, 0x18])
def test_an_exchange_begins_with_0x19(code: int) -> None:
    client = inside(World())
    client.send(auth(code))
    gone(client, 0x82)


def test_an_exchange_goes_on_with_0x18() -> None:
    world = World()
    client = inside(world)
    client.send(auth(0x19))
    world.decide(client, MORE)
    client.received()
    client.send(auth(0x19))
    gone(client, 0x82)


def test_mqtt_4_12_1_2_who_comes_at_a_busy_time_is_disconnected_and_may_come_again() -> None:
    world = World()
    client = inside(world)
    client.send(auth(0x19))
    world.decide(client, Verdict(ReasonCode.SERVER_BUSY))
    gone(client, 0x89)
    assert client.connection.close_reason == CloseReason.QUOTA_EXCEEDED


def test_no_client_takes_the_identity_of_another() -> None:
    world = World()
    client = inside(world)
    client.send(auth(0x19))
    world.decide(client, welcome("bob"))
    gone(client, 0x87)
    client = inside(world, identity="cn")
    client.send(auth(0x19))
    world.decide(client, welcome("bob"))
    assert client.connection.username == "cn"
    assert client.received() == [auth(0, b"hello")]


def test_a_client_that_does_not_end_an_exchange_is_disconnected() -> None:
    world = World(Limits(connect_timeout_s=10))
    client = inside(world)
    client.send(auth(0x19))
    world.advance(9.9)
    client.send(Pingreq())
    assert client.received() == [Pingresp()]
    world.advance(0.2)
    gone(client, 0x87)
    world.decide(client, welcome())


def test_a_connection_that_ends_during_an_exchange_leaves_no_deadline() -> None:
    world = World()
    client = inside(world)
    client.send(auth(0x19))
    client.disconnect()
    world.decide(client, welcome())
    assert world.broker.tick(world.now + 1e6) is None


# ── credentials that expire ────────────────────────────────────────────────────────────────────────────────────────


def until_then(at: float, username: str | None = "token's") -> Verdict:
    return Verdict(0, None, username, Grants(frozenset({"staff"}), expires_at=at))


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_is_disconnected_when_its_credentials_expire(version: int) -> None:
    world = World()
    client = world.open(version, must_authenticate=True)
    client.connect("c", username="ann", password=b"token")
    world.decide(client, until_then(world.now + 60))
    assert client.connection.username == "token's"
    assert client.connection.grants.groups == {"staff"}
    client.received()
    world.advance(59.9)
    client.send(Pingreq())
    assert client.received() == [Pingresp()]
    world.advance(0.2)
    if version == V5:
        gone(client, 0x87)
    assert client.closed
    assert client.connection.close_reason == CloseReason.NOT_AUTHORIZED
    assert client.connection.close_detail == "the client's credentials have expired"


def test_credentials_that_have_expired_do_not_last() -> None:
    world = World()
    client = world.open(must_authenticate=True)
    client.connect("c")
    world.decide(client, until_then(world.now - 1))
    world.advance(0.001)
    assert client.closed


def test_a_client_that_leaves_takes_the_end_of_its_credentials_along() -> None:
    world = World()
    client = world.open(must_authenticate=True)
    client.connect("c")
    world.decide(client, until_then(world.now + 60))
    client.disconnect()
    assert world.broker.tick(world.now + 1e6) is None


def test_a_client_that_authenticates_again_stays_as_long_as_its_new_credentials() -> None:
    world = World()
    client = knocking(world)
    world.decide(client, until_then(world.now + 60))
    for seconds in (100, 50):
        client.send(auth(0x19))
        world.decide(client, until_then(world.now + seconds))
    world.advance(49)
    assert not client.closed
    world.advance(2)
    assert client.closed


def test_without_a_name_from_its_credentials_the_certificate_names_a_client() -> None:
    world = World()
    client = world.open(must_authenticate=True, identity="cn")
    client.connect("c", username="said")
    world.decide(client, until_then(world.now + 60, None))
    assert client.connection.username == "cn"
