"""Properties that are passed on as they came: never any that decoding would refuse, or that are only for us."""

from random import Random

import pytest

from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.errors import PeerError
from mqttlite.wire.plain import NO_EXPIRY, NOT_PLAIN, expiry_if_plain
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import Properties, decode_properties, encode_properties

PLAIN = {
    "an indicator": Properties(payload_format_indicator=1),
    "an expiry": Properties(message_expiry_interval=3_600),
    "none left": Properties(message_expiry_interval=0),
    "the longest": Properties(message_expiry_interval=0xFFFF_FFFF),
    "a content type": Properties(content_type="text/plain"),
    "an empty one": Properties(content_type=""),
    "a response topic": Properties(response_topic="answers/7"),
    "correlation data": Properties(correlation_data=b"\x00\xff\x80"),
    "user properties": Properties(user_properties=[("a", "1"), ("a", "1"), ("", "")]),
    "all": Properties(
        payload_format_indicator=0,
        message_expiry_interval=7,
        content_type="c",
        response_topic="r",
        correlation_data=b"",
        user_properties=[("a", "b")],
    ),
}
OTHERS = {
    "an alias": "23 0001",
    "a subscription identifier": "0B 01",
    "a property of CONNECT": "11 00000001",
    "an unknown property": "7F 00",
    "an identifier of two bytes": "8101 00",
    "an indicator of two": "01 02",
    "an indicator that is cut off": "01",
    "an expiry that is cut off": "02 000000",
    "two expiries": "02 00000001 02 00000001",
    "two indicators": "01 00 01 00",
    "two content types": "03 0000 03 0000",
    "a length that is cut off": "03 00",
    "a text that is cut off": "03 0002 41",
    "half a user property": "26 0001 41",
    "U+0000": "03 0001 00",
    "U+0000 in a value": "26 0001 41 0001 00",
    "text that is not UTF-8": "03 0001 FF",
    "a surrogate": "03 0003 EDA080",
    "text beyond ASCII": "03 0002 C3A9",
    "a response topic with a plus": "08 0003 612F2B",
    "a response topic with a number sign": "08 0001 23",
    "no response topic": "08 0000",
}


def decoded(block: bytes) -> Properties:
    return decode_properties(Cursor(bytes((len(block),)) + block), PUBLISH)


@pytest.mark.parametrize("properties", PLAIN.values(), ids=PLAIN)
def test_these_are_plain(properties: Properties) -> None:
    block = encode_properties(properties, PUBLISH)
    expected = properties.message_expiry_interval
    for before, behind in ((b"", b""), (b"\x26\xff", b"\x03\x00\x00")):  # wherever they lie
        data = before + block + behind
        found = expiry_if_plain(data, len(before) + 1, len(before) + len(block))
        assert found == (NO_EXPIRY if expected is None else expected)


@pytest.mark.parametrize("block", OTHERS.values(), ids=OTHERS)
def test_these_are_not(block: str) -> None:
    data = bytes.fromhex(block)
    assert expiry_if_plain(data, 0, len(data)) == NOT_PLAIN
    assert expiry_if_plain(data + b"\x00" * 9, 0, len(data)) == NOT_PLAIN  # what lies behind is of something else


def test_nothing_is_plain() -> None:
    assert expiry_if_plain(b"\x23", 0, 0) == NO_EXPIRY


@pytest.mark.long
def test_every_plain_packet_can_be_decoded_and_says_the_same() -> None:
    random = Random(1)
    blocks = [encode_properties(each, PUBLISH)[1:] for each in PLAIN.values()]
    blocks += [bytes.fromhex(each) for each in OTHERS.values()]
    plain = 0
    for _ in range(20_000):
        block = bytearray(b"".join(random.choices(blocks, k=random.randint(1, 3)))[:100])
        for _ in range(random.choice([0, 0, 1, 2])):
            block[random.randrange(len(block))] = random.choice([0, 1, 2, 3, 8, 9, 0x0B, 0x23, 0x26, 0x2B, 0x41, 0xFF])
        found = expiry_if_plain(bytes(block), 0, len(block))
        if found == NOT_PLAIN:
            continue
        plain += 1
        try:
            properties = decoded(bytes(block))
        except PeerError as error:
            pytest.fail(f"{block.hex()}: {error}")
        assert (properties.topic_alias, properties.subscription_identifiers) == (None, [])
        assert properties.message_expiry_interval == (None if found == NO_EXPIRY else found)
        assert properties.response_topic is None or not {"+", "#"} & set(properties.response_topic or "+")
    assert plain > 1_000
