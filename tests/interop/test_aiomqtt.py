"""aiomqtt, the asyncio client that many programs use; below it is paho, above it other rules of its own.

What it shares with all clients is in the matrix.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion

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
async def test_many_publishes_at_once_all_arrive(line: Line, version: ProtocolVersion) -> None:
    async with client(line, "reader", version) as reader, client(line, "writer", version) as writer:
        await reader.subscribe("burst/+", qos=1)
        await asyncio.gather(*[writer.publish(f"burst/{number}", qos=1) for number in range(200)])
        topics = {str(message.topic) for message in await take(reader, 200)}
        assert topics == {f"burst/{number}" for number in range(200)}


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
