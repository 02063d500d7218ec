"""paho-mqtt, 3.1.1 and 5.0: what goes beyond the matrix of all clients."""

import pytest
from paho.mqtt.client import PacketTypes
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.support import V5, V311, Line, Paho, RunningBroker, Wire, eventually

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


@pytest.fixture(
    params=["tcp", "tls", pytest.param("ws", marks=pytest.mark.slow), pytest.param("wss", marks=pytest.mark.slow)]
)
def line(request: pytest.FixtureRequest, broker: RunningBroker) -> Line:
    found: Line = getattr(broker, request.param)
    return found


def properties(packet: int, **values: object) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_arrives_as_it_was_sent(line: Line, version: MQTTProtocolVersion, qos: int) -> None:
    with Paho(line, "reader", version) as reader, Paho(line, "writer", version) as writer:
        assert reader.subscribe("a/+/c", 2) == [2]
        writer.publish("a/b/c", b"\x00\xff payload", qos)
        message = reader.next()
        assert (message.topic, message.payload, message.qos, message.retain) == ("a/b/c", b"\x00\xff payload", qos, 0)


@VERSIONS
def test_messages_of_one_writer_arrive_in_order(line: Line, version: MQTTProtocolVersion) -> None:
    with Paho(line, "reader", version) as reader, Paho(line, "writer", version) as writer:
        reader.subscribe("#", 2)
        sent = [b"%d" % number for number in range(300)]
        for payload in sent:
            writer.client.publish("numbers", payload, 1)
        assert reader.take(300) == sent


@VERSIONS
def test_a_large_message_arrives_whole(line: Line, version: MQTTProtocolVersion) -> None:
    payload = bytes(range(256)) * 3_000
    with Paho(line, "both", version) as client:
        client.subscribe("large", 1)
        client.publish("large", payload, 1)
        assert client.next().payload == payload


@VERSIONS
def test_a_clean_start_forgets_the_session(line: Line, version: MQTTProtocolVersion) -> None:
    with Paho(line, "sleeper", version, keep_session=True) as sleeper:
        sleeper.subscribe("night", 1)
    with Paho(line, "sleeper", version):
        pass
    again = Paho(line, "sleeper", version, keep_session=True)
    assert not again.connect().session_present
    with again.connected(), Paho(line, "writer", version) as writer:
        again.subscribe("day", 1)
        writer.publish("night", b"unheard", 1)
        writer.publish("day", b"end", 1)
        assert again.until(b"end") == []


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


# what only 5.0 has


def test_the_broker_names_a_client_that_has_no_name(line: Line) -> None:
    client = Paho(line, "", V5)
    said = client.connect().properties
    with client.connected():
        assert said is not None
        assert said.AssignedClientIdentifier


def test_properties_arrive_as_they_were_sent(line: Line) -> None:
    with Paho(line, "reader", V5) as reader, Paho(line, "writer", V5) as writer:
        reader.subscribe("rich", 1)
        sent = properties(
            PacketTypes.PUBLISH,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=60,
            ContentType="text/plain",
            ResponseTopic="answers/1",
            CorrelationData=b"\x01\x02",
            UserProperty=[("a", "1"), ("b", "2"), ("a", "3")],
        )
        writer.publish("rich", b"text", 1, properties=sent)
        got = reader.next().properties
        assert got is not None
        assert got.PayloadFormatIndicator == 1
        assert 59 <= got.MessageExpiryInterval <= 60
        assert (got.ContentType, got.ResponseTopic) == ("text/plain", "answers/1")
        assert got.CorrelationData == b"\x01\x02"
        assert got.UserProperty == [("a", "1"), ("b", "2"), ("a", "3")]


def test_no_local_and_retain_as_published_are_kept(line: Line) -> None:
    with Paho(line, "both", V5) as both, Paho(line, "other", V5) as other:
        both.subscribe("room/#", options=SubscribeOptions(1, noLocal=True, retainAsPublished=True))
        both.publish("room/own", b"unheard", 1)
        other.publish("room/other", b"heard", 1, retain=True)
        message = both.next()
        assert (message.payload, message.retain) == (b"heard", 1)
        other.publish("room/other", b"end", 1)
        assert both.until(b"end") == []


def test_a_message_that_nobody_subscribes_to_is_acknowledged_as_such(line: Line) -> None:
    codes: list[int] = []
    with Paho(line, "writer", V5) as writer:
        writer.client.on_publish = lambda client, userdata, mid, code, properties: codes.append(code.value)
        writer.publish("nobody/here", b"", 1)
        eventually(lambda: codes == [0x10])
