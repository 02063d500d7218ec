"""What breaks a statement is refused, with the error and the words that belong to it."""

import itertools
import re

import pytest

from mqttlite.wire.constants import AUTH, CONNECT, PACKET_NAMES, PUBLISH, V5, V31, V311
from mqttlite.wire.decode import connect_version, decode
from mqttlite.wire.errors import MalformedPacket, PeerError, ProtocolError, UnsupportedProtocolVersion
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import WILL, decode_properties
from tests.support.packets import CARRIES, REASON_CODES, RETURN_CODES, decode_frame, raw
from tests.support.table import over
from tests.unit.wire.good import GOOD
from tests.unit.wire.malformed import (
    EITHER,
    NOT_UTF8,
    PROPERTIES,
    STRINGS_V5,
    STRINGS_V311,
    V5_ONLY,
    V31_ONLY,
    V311_ONLY,
)

ROWS = [
    *[(V31, *row) for row in V31_ONLY],
    *[(V311, *row) for row in EITHER + V311_ONLY],
    *[(V5, *row) for row in EITHER + V5_ONLY],
]
STRINGS = [(V311, *row) for row in STRINGS_V311] + [(V5, *row) for row in STRINGS_V5]

PROPERTY_BYTES = {
    field: raw(text)
    for field, text in {
        "payload_format_indicator": "01 00",
        "message_expiry_interval": "02 00000000",
        "content_type": "03 0000",
        "response_topic": "08 0000",
        "correlation_data": "09 0000",
        "subscription_identifiers": "0b 01",
        "session_expiry_interval": "11 00000000",
        "assigned_client_identifier": "12 0000",
        "server_keep_alive": "13 0000",
        "authentication_method": "15 0000",
        "authentication_data": "16 0000",
        "request_problem_information": "17 00",
        "will_delay_interval": "18 00000000",
        "request_response_information": "19 00",
        "response_information": "1a 0000",
        "server_reference": "1c 0000",
        "reason_string": "1f 0000",
        "receive_maximum": "21 0001",
        "topic_alias_maximum": "22 0000",
        "topic_alias": "23 0001",
        "maximum_qos": "24 00",
        "retain_available": "25 00",
        "user_properties": "26 0000 0000",
        "maximum_packet_size": "27 00000001",
        "wildcard_subscription_available": "28 00",
        "subscription_identifier_available": "29 00",
        "shared_subscription_available": "2a 00",
    }.items()
}
"""Each property with its least value."""

AGAIN = {"user_properties", "subscription_identifiers"}
"""The two that may come more than once (the second in PUBLISH only)."""

STRING_PROPERTIES = [
    *("content_type", "response_topic", "assigned_client_identifier", "authentication_method"),
    *("response_information", "server_reference", "reason_string"),
]


def number_of(packet: str) -> int:
    return WILL if packet == "will" else PACKET_NAMES.index(packet)


def carrier_of(field: str) -> int:
    """A packet that may carry this property."""
    return number_of(next(packet for packet, fields in CARRIES.items() if field in fields))


def block(*properties: bytes) -> Cursor:
    joined = b"".join(properties)
    return Cursor(bytes([len(joined)]) + joined)


@over(ROWS)
def test_it_breaks_the_statement(
    version: int, statement: str, sentence: str, text: str, error: type[PeerError], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        decode_frame(raw(text), version)
    assert type(caught.value) is error


@over(PROPERTIES)
def test_a_property_breaks_the_statement(
    statement: str, sentence: str, text: str, error: type[PeerError], words: str
) -> None:
    by_identifier = {least[0]: field for field, least in PROPERTY_BYTES.items()}
    field = by_identifier.get(raw(text)[0], "user_properties")
    with pytest.raises(error, match=re.escape(words)) as caught:
        decode_properties(block(raw(text)), carrier_of(field))
    assert type(caught.value) is error


@over((*string, *broken) for string in STRINGS for broken in NOT_UTF8)
def test_a_string_is_well_formed_utf8(version: int, where: str, before: str, first: str, why: str, text: str) -> None:
    string = raw(text)
    with pytest.raises(MalformedPacket, match="not UTF-8"):
        decode(raw(first)[0], raw(before) + len(string).to_bytes(2, "big") + string, version)


@over(STRINGS)
def test_a_string_has_no_null_character(version: int, where: str, before: str, first: str) -> None:
    with pytest.raises(MalformedPacket, match=r"U\+0000"):
        decode(raw(first)[0], raw(before) + raw("0003 'a' 00 'b'"), version)


@over((field, *broken) for field in STRING_PROPERTIES for broken in NOT_UTF8)
def test_a_string_property_is_well_formed_utf8(field: str, why: str, text: str) -> None:
    string = raw(text)
    with pytest.raises(MalformedPacket, match="not UTF-8"):
        decode_properties(block(PROPERTY_BYTES[field][:1], bytes([0, len(string)]), string), carrier_of(field))


@over((field,) for field in STRING_PROPERTIES)
def test_a_string_property_has_no_null_character(field: str) -> None:
    with pytest.raises(MalformedPacket, match=r"U\+0000"):
        decode_properties(block(PROPERTY_BYTES[field][:1], b"\0\1\0"), carrier_of(field))


@over(itertools.product(PROPERTY_BYTES, CARRIES))
def test_a_packet_carries_its_own_properties_only(field: str, packet: str) -> None:
    method = PROPERTY_BYTES["authentication_method"] if field == "authentication_data" else b""
    if field in CARRIES[packet]:
        decoded = decode_properties(block(method, PROPERTY_BYTES[field]), number_of(packet))
        assert field in [name for name, _value in decoded.present()]
    else:
        with pytest.raises(MalformedPacket, match="may not be in this packet"):
            decode_properties(block(PROPERTY_BYTES[field]), number_of(packet))


@over((field,) for field in PROPERTY_BYTES if field not in AGAIN)
def test_a_property_comes_once(field: str) -> None:
    with pytest.raises(ProtocolError, match=f"{field} comes twice"):
        decode_properties(block(PROPERTY_BYTES[field], PROPERTY_BYTES[field]), carrier_of(field))


@over((field,) for field in PROPERTY_BYTES)
def test_a_property_is_whole(field: str) -> None:
    for end in range(1, len(PROPERTY_BYTES[field])):
        with pytest.raises(MalformedPacket, match="middle of a field"):
            decode_properties(block(PROPERTY_BYTES[field][:end]), carrier_of(field))


CODES_AT = {
    (V5, "CONNACK"): ("20", "00 {} 00"),
    (V5, "PUBACK"): ("40", "0001 {}"),
    (V5, "PUBREC"): ("50", "0001 {}"),
    (V5, "PUBREL"): ("62", "0001 {}"),
    (V5, "PUBCOMP"): ("70", "0001 {}"),
    (V5, "SUBACK"): ("90", "0001 00 {}"),
    (V5, "UNSUBACK"): ("b0", "0001 00 {}"),
    (V5, "DISCONNECT"): ("e0", "{}"),
    (V5, "AUTH"): ("f0", "{} 03 15 0000"),
    (V311, "CONNACK"): ("20", "00 {}"),
    (V311, "SUBACK"): ("90", "0001 {}"),
}
"""Where the code of each packet stands."""


@pytest.mark.parametrize(("version", "packet"), CODES_AT)
def test_a_code_is_one_of_its_packet(version: int, packet: str) -> None:
    first, body = CODES_AT[version, packet]
    accepted = []
    for code in range(256):
        try:
            decode(raw(first)[0], raw(body.format(f"{code:02x}")), version)
            accepted.append(code)
        except ProtocolError:
            continue
    assert bytes(accepted) == (REASON_CODES if version == V5 else RETURN_CODES)[packet]


@pytest.mark.parametrize("version", [V311, V5])
def test_the_reserved_flags_of_the_fixed_header_are_as_given(version: int) -> None:
    seen = set()
    for row_version, _what, text, _packet in GOOD:
        first, body = raw(text)[0], raw(text)[2:]
        if row_version != version or first >> 4 == PUBLISH or first in seen:
            continue
        seen.add(first)
        for flags in set(range(16)) - {first & 0x0F}:
            with pytest.raises(MalformedPacket, match=r"header flags .* \[MQTT-2\.1\.3-1\]"):
                decode(first & 0xF0 | flags, body, version)
    assert len(seen) == (AUTH if version == V5 else AUTH - 1) - 1


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_a_connect_that_is_cut_short_is_malformed(version: int) -> None:
    for row_version, _what, text, _packet in GOOD:
        if row_version == version and raw(text)[0] >> 4 == CONNECT:
            body = raw(text)[2:]
            for end in range(len(body)):
                with pytest.raises(MalformedPacket, match="middle of a field"):
                    decode(0x10, body[:end], version)


def test_a_version_that_is_not_whole_is_malformed() -> None:
    for end in range(7):
        with pytest.raises(MalformedPacket):
            connect_version(raw("0004 'MQTT' 05")[:end])


def test_a_version_that_is_not_served_is_named() -> None:
    with pytest.raises(UnsupportedProtocolVersion, match=r"^protocol 'MQTT' level 6: "):
        connect_version(raw("0004 'MQTT' 06"))


def test_a_long_protocol_name_is_not_repeated_in_full() -> None:
    with pytest.raises(ProtocolError, match=r"^protocol 'x{16}' is not MQTT"):
        connect_version(raw("0400" + 0x400 * "78" + "00"))
