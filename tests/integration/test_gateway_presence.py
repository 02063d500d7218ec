"""Who is there, as a page sees it over SSE and over WebSocket: who was there before, who comes and goes, no ghosts."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_socket

from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.device import Device
from tests.support.gateway import GatewayUnderTest, running_gateway

POLICIES = (TopicPolicyOptions(prefix="rooms", presence=True),)

SNAPSHOT = "$SYS/broker/presence/rooms/1"
CHANGES = "$SYS/broker/presence_events/rooms/1"

Next = Callable[[], Any]


@asynccontextmanager
async def sse(gateway: GatewayUnderTest) -> AsyncIterator[Next]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    writer.write(f"GET /events?filter={SNAPSHOT}&filter={CHANGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    async def following() -> Any:
        while True:
            line = await reader.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    yield following
    writer.transport.abort()


@asynccontextmanager
async def websocket(gateway: GatewayUnderTest) -> AsyncIterator[Next]:
    async with connect_socket(f"ws://127.0.0.1:{gateway.gateway.port}/ws/subscribe") as socket:
        await socket.send('{"type": "presence", "topic": "rooms/1"}')

        async def following() -> Any:
            return json.loads(await socket.recv())

        yield following


WAYS = {"sse": sse, "websocket": websocket}


async def members(following: Next) -> list[str]:
    """The client identifiers of the next snapshot."""
    async with asyncio.timeout(60):
        while True:
            event = await following()
            if event["type"] == "presence" and event["topic"] == SNAPSHOT:
                return sorted(each["client_id"] for each in event["payload"]["members"])


async def until_members(following: Next, *names: str) -> None:
    """Read snapshots until one has these: the broker may have looked between two of them."""
    while await members(following) != list(names):
        pass


async def change(following: Next) -> list[list[str]]:
    """The client identifiers of who has come and gone, as the next event of that kind says."""
    async with asyncio.timeout(60):
        while True:
            event = await following()
            if event["type"] == "presence" and event["topic"] == CHANGES:
                return [[each["client_id"] for each in event["payload"][kind]] for kind in ("joined", "left")]


async def device(gateway: GatewayUnderTest, name: str, **options: Any) -> Device:
    found = await Device.dial(gateway.broker.port)
    await found.connect(name, **options)
    await found.subscribe("rooms/1", 1)
    return found


async def leave(found: Device) -> None:
    await found.disconnect()
    found.writer.close()


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_a_page_sees_clients_that_are_there_come_and_go(tmp_path: Path, way: str) -> None:
    async with running_gateway(tmp_path, topic_policies=POLICIES) as gateway:
        anna = await device(gateway, "anna")
        async with WAYS[way](gateway) as following:
            await until_members(following, "anna")
            bob = await device(gateway, "bob")
            assert await change(following) == [["bob"], []]
            assert await members(following) == ["anna", "bob"]
            await leave(anna)
            assert await change(following) == [[], ["anna"]]
            assert await members(following) == ["bob"]
            bob.writer.transport.abort()  # no DISCONNECT
            assert await members(following) == []


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_a_page_sees_no_ghosts_of_dead_links_nor_after_a_restart(
    tmp_path: Path, way: str, jump: Callable[[float], None]
) -> None:
    async with running_gateway(tmp_path, topic_policies=POLICIES) as gateway:
        silent = await device(gateway, "silent", keep_alive=10)
        kept = await device(gateway, "kept", expiry=99)
        async with WAYS[way](gateway) as following:
            await until_members(following, "kept", "silent")
            if type(asyncio.get_running_loop()).__name__ == "JumpingLoop":
                jump(16.0)
                assert await members(following) == ["kept"]
        for each in (silent, kept):
            each.writer.transport.abort()
    async with running_gateway(tmp_path, topic_policies=POLICIES) as gateway, WAYS[way](gateway) as following:
        assert gateway.broker.admin.client("kept") is not None
        assert await members(following) == []
