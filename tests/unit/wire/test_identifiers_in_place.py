"""Subscription identifiers among other properties of a PUBLISH: put there and taken from there without decoding."""

from typing import Any

import pytest

from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.plain import split_identifiers, with_identifiers
from mqttlite.wire.properties import Properties, encode_properties

PROPERTIES: list[dict[str, Any]] = [
    {},
    {"user_properties": [("k", "v"), ("k", "w")]},
    {"content_type": "text", "user_properties": [("k", "v")]},
    {"content_type": "x" * 200},
    {
        "payload_format_indicator": 1,
        "message_expiry_interval": 9,
        "content_type": "c",
        "response_topic": "r",
        "correlation_data": b"d" * 300,
        "user_properties": [("k", "v")],
    },
]


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("identifiers", [(1,), (127, 128), (16_383, 16_384, 2_097_151), (2_097_152, 268_435_455)])
def test_identifiers_are_where_the_encoder_has_them(properties: dict[str, Any], identifiers: tuple[int, ...]) -> None:
    block = encode_properties(Properties(**properties), PUBLISH)
    more = with_identifiers(block, identifiers)
    assert more == encode_properties(Properties(subscription_identifiers=list(identifiers), **properties), PUBLISH)
    if len(more) < 128 and set(properties) <= {"user_properties"}:
        assert split_identifiers(more) == (identifiers, block)


@pytest.mark.parametrize("faulty", [b"\x0b", b"\x0b\x00", b"\x0b\x80", b"\x0b\x80\x00", b"\x0b\xff\xff\xff\xff\x01"])
def test_a_faulty_identifier_is_left_to_the_decoder(faulty: bytes) -> None:
    for before in ((), (5,)):
        good = b"".join(b"\x0b%c" % each for each in before)
        block = bytes([len(good) + len(faulty)]) + good + faulty
        assert split_identifiers(block) == (before, bytes([len(faulty)]) + faulty)
