"""What the wire refuses ends the connection, and with the reason code that belongs to it (5.0 §4.13.1, 3.1.1 §4.8).

The packets are those of the wire's own table; here they come from a client, on a connection that was fine until then.
"""

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import (
    CONNACK,
    CONNECT,
    PINGRESP,
    SUBACK,
    UNSUBACK,
    V5,
    V31,
    V311,
    VERSION_NAMES,
)
from mqttlite.wire.errors import PeerError, ProtocolError, UnsupportedProtocolVersion
from mqttlite.wire.packets import Connack, Disconnect
from tests.conformance.coverage import refused_numbers
from tests.conformance.script import LIMITS, hello, in_words, on_the_wire
from tests.conformance.worlds import CoreStage, SocketStage, Stage
from tests.support.packets import raw
from tests.support.table import over
from tests.unit.wire.malformed import EITHER, V5_ONLY, V31_ONLY, V311_ONLY, Row

FROM_THE_SERVER = (CONNACK, SUBACK, UNSUBACK, PINGRESP)
TABLES = {V31: V31_ONLY, V311: EITHER + V311_ONLY, V5: EITHER + V5_ONLY}


def cases() -> list[tuple[int, Row]]:
    return [
        (version, row)
        for version, table in TABLES.items()
        for row in table
        if version != V31 or raw(row[2])[0] >> 4 not in FROM_THE_SERVER
    ]


def title(version: int, row: Row) -> str:
    """With the statement in the numbers of that version; else the section that its table names."""
    label = " ".join(refused_numbers(row, version)) or f"§{row[0]}"
    return f"{VERSION_NAMES[version]} [{label}] {row[1]}: {row[2]}"


def error_of(packet_type: int, error: type[PeerError]) -> type[PeerError]:
    """What the broker makes of it: a packet that is not a client's to send is refused before it is read."""
    return ProtocolError if packet_type in (0, *FROM_THE_SERVER) else error


async def refused(stage: Stage, version: int, row: Row) -> None:
    """The packet ends its connection, and the broker serves the next client."""
    _statement, _sentence, text, error, _words = row
    frame = raw(text)
    expected = error_of(frame[0] >> 4, error)
    if "remaining length" in row[1]:
        expected = error  # the length comes before everything else
    if frame[0] >> 4 == CONNECT:
        await stage.send("a", frame)
        answer = await stage.receive("a")
        if error is UnsupportedProtocolVersion:
            assert answer == b"\x20\x02\x00\x01"
        elif answer is not None:
            packet = in_words(answer, V5)
            assert isinstance(packet, Connack)
            assert (packet.session_present, packet.reason_code) == (False, expected.reason_code)
            assert version == V5
    else:
        await stage.send("a", on_the_wire(hello("a", version), version))
        assert await stage.receive("a") is not None
        await stage.send("a", frame)
        answer = await stage.receive("a")
        if version == V5:
            assert answer is not None
            packet = in_words(answer, V5)
            assert isinstance(packet, Disconnect)
            assert packet.reason_code == expected.reason_code
            assert packet.properties.reason_string
        else:
            assert answer is None
    if answer is not None:
        assert await stage.receive("a") is None
    await stage.send("b", on_the_wire(hello("b", version), version))
    assert await stage.receive("b") is not None


@pytest.mark.long
@over(cases(), title)
def test_on_the_core(version: int, row: Row) -> None:
    playing = refused(CoreStage(LIMITS, version), version, row)
    with pytest.raises(StopIteration):
        playing.send(None)


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="module")
async def test_over_a_socket() -> None:
    async with Broker(Config(listeners=(ListenerOptions(port=0),), limits=LIMITS)) as broker:
        for version, row in cases():
            stage = SocketStage(broker.port)
            try:
                await refused(stage, version, row)
            finally:
                await stage.end()


@pytest.mark.parametrize("packet_type", range(16))
@pytest.mark.parametrize("version", [V31, V311, V5], ids=["3.1", "3.1.1", "5.0"])
def test_a_packet_that_is_not_a_clients_to_send_is_a_protocol_error(version: int, packet_type: int) -> None:
    """MQTT-3.1.0-2, and the directions of table 2-1."""
    if packet_type not in (0, CONNECT, *FROM_THE_SERVER):
        return
    stage = CoreStage(LIMITS, version)

    async def script() -> None:
        await stage.send("a", on_the_wire(hello("a", version), version))
        await stage.receive("a")
        await stage.send("a", bytes((packet_type << 4, 0)))
        if version == V5:
            answer = await stage.receive("a")
            assert answer is not None
            packet = in_words(answer, V5)
            assert isinstance(packet, Disconnect)
            assert packet.reason_code == 0x82
        assert await stage.receive("a") is None

    with pytest.raises(StopIteration):
        script().send(None)
