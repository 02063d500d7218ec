"""Packets, properties and errors are values: equal when they say the same, and they tell what they say."""

import pytest

from mqttlite.wire import errors
from mqttlite.wire.constants import MAX_STRING_BYTES, PUBACK, PUBREC, PUBREL, V5, V311
from mqttlite.wire.errors import PeerError
from mqttlite.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import RETURN_CODE_TEXTS, ReasonCode, connack_return_code, describe
from tests.support.packets import REASON_CODES

PUBLISH = Publish(b"a", b"p", 1, True, True, 7, Properties(topic_alias=1))
PUBLISHES = [
    Publish(b"b", b"p", 1, True, True, 7, Properties(topic_alias=1)),
    Publish(b"a", b"q", 1, True, True, 7, Properties(topic_alias=1)),
    Publish(b"a", b"p", 2, True, True, 7, Properties(topic_alias=1)),
    Publish(b"a", b"p", 1, False, True, 7, Properties(topic_alias=1)),
    Publish(b"a", b"p", 1, True, False, 7, Properties(topic_alias=1)),
    Publish(b"a", b"p", 1, True, True, 8, Properties(topic_alias=1)),
    Publish(b"a", b"p", 1, True, True, 7, Properties(topic_alias=2)),
    Publish(b"a", b"p", 1, True, True, 7),
]


def test_a_publish_is_equal_to_its_like() -> None:
    like = Publish(b"a", b"p", 1, True, True, 7, Properties(topic_alias=1))
    assert like == PUBLISH
    assert hash(like) == hash(PUBLISH)
    assert PUBLISH not in PUBLISHES
    assert PUBLISH != b"a"


def test_the_repr_of_a_publish_has_its_fields() -> None:
    assert repr(PUBLISH) == (
        "Publish(topic=b'a', payload=b'p', qos=1, retain=True, dup=True, packet_id=7, "
        "properties=Properties(topic_alias=1))"
    )


def test_a_long_payload_is_shown_in_part() -> None:
    assert repr(64 * b"x") in repr(Publish(b"a", 1000 * b"x"))


def test_an_ack_is_equal_to_its_like() -> None:
    ack = Ack(PUBREC, 1, 0x87, Properties(reason_string="no"))
    assert ack == Ack(PUBREC, 1, 0x87, Properties(reason_string="no"))
    assert hash(ack) == hash(Ack(PUBREC, 1, 0x87, Properties(reason_string="no")))
    assert ack not in [
        Ack(PUBACK, 1, 0x87, Properties(reason_string="no")),
        Ack(PUBREC, 2, 0x87, Properties(reason_string="no")),
        Ack(PUBREC, 1, 0x80, Properties(reason_string="no")),
        Ack(PUBREC, 1, 0x87),
    ]
    assert ack != (PUBREC, 1)


def test_the_repr_of_an_ack_has_its_fields() -> None:
    assert repr(Ack(PUBREL, 5, 0x92)) == "Ack(PUBREL, packet_id=5, reason_code=0x92, properties=Properties())"


def test_a_connect_is_equal_to_its_like() -> None:
    connect = Connect("a", V5, False, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1))
    assert connect == Connect("a", V5, False, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1))
    assert hash(connect) == hash(Connect("a", V5, False, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1)))
    assert connect not in [
        Connect("b", V5, False, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V311, False, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V5, True, 10, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V5, False, 11, "u", b"p", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V5, False, 10, "v", b"p", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V5, False, 10, "u", b"q", Will(b"w", b""), Properties(receive_maximum=1)),
        Connect("a", V5, False, 10, "u", b"p", Will(b"w", b"x"), Properties(receive_maximum=1)),
        Connect("a", V5, False, 10, "u", b"p", Will(b"w", b"")),
    ]
    assert connect != "a"


def test_a_connect_tells_all_but_its_password() -> None:
    assert repr(Connect("a", username="u", password=b"secret")) == (
        "Connect(client_id='a', version=5, clean_start=True, keep_alive=0, username='u', will=None, "
        "properties=Properties(), is_bridge=False)"
    )


def test_a_disconnect_is_equal_to_its_like() -> None:
    disconnect = Disconnect(0x8B, Properties(reason_string="no"))
    assert disconnect == Disconnect(0x8B, Properties(reason_string="no"))
    assert hash(disconnect) == hash(Disconnect(0x8B, Properties(reason_string="no")))
    assert disconnect not in [Disconnect(0x8C, Properties(reason_string="no")), Disconnect(0x8B)]
    assert disconnect != 0x8B
    assert repr(Disconnect(4)) == "Disconnect(reason_code=0x04, properties=Properties())"


def test_properties_are_equal_to_their_like() -> None:
    properties = Properties(reason_string="", user_properties=[("k", "v")])
    assert properties == Properties(user_properties=[("k", "v")], reason_string="")
    assert hash(properties) == hash(Properties(user_properties=[("k", "v")], reason_string=""))
    assert properties != Properties(user_properties=[("k", "v")])
    assert properties != Properties(reason_string="", user_properties=[("k", "w")])
    assert properties != "properties"
    assert Properties() == NONE


def test_the_repr_of_properties_has_those_that_are_present() -> None:
    assert repr(Properties(receive_maximum=1, session_expiry_interval=0)) == (
        "Properties(session_expiry_interval=0, receive_maximum=1)"
    )


FROZEN = [
    Will(b"w", b""),
    Connack(True),
    SubscriptionRequest(b"a"),
    Subscribe(1, (SubscriptionRequest(b"a"),)),
    Suback(1, b"\0"),
    Unsubscribe(1, (b"a",)),
    Unsuback(1),
    Pingreq(),
    Pingresp(),
    Auth(),
]


@pytest.mark.parametrize("packet", FROZEN, ids=lambda packet: type(packet).__name__)
def test_a_packet_off_the_message_path_is_frozen(packet: Packet) -> None:
    with pytest.raises(AttributeError):
        packet.properties = NONE
    assert packet in set(FROZEN)


def test_an_error_knows_its_reason_code() -> None:
    spoken = {
        name: error.reason_code
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, PeerError)
    }
    assert spoken == {
        "PeerError": 0x80,
        "MalformedPacket": 0x81,
        "Banned": 0x8A,
        "ConnectionRateExceeded": 0x9F,
        "ProtocolError": 0x82,
        "UnsupportedProtocolVersion": 0x84,
        "ClientIdentifierNotValid": 0x85,
        "BadUserNameOrPassword": 0x86,
        "ServerUnavailable": 0x88,
        "ServerBusy": 0x89,
        "PayloadFormatInvalid": 0x99,
        "RetainNotSupported": 0x9A,
        "QosNotSupported": 0x9B,
        "UseAnotherServer": 0x9C,
        "ServerMoved": 0x9D,
        "NotAuthorized": 0x87,
        "TooManyFailedLogins": 0x9F,
        "BadAuthenticationMethod": 0x8C,
        "TopicFilterInvalid": 0x8F,
        "TopicNameInvalid": 0x90,
        "ReceiveMaximumExceeded": 0x93,
        "TopicAliasInvalid": 0x94,
        "PacketTooLarge": 0x95,
        "QuotaExceeded": 0x97,
    }


def test_every_code_of_every_packet_has_a_name() -> None:
    codes = {code for of_packet in REASON_CODES.values() for code in of_packet}
    assert codes == {int(code) for code in ReasonCode}


@pytest.mark.parametrize(
    ("code", "words"), [(0, "success (0x00)"), (0x87, "not authorized (0x87)"), (0xFF, "reason code 0xFF")]
)
def test_a_code_is_described(code: int, words: str) -> None:
    assert describe(code) == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "unacceptable protocol version"),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "identifier rejected"),
        (ReasonCode.SERVER_UNAVAILABLE, "server unavailable"),
        (ReasonCode.SERVER_BUSY, "server unavailable"),
        (ReasonCode.SERVER_SHUTTING_DOWN, "server unavailable"),
        (ReasonCode.QUOTA_EXCEEDED, "server unavailable"),
        (ReasonCode.CONNECTION_RATE_EXCEEDED, "server unavailable"),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, "bad user name or password"),
        (ReasonCode.NOT_AUTHORIZED, "not authorized"),
        (ReasonCode.BANNED, "not authorized"),
        (ReasonCode.BAD_AUTHENTICATION_METHOD, "not authorized"),
    ],
)
def test_a_refusal_has_a_return_code_in_311(code: int, words: str) -> None:
    return_code = connack_return_code(code)
    assert return_code is not None
    assert RETURN_CODE_TEXTS[return_code] == words


def test_311_has_no_return_code_for_malformed() -> None:
    assert connack_return_code(ReasonCode.MALFORMED_PACKET) is None


def test_a_cursor_moves_on() -> None:
    cursor = Cursor(b"\1\2\3\4\5\6\7\x80\x01rest")
    assert (cursor.u8(), cursor.u16(), cursor.u32(), cursor.varint()) == (1, 0x0203, 0x04050607, 128)
    assert not cursor.at_end
    assert cursor.rest() == b"rest"
    assert cursor.at_end
    assert cursor.rest() == b""
    cursor.finish()


def test_a_string_has_65535_bytes_at_most() -> None:
    cursor = Cursor(b"\xff\xff" + MAX_STRING_BYTES * b"x" + b"\0\0")
    assert cursor.utf8() == MAX_STRING_BYTES * "x"
    assert cursor.utf8_bytes() == b""


def test_properties_are_replaced_one_by_one() -> None:
    given = Properties(content_type="text/plain", response_topic="a", user_properties=[("k", "v")])
    changed = given.replace(response_topic=None, user_properties=[*given.user_properties, ("unit", "C")])
    assert changed == Properties(content_type="text/plain", user_properties=[("k", "v"), ("unit", "C")])
    assert given.response_topic == "a", "the given ones stay as they are"
    with pytest.raises(TypeError, match="no_such"):
        given.replace(no_such=1)
