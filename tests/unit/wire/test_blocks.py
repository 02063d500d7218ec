"""Blocks are, byte for byte, what the packets one by one would be."""

import tracemalloc

import pytest

from mqttlite.wire.blocks import PUBACKS, PUBCOMPS, PUBRECS, PUBRELS, counted, ids_of, leading, numbered
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode_ack, encode_publish
from mqttlite.wire.packets import Publish


def acks(packet_type: int, *packet_ids: int, reason_code: int = 0) -> bytes:
    return b"".join([encode_ack(packet_type, packet_id, V5, reason_code) for packet_id in packet_ids])


def publishes(*packet_ids: int, version: int = V311) -> bytes:
    return b"".join([encode_publish(Publish(b"t", b"xy", 1, packet_id=each), version) for each in packet_ids])


@pytest.mark.parametrize(
    ("packet_type", "table"), [(PUBACK, PUBACKS), (PUBREC, PUBRECS), (PUBREL, PUBRELS), (PUBCOMP, PUBCOMPS)]
)
@pytest.mark.parametrize(("first", "count"), [(1, 1), (254, 5), (65_533, 3)])
def test_acknowledgements_that_are_counted_are_a_slice(packet_type: int, table: bytes, first: int, count: int) -> None:
    assert counted(table, first, count) == acks(packet_type, *range(first, first + count))


@pytest.mark.parametrize(
    ("data", "most", "found"),
    [
        (acks(PUBACK, 5, 6, 7, 8), 4, {4}),
        (acks(PUBACK, 5, 6, 7, 8), 2, {2}),
        (acks(PUBACK, 5, 6, 7, 8), 9, {4}),
        (acks(PUBACK, 5, 6, 7, 8)[:-1], 9, {3}),
        (acks(PUBACK, 5, 6, 7, 9), 9, {2, 3}),
        (acks(PUBACK, 6, 7), 9, {0}),
        (acks(PUBREC, 5, 6), 9, {0}),
        (b"", 9, {0}),
    ],
)
def test_those_that_come_in_order_are_seen_at_once(data: bytes, most: int, found: set[int]) -> None:
    assert leading(b"??" + data, 2, PUBACKS, 5, most) in found


@pytest.mark.parametrize("there", [255, 256, 257, 511, 512, 513, 1_500])
@pytest.mark.parametrize("more_might_be", [0, 1, 5_000])
def test_long_blocks_are_seen_in_a_few_steps(there: int, more_might_be: int) -> None:
    data = acks(PUBACK, *range(5, 5 + there), *[9] * more_might_be)
    at, steps = 0, 0
    while at < there:
        found = leading(data, 4 * at, PUBACKS, 5 + at, there + more_might_be - at)
        assert (there - at) / 2 <= found <= there - at
        at += found
        steps += 1
    assert steps == 1 if more_might_be == 0 else steps <= 11


def test_a_short_block_costs_little_where_a_long_one_might_be() -> None:
    data = acks(PUBREL, 1, *[9] * 60_000)
    tracemalloc.start()
    assert leading(data, 0, PUBRELS, 1, 60_000) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000, "for each of 60 000 messages it would be half a megabyte"


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("count", [1, 4])
def test_packets_get_new_identifiers_and_stay_the_same_otherwise(version: int, count: int) -> None:
    came = publishes(*range(7, 7 + count), version=version)
    size = len(came) // count
    assert numbered(came, size, 5, 254) == publishes(*range(254, 254 + count), version=version)


@pytest.mark.parametrize(
    ("packet_ids", "taken", "is_counted"),
    [
        ([1, 2, 3], 3, True),
        ([255, 256, 257], 3, True),
        ([65_534, 65_535], 2, True),
        ([65_535, 1], 2, False),
        ([7, 7, 8], 3, False),
        ([256, 512, 768], 3, False),  # their low bytes are zero, and they are not
        ([5, 0, 6], 1, False),
        ([256, 512, 0, 0], 2, False),
        ([65_535, 0], 1, False),
    ],
)
def test_identifiers_are_taken_up_to_the_first_that_is_none(
    packet_ids: list[int], taken: int, is_counted: bool
) -> None:
    data = b"".join([b"-" + packet_id.to_bytes(2, "big") + b"-" for packet_id in packet_ids])
    ids = ids_of(data, 1, len(data), 4)
    assert (ids.first, ids.count, ids.counted) == (packet_ids[0], taken, is_counted)
    assert [ids.get(number) for number in range(taken)] == packet_ids[:taken]


@pytest.mark.parametrize("packet_ids", [(254, 255, 256), (9, 3, 9)])
@pytest.mark.parametrize("reason_code", [0, 0x10])
@pytest.mark.parametrize("packet_type", [PUBACK, PUBREC])
def test_all_are_acknowledged_with_one_reason(packet_ids: tuple[int, ...], reason_code: int, packet_type: int) -> None:
    data = b"".join([packet_id.to_bytes(2, "big") for packet_id in packet_ids])
    block = ids_of(data, 0, len(data), 2).acknowledged(packet_type, reason_code)
    assert block == acks(packet_type, *packet_ids, reason_code=reason_code)
