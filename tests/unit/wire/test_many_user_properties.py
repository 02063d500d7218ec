"""A packet may have so many user properties, and no more."""

import pytest

from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import QuotaExceeded
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import MAX_USER_PROPERTIES, Properties


def round_trip(count: int) -> Publish:
    packet = Publish(b"t", b"", properties=Properties(user_properties=[("a", "b")] * count))
    [(first, body)] = Framer(1 << 20).split(encode(packet, V5))
    assert first >> 4 == PUBLISH
    decoded = decode(first, body, V5)
    assert isinstance(decoded, Publish)
    return decoded


def test_as_many_user_properties_as_allowed_are_decoded() -> None:
    assert len(round_trip(MAX_USER_PROPERTIES).properties.user_properties) == MAX_USER_PROPERTIES


def test_a_packet_with_one_more_user_property_is_refused() -> None:
    with pytest.raises(QuotaExceeded, match="user properties"):
        round_trip(MAX_USER_PROPERTIES + 1)
