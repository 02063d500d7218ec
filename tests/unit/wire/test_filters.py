"""A `FilterReader` reads what `decode` decodes, in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.wire.constants import V5, V31, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError
from mqttlite.wire.filters import FilterReader
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.properties import Properties

REQUESTS = st.lists(
    st.builds(SubscriptionRequest, st.sampled_from([b"a", b"b/+", b"#"]), st.integers(0, 2)), min_size=1, max_size=9
)


def read(first: int, body: bytes, version: int, most: int) -> list[SubscriptionRequest]:
    reader = FilterReader(first, body, version)
    found = []
    for _ in range(2):
        found = []
        while not reader.has_ended():
            part = reader.take(most)
            assert 0 < len(part) <= most
            found += part
        assert reader.take(most) == []
        reader.rewind()
    return found


def body_of(packet: Subscribe | Unsubscribe, version: int) -> tuple[int, bytes]:
    ((first, body),) = Framer(100_000).split(encode(packet, version))
    return first, body


@given(REQUESTS, st.integers(1, 10), st.sampled_from([V31, V311, V5]))
def test_it_reads_the_filters_of_a_subscribe(requests: list[SubscriptionRequest], most: int, version: int) -> None:
    properties = Properties(subscription_identifiers=[9]) if version == V5 else Properties()
    first, body = body_of(Subscribe(3, tuple(requests), properties), version)
    assert read(first, body, version, most) == requests
    reader = FilterReader(first, body, version)
    assert reader.packet_id == 3
    assert reader.properties.subscription_identifiers == ([9] if version == V5 else [])


@given(REQUESTS, st.integers(1, 10), st.sampled_from([V31, V311, V5]))
def test_it_reads_the_filters_of_an_unsubscribe(requests: list[SubscriptionRequest], most: int, version: int) -> None:
    filters = tuple(each.topic_filter for each in requests)
    first, body = body_of(Unsubscribe(3, filters), version)
    assert tuple(each.topic_filter for each in read(first, body, version, most)) == filters


@pytest.mark.parametrize("first", [0x82, 0xA2, 0x80, 0xA0])
@given(body=st.binary(max_size=12), version=st.sampled_from([V31, V311, V5]))
def test_it_raises_for_the_packets_for_which_decode_raises(first: int, body: bytes, version: int) -> None:
    try:
        decode(first, body, version)
        expected = ""
    except PeerError as error:
        expected = type(error).__name__
    try:
        read(first, body, version, 2)
        got = ""
    except PeerError as error:
        got = type(error).__name__
    assert got == expected
