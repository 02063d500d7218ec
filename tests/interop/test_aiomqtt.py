"""aiomqtt, the asyncio client that many programs use; below it is paho, above it other rules of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.client import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.support import HOST, PATIENCE_S, Line, RunningBroker, Wire

VERSIONS = pytest.mark.parametrize("version", [ProtocolVersion.V311, ProtocolVersion.V5], ids=["3.1.1", "5.0"])


@pytest.fixture(autouse=True)
async def _patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


def client(line: Line, name: str, version: ProtocolVersion = ProtocolVersion.V5, **more: Any) -> aiomqtt.Client:
    return aiomqtt.Client(
        HOST, line.port, identifier=name, protocol=version, tls_context=line.context(), timeout=PATIENCE_S, **more
    )


async def take(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    return [await anext(client.messages) for _ in range(count)]


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_arrives_as_it_was_sent(line: Line, version: ProtocolVersion, qos: int) -> None:
    async with client(line, "reader", version) as reader, client(line, "writer", version) as writer:
        await reader.subscribe("a/#", qos=2)
        await writer.publish("a/b", b"\x00\xff", qos=qos)
        [message] = await take(reader, 1)
        assert (str(message.topic), message.payload, message.qos, message.retain) == ("a/b", b"\x00\xff", qos, False)


@VERSIONS
async def test_many_publishes_at_once_all_arrive(line: Line, version: ProtocolVersion) -> None:
    async with client(line, "reader", version) as reader, client(line, "writer", version) as writer:
        await reader.subscribe("burst/+", qos=1)
        await asyncio.gather(*[writer.publish(f"burst/{number}", qos=1) for number in range(200)])
        topics = {str(message.topic) for message in await take(reader, 200)}
        assert topics == {f"burst/{number}" for number in range(200)}


@VERSIONS
async def test_a_retained_message_waits_for_its_subscribers(line: Line, version: ProtocolVersion) -> None:
    async with client(line, "writer", version) as writer:
        await writer.publish("light", b"on", qos=1, retain=True)
    async with client(line, "reader", version) as reader:
        await reader.subscribe("light")
        [message] = await take(reader, 1)
        assert (message.payload, message.retain) == (b"on", True)


@VERSIONS
async def test_the_will_of_a_lost_client_is_published(broker: RunningBroker, version: ProtocolVersion) -> None:
    will = aiomqtt.Will("wills/lost", b"gone", 1)
    with Wire(broker, broker.tls) as wire:
        async with client(broker.tcp, "watcher", version) as watcher:
            await watcher.subscribe("wills/#", qos=1)
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(wire.line, "lost", version, will=will) as lost:
                    await asyncio.to_thread(wire.cut)
                    await anext(lost.messages)
            [message] = await take(watcher, 1)
            assert (str(message.topic), message.payload) == ("wills/lost", b"gone")


@VERSIONS
async def test_a_session_that_is_resumed_brings_what_was_queued(line: Line, version: ProtocolVersion) -> None:
    keep: dict[str, Any] = {"clean_session": False}
    if version == ProtocolVersion.V5:
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 3600
        keep = {"clean_start": False, "properties": expiry}
    async with client(line, "sleeper", version, **keep) as sleeper:
        await sleeper.subscribe("night", qos=2)
    async with client(line, "writer", version) as writer:
        for number in range(20):
            await writer.publish("night", b"%d" % number, qos=2)
    async with client(line, "sleeper", version, **keep) as sleeper:
        assert [message.payload for message in await take(sleeper, 20)] == [b"%d" % number for number in range(20)]


async def test_a_request_is_answered_where_it_asks_to_be(line: Line) -> None:
    async with client(line, "asker") as asker, client(line, "server") as server:
        await asker.subscribe("answers/asker", qos=1)
        await server.subscribe("questions", qos=1)
        asked = Properties(PacketTypes.PUBLISH)
        asked.ResponseTopic = "answers/asker"
        asked.CorrelationData = b"7"
        asked.UserProperty = [("from", "asker")]
        await asker.publish("questions", b"6 * 7", qos=1, properties=asked)
        [question] = await take(server, 1)
        assert question.properties is not None
        assert question.properties.UserProperty == [("from", "asker")]
        answer = Properties(PacketTypes.PUBLISH)
        answer.CorrelationData = question.properties.CorrelationData
        await server.publish(question.properties.ResponseTopic, b"42", qos=1, properties=answer)
        [message] = await take(asker, 1)
        assert message.properties is not None
        assert (message.payload, message.properties.CorrelationData) == (b"42", b"7")


async def test_a_program_that_comes_back_by_itself_goes_on(broker: RunningBroker) -> None:
    with Wire(broker, broker.tcp) as wire:
        for number in range(3):
            async with client(wire.line, "program") as program:
                await program.subscribe("work")
                await program.publish("work", b"%d" % number)
                [message] = await take(program, 1)
                assert message.payload == b"%d" % number
                await asyncio.to_thread(wire.cut)
                with pytest.raises(aiomqtt.MqttError):
                    await anext(program.messages)
