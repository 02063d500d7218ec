"""A broker that is killed at random moments, while a worker of a group makes one result of each message."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from mqttlite.client import Client, MqttError, PublishRefused
from tests.support.killed import BROKEN, free_port, running

CONFIG = """
[[listeners]]
port = {port}
[[streams]]
name = "orders"
partitions = 3
[[streams]]
name = "bills"
partitions = 2
"""
MESSAGES = 200
LATER = 50
KILLS = 4


async def produce(client: Client) -> None:
    """Publish each order until it is acknowledged, and once more when the broker may be another one."""
    orders = client.stream("orders")
    for now in range(MESSAGES + LATER):
        for at in {now, now - LATER} & set(range(MESSAGES)):
            await orders.append(str(at), key=str(at % 7), dedup_id=f"order {at}", timeout=60)
        await asyncio.sleep(0.01)


async def work(port: int, name: str, rng: random.Random) -> None:
    """Bill orders, and break off from time to time: also between a bill and its acknowledgement."""
    while True:
        with contextlib.suppress(MqttError, *BROKEN):
            async with (
                Client("127.0.0.1", port, client_id=name, timeout=2, min_reconnect_delay=0.05) as client,
                client.group("billing", "orders") as group,
            ):
                async for message in group:
                    billing = asyncio.create_task(client.stream("bills").append(message.payload, commits=[message]))
                    await asyncio.sleep(rng.random() * 0.01)
                    if rng.random() < 0.05:
                        break
                    with contextlib.suppress(PublishRefused):  # another member has the message now
                        await billing
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_each_order_is_billed_once_whatever_kills_the_broker(tmp_path: Path) -> None:
    rng = random.Random(1)
    port = free_port()
    config = CONFIG.format(port=port)
    tasks: list[asyncio.Task[None]] = []
    for kill in range(KILLS):
        async with running(tmp_path, config):
            if kill == 0:
                producer = await _connected(port)
                tasks = [asyncio.create_task(work(port, f"w{at}", random.Random(at))) for at in range(2)]
                producing = asyncio.create_task(produce(producer))
            await asyncio.sleep(1.0 + rng.random())
    async with running(tmp_path, config):
        async with asyncio.timeout(90):
            await producing
        await producer.disconnect()
        async with asyncio.timeout(60):
            reader = await _connected(port)
            bills: list[int] = []
            while len(bills) < MESSAGES:
                await asyncio.sleep(0.2)
                bills = [int(each.payload) async for each in reader.stream("bills").read()]
            orders = [int(each.payload) async for each in reader.stream("orders").read()]
            await reader.disconnect()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(orders) == list(range(MESSAGES))
    assert sorted(bills) == list(range(MESSAGES))


async def _connected(port: int) -> Client:
    while True:
        with contextlib.suppress(MqttError):
            client = Client("127.0.0.1", port, min_reconnect_delay=0.05, max_reconnect_delay=0.2)
            return await client.__aenter__()
        await asyncio.sleep(0.05)
