"""Subscription identifiers before other properties of a PUBLISH: put there and taken from there without decoding."""

import pytest

from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.plain import split_identifiers, with_identifiers
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import NONE, Properties, decode_properties, encode_properties

PROPERTIES = [NONE, Properties(content_type="text"), Properties(content_type="x" * 200)]


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("identifiers", [(1,), (127, 128), (16_383, 16_384, 2_097_151), (2_097_152, 268_435_455)])
def test_identifiers_are_those_that_decoding_finds(properties: Properties, identifiers: tuple[int, ...]) -> None:
    block = encode_properties(properties, PUBLISH)
    more = with_identifiers(block, identifiers)
    found = decode_properties(Cursor(more), PUBLISH)
    assert found.subscription_identifiers == list(identifiers)
    assert found.content_type == properties.content_type
    if len(more) < 128:
        assert split_identifiers(more) == (identifiers, block)


@pytest.mark.parametrize("faulty", [b"\x0b", b"\x0b\x00", b"\x0b\x80", b"\x0b\x80\x00", b"\x0b\xff\xff\xff\xff\x01"])
def test_what_is_no_identifier_is_left_to_the_decoder(faulty: bytes) -> None:
    for before in ((), (5,)):
        good = b"".join(b"\x0b%c" % each for each in before)
        block = bytes([len(good) + len(faulty)]) + good + faulty
        assert split_identifiers(block) == (before, bytes([len(faulty)]) + faulty)
