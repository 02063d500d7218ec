"""Every packet of the standard is read from its bytes and written as its bytes."""

import pytest

from mqttlite.wire.constants import PACKET_NAMES, V5, V31, V311
from mqttlite.wire.decode import connect_version
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Packet
from tests.support.packets import CARRIES, decode_frame, kinds, raw
from tests.support.table import over
from tests.unit.wire.good import ACCEPTED, GOOD


@over(GOOD)
def test_the_bytes_are_the_packet(version: int, what: str, text: str, packet: Packet) -> None:
    assert decode_frame(raw(text), version) == packet


@over(GOOD)
def test_the_packet_is_written_as_these_bytes(version: int, what: str, text: str, packet: Packet) -> None:
    assert encode(packet, version) == raw(text)


@over(ACCEPTED)
def test_packets_that_the_standard_allows_are_read(version: int, what: str, text: str, packet: Packet) -> None:
    assert decode_frame(raw(text), version) == packet


@pytest.mark.parametrize("version", [V311, V5])
def test_the_table_has_every_packet(version: int) -> None:
    there = {PACKET_NAMES[raw(text)[0] >> 4] for row_version, _what, text, _packet in GOOD if row_version == version}
    assert there == set(kinds(version))


def test_the_table_has_every_property_of_every_packet() -> None:
    there = set()
    for version, _what, text, packet in GOOD:
        name = PACKET_NAMES[raw(text)[0] >> 4]
        if version == V5 and not name.startswith("PING"):
            there |= {(name, field) for field, _value in packet.properties.present()}
        if isinstance(packet, Connect) and packet.will:
            there |= {("will", field) for field, _value in packet.will.properties.present()}
    assert there == {(packet, field) for packet, fields in CARRIES.items() for field in fields}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0004 'MQTT' 05", V5),
        ("0004 'MQTT' 04", V311),
        ("0006 'MQIsdp' 03", V31),
        ("0004 'MQTT' 84", V311),
        ("0006 'MQIsdp' 83", V31),
    ],
)
def test_a_connect_says_its_version_first(text: str, version: int) -> None:
    assert connect_version(raw(text)) == version
