"""paho-mqtt, 3.1.1 and 5.0: what goes beyond the matrix of all clients."""

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.interop.support import V5, V311, Line, Paho, RunningBroker, Wire, eventually

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


@pytest.fixture(
    params=["tcp", "tls", pytest.param("ws", marks=pytest.mark.slow), pytest.param("wss", marks=pytest.mark.slow)]
)
def line(request: pytest.FixtureRequest, broker: RunningBroker) -> Line:
    found: Line = getattr(broker, request.param)
    return found


@VERSIONS
def test_a_large_message_arrives_whole(line: Line, version: MQTTProtocolVersion) -> None:
    payload = bytes(range(256)) * 3_000
    with Paho(line, "both", version) as client:
        client.subscribe("large", 1)
        client.publish("large", payload, 1)
        assert client.next().payload == payload


@VERSIONS
def test_qos_2_arrives_exactly_once_however_often_both_ends_are_cut(
    broker: RunningBroker, line: Line, version: MQTTProtocolVersion
) -> None:
    count = 400
    with (
        Wire(broker, line) as wire,
        Paho(wire.line, "reader", version, keep_session=True) as reader,
        Paho(wire.line, "writer", version, keep_session=True) as writer,
    ):
        reader.subscribe("once", 2)
        sent = [writer.client.publish("once", b"%d" % number, 2) for number in range(count)]
        received: list[bytes] = []
        for _ in range(3):
            received += reader.take(60)
            wire.cut()
            assert reader.welcome().session_present
            assert writer.welcome().session_present
        received += reader.take(count - len(received))
        eventually(lambda: all(message.is_published() for message in sent))
        writer.publish("once", b"end", 2)
        received += reader.until(b"end")
        assert wire.cuts == 6
    assert sorted(received, key=int) == [b"%d" % number for number in range(count)]


def test_a_second_client_of_the_same_name_takes_over(line: Line) -> None:
    first = Paho(line, "same", V5)
    codes: list[int] = []
    first.client.on_disconnect = lambda client, userdata, flags, code, properties: (
        codes.append(code.value),
        client.disconnect(),
    )
    first.connect()
    with first.connected(), Paho(line, "same", V5) as second:
        eventually(lambda: codes == [0x8E])
        second.subscribe("here", 1)
        second.publish("here", b"still", 1)
        assert second.next().payload == b"still"
