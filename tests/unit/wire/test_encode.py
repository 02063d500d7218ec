"""What fits is written in its shortest form, the same for all receivers; what does not fit is a ValueError."""

import itertools
from collections.abc import Callable

import pytest

from mqttlite.wire.constants import MAX_REMAINING_LENGTH, PUBACK, PUBREL, SUBSCRIBE, V5, V31, V311
from mqttlite.wire.encode import PINGREQ_FRAME, PINGRESP_FRAME, encode, encode_ack, encode_publish, publish_parts
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
from mqttlite.wire.primitives import (
    encode_binary,
    encode_packet_id,
    encode_u8,
    encode_u16,
    encode_u32,
    encode_utf8,
    encode_varint,
)
from mqttlite.wire.properties import NONE, Properties, encode_properties
from tests.support.packets import CARRIES, VERSIONS, raw
from tests.support.table import over
from tests.unit.wire.test_malformed import PROPERTY_BYTES, number_of

LONG = 65536 * b"x"

UNFIT: list[tuple[str, int, Packet, str]] = [
    ("PUBLISH at QoS 3", V311, Publish(b"a", b"", 3, packet_id=1), "QoS 3"),
    ("PUBLISH at QoS -1", V5, Publish(b"a", b"", -1), "QoS -1"),
    ("PUBLISH again at QoS 0", V5, Publish(b"a", b"", dup=True), "DUP"),
    ("PUBLISH without an identifier", V5, Publish(b"a", b"", 1), "packet identifier 0:"),
    ("PUBLISH with identifier 65 536", V311, Publish(b"a", b"", 2, packet_id=65536), "packet identifier 65536:"),
    ("PUBLISH with a long topic", V311, Publish(LONG, b""), "65536 bytes"),
    ("PUBACK for 0", V5, Ack(PUBACK, 0), "packet identifier 0:"),
    ("PUBACK for -1", V311, Ack(PUBACK, -1), "packet identifier -1:"),
    ("PUBACK for 65 536", V5, Ack(PUBACK, 65536, 0x80), "packet identifier 65536:"),
    ("PUBACK with code 256", V5, Ack(PUBACK, 1, 256), "1 unsigned bytes"),
    ("CONNECT with a keep-alive of a day", V5, Connect("a", keep_alive=86400), "2 unsigned bytes"),
    ("CONNECT with a long name", V5, Connect(65536 * "x"), "65536 bytes"),
    ("CONNECT with U+0000", V5, Connect("a\0"), "U+0000"),
    ("CONNECT with a surrogate", V5, Connect("\ud800"), "surrogates"),
    ("CONNECT with a surrogate user", V5, Connect("a", username="\udfff"), "surrogates"),
    ("CONNECT with a long password", V5, Connect("a", password=LONG), "65536 bytes"),
    ("CONNECT with a password alone in 3.1.1", V311, Connect("a", V311, password=b"p"), "no user name"),
    ("CONNECT of a bridge in 5.0", V5, Connect("a", is_bridge=True), "No Local"),
    ("CONNECT with version 256", V5, Connect("a", 256), "1 unsigned bytes"),
    ("CONNECT with a will at QoS 3", V5, Connect("a", will=Will(b"w", b"", 3)), "QoS 3"),
    ("CONNECT with a long will", V5, Connect("a", will=Will(b"w", LONG)), "65536 bytes"),
    ("CONNACK with code -1", V5, Connack(False, -1), "1 unsigned bytes"),
    ("SUBSCRIBE without an identifier", V5, Subscribe(0, (SubscriptionRequest(b"a"),)), "packet identifier 0:"),
    ("SUBSCRIBE at QoS 4", V5, Subscribe(1, (SubscriptionRequest(b"a", 4),)), "QoS 4"),
    ("SUBSCRIBE at QoS 3 in 3.1.1", V311, Subscribe(1, (SubscriptionRequest(b"a", 3),)), "QoS 3"),
    (
        "SUBSCRIBE with retain handling 3",
        V5,
        Subscribe(1, (SubscriptionRequest(b"a", retain_handling=3),)),
        "retain handling 3",
    ),
    ("SUBSCRIBE to a long filter", V5, Subscribe(1, (SubscriptionRequest(LONG),)), "65536 bytes"),
    ("SUBACK without an identifier", V5, Suback(0, b"\0"), "packet identifier 0:"),
    ("UNSUBSCRIBE without an identifier", V5, Unsubscribe(0, (b"a",)), "packet identifier 0:"),
    ("UNSUBSCRIBE from a long filter", V311, Unsubscribe(1, (LONG,)), "65536 bytes"),
    ("UNSUBACK without an identifier", V311, Unsuback(0), "packet identifier 0:"),
    ("DISCONNECT with code 256", V5, Disconnect(256), "1 unsigned bytes"),
    ("AUTH in 3.1.1", V311, Auth(), "before 5.0"),
    ("AUTH in 3.1", V31, Auth(), "before 5.0"),
]

UNFIT_PROPERTIES: list[tuple[Properties, str, str]] = [
    (Properties(payload_format_indicator=2), "PUBLISH", "may not be 2"),
    (Properties(payload_format_indicator=-1), "PUBLISH", "1 unsigned bytes"),
    (Properties(message_expiry_interval=2**32), "PUBLISH", "4 unsigned bytes"),
    (Properties(message_expiry_interval=-1), "PUBLISH", "4 unsigned bytes"),
    (Properties(topic_alias=0), "PUBLISH", "topic_alias may not be 0"),
    (Properties(topic_alias=65536), "PUBLISH", "2 unsigned bytes"),
    (Properties(subscription_identifiers=[0]), "SUBSCRIBE", "may not be 0"),
    (Properties(subscription_identifiers=[MAX_REMAINING_LENGTH + 1]), "SUBSCRIBE", "variable byte integer"),
    (Properties(receive_maximum=0), "CONNECT", "receive_maximum may not be 0"),
    (Properties(maximum_packet_size=0), "CONNACK", "maximum_packet_size may not be 0"),
    (Properties(maximum_qos=2), "CONNACK", "maximum_qos may not be 2"),
    (Properties(reason_string="a\0"), "PUBACK", "U+0000"),
    (Properties(reason_string=65536 * "x"), "PUBACK", "65536 bytes"),
    (Properties(user_properties=[("k", "\ud800")]), "AUTH", "surrogates"),
    (Properties(correlation_data=LONG), "PUBLISH", "65536 bytes"),
]


@over(UNFIT, lambda what, *_row: what)
def test_a_value_that_does_not_fit_is_an_error(what: str, version: int, packet: Packet, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        encode(packet, version)


@over(UNFIT_PROPERTIES)
def test_a_property_that_does_not_fit_is_an_error(properties: Properties, packet: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        encode_properties(properties, number_of(packet))


@over(itertools.product(PROPERTY_BYTES, CARRIES))
def test_a_packet_is_given_its_own_properties_only(field: str, packet: str) -> None:
    least: dict[str, object] = {"user_properties": [("", "")], "subscription_identifiers": [1]}
    least |= {"receive_maximum": 1, "topic_alias": 1, "maximum_packet_size": 1}
    kind = PROPERTY_BYTES[field]
    is_text = len(kind) == 3 and field not in ("server_keep_alive", "topic_alias_maximum")
    is_blob = field in ("correlation_data", "authentication_data")
    value = least.get(field, b"" if is_blob else "" if is_text else 0)
    properties = Properties(**{field: value})
    if field in CARRIES[packet]:
        assert encode_properties(properties, number_of(packet)) == bytes([len(kind)]) + kind
    else:
        with pytest.raises(ValueError, match=f"property {field} may not be in this packet"):
            encode_properties(properties, number_of(packet))


def test_properties_that_are_empty_have_a_length_of_zero() -> None:
    assert encode_properties(NONE, SUBSCRIBE) == encode_properties(Properties(), SUBSCRIBE) == b"\0"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_publish_without_its_identifier_is_the_same_for_all(version: int) -> None:
    head, tail = publish_parts(b"a/b", b"hi", 1, False, NONE, version)
    for packet_id in (1, 0xFFFF):
        frame = head + encode_packet_id(packet_id) + tail
        assert frame == encode_publish(Publish(b"a/b", b"hi", 1, packet_id=packet_id), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_publish_at_qos_0_is_its_parts(version: int) -> None:
    assert b"".join(publish_parts(b"a", b"hi", 0, True, NONE, version)) == encode(
        Publish(b"a", b"hi", retain=True), version
    )


def test_a_payload_is_not_copied_before_5() -> None:
    payload = b"hello"
    assert publish_parts(b"a", payload, 0, False, NONE, V311)[1] is payload


def test_a_packet_is_as_long_as_four_bytes_can_say() -> None:
    fits = MAX_REMAINING_LENGTH - 3
    assert publish_parts(b"a", bytes(fits), 0, False, NONE, V311)[0] == raw("30 ffffff7f 0001 'a'")
    with pytest.raises(ValueError, match="268435456 does not fit"):
        publish_parts(b"a", bytes(fits + 1), 0, False, NONE, V311)
    with pytest.raises(ValueError, match="268435457 does not fit"):
        publish_parts(b"a", bytes(fits), 1, False, NONE, V311)


@pytest.mark.parametrize("version", [V31, V311])
def test_additions_of_5_0_are_left_out_for_3_1_1(version: int) -> None:
    reason = Properties(reason_string="no")
    request = SubscriptionRequest(b"a", 1, True, True, 2)
    assert encode(Publish(b"a", b"", properties=Properties(topic_alias=1)), version) == raw("30 03 0001 'a'")
    assert encode(Ack(PUBREL, 1, 0x92, reason), version) == raw("62 02 0001")
    assert encode(Connack(False, 5, reason), version) == raw("20 02 00 05")
    assert encode(Subscribe(1, (request,), Properties(subscription_identifiers=[1])), version) == raw(
        "82 06 0001 0001 'a' 01"
    )
    assert encode(Suback(1, b"\x01", reason), version) == raw("90 03 0001 01")
    assert encode(Unsubscribe(1, (b"a",), Properties(user_properties=[("k", "v")])), version) == raw(
        "a2 05 0001 0001 'a'"
    )
    assert encode(Unsuback(1, b"\x11", reason), version) == raw("b0 02 0001")
    assert encode(Disconnect(0x8B, reason), version) == raw("e0 00")


def test_a_connack_of_31_says_nothing_of_a_session() -> None:
    assert encode(Connack(True), V31) == raw("20 02 00 00")


def test_pings_are_ready_made() -> None:
    assert (encode(Pingreq(), V5), encode(Pingresp(), V311)) == (PINGREQ_FRAME, PINGRESP_FRAME)


def test_an_ack_is_as_short_as_can_be() -> None:
    reason = Properties(reason_string="")
    assert encode_ack(PUBACK, 1, V5) == encode_ack(PUBACK, 1, V5, 0, Properties()) == raw("40 02 0001")
    assert encode_ack(PUBACK, 1, V5, 0x10) == raw("40 03 0001 10")
    assert encode_ack(PUBACK, 1, V5, 0, reason) == raw("40 07 0001 00 03 1f 0000")


def test_a_disconnect_is_as_short_as_can_be() -> None:
    assert encode(Disconnect(0), V5) == encode(Disconnect(0, Properties()), V5) == raw("e0 00")
    assert encode(Disconnect(0x8B), V5) == raw("e0 01 8b")
    assert encode(Disconnect(0, Properties(reason_string="")), V5) == raw("e0 05 00 03 1f 0000")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2097151, "ffff7f"),
        (2097152, "80808001"),
        (268435455, "ffffff7f"),
    ],
)
def test_a_variable_byte_integer_grows_as_in_table_1_1(value: int, text: str) -> None:
    assert encode_varint(value) == raw(text)


@pytest.mark.parametrize("value", [-1, MAX_REMAINING_LENGTH + 1])
def test_a_variable_byte_integer_ends_at_four_bytes(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_varint(value)


@pytest.mark.parametrize(("write", "size"), [(encode_u8, 1), (encode_u16, 2), (encode_u32, 4)])
def test_an_integer_fits_its_bytes(write: Callable[[int], bytes], size: int) -> None:
    highest = 256**size - 1
    assert write(1) == bytes(size - 1) + b"\1"
    assert write(highest) == size * b"\xff"
    for value in (-1, highest + 1):
        with pytest.raises(ValueError, match=f"{value} does not fit {size} unsigned bytes"):
            write(value)


def test_a_packet_identifier_has_two_bytes_and_is_not_zero() -> None:
    assert (encode_packet_id(1), encode_packet_id(65535)) == (b"\0\1", b"\xff\xff")
    for packet_id in (-1, 0, 65536):
        with pytest.raises(ValueError, match=f"packet identifier {packet_id}:"):
            encode_packet_id(packet_id)


def test_a_field_has_65535_bytes_at_most() -> None:
    assert encode_binary(65535 * b"x") == b"\xff\xff" + 65535 * b"x"
    assert encode_utf8(21845 * "\u20ac") == b"\xff\xff" + 21845 * b"\xe2\x82\xac"
    with pytest.raises(ValueError, match="field of 65536 bytes"):
        encode_binary(65536 * b"x")
    with pytest.raises(ValueError, match="field of 65536 bytes"):
        encode_utf8(65533 * "x" + "\u20ac")
