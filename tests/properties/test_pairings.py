"""Both protocol versions understand each other: every publisher, receiver and QoS on either side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.wire.constants import V5, V31, V311
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import World, publishes
from tests.support.examples import examples

VERSIONS = (V31, V311, V5)
SPOKEN = Properties(content_type="text/plain", user_properties=[("a", "1"), ("a", "2")], correlation_data=b"\0")


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("receiver_version", VERSIONS)
@pytest.mark.parametrize("publisher_version", VERSIONS)
@examples(8)
@given(payloads=st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_a_message_arrives_whole_and_in_order_whatever_its_ends_speak(
    publisher_version: int, receiver_version: int, qos: int, granted: int, payloads: list[bytes]
) -> None:
    world = World()
    receiver = world.connect("receiver", receiver_version)
    receiver.subscribe("some/+", qos=granted)
    publisher = world.connect("publisher", publisher_version)
    properties = SPOKEN if publisher_version == V5 else NONE
    for spoken in (NONE, properties):
        packets = [
            Publish(b"some/topic", payload, qos, packet_id=at if qos else 0, properties=spoken)
            for at, payload in enumerate(payloads, 1)
        ]
        publisher.send(*packets)
        arrived = publishes(receiver.received())
        assert [(packet.topic, packet.payload) for packet in arrived] == [(b"some/topic", each) for each in payloads]
        assert {packet.qos for packet in arrived} == {min(qos, granted)}
        expected = spoken if receiver_version == V5 else NONE
        assert all(packet.properties == expected for packet in arrived)
