"""Three nodes and the server of NATS between them, each in a process that is killed or stands still, at any time."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import pytest

from mqttlite import Client
from tests.faults.test_bridges_killed import LATEST_S, Process
from tests.support.nats_servers import NatsServers, free_ports

pytestmark = pytest.mark.slow

AT_ONCE = 4
PAUSE_S = 0.01

ROUNDS = 8


async def publish(client: Client, topic: str, qos: int, published: list[str], is_over: asyncio.Event) -> None:
    """Publish numbers until it is over; each counts when it is acknowledged. A third of the time some are under way:
    that there are more of them proves no more, and would take the processors from what starts again."""
    number = 0
    while not is_over.is_set():
        payloads = [f"{topic} {each}" for each in range(number, number + AT_ONCE)]
        number += AT_ONCE
        await asyncio.gather(*(client.publish(topic, each, qos=qos, timeout=120) for each in payloads))
        published += payloads
        await asyncio.sleep(PAUSE_S)


async def read(client: Client, found: list[str]) -> None:
    async for message in client.messages:
        found.append(message.payload.decode())


class Trouble:
    """Three nodes, NATS, and clients that come back to them."""

    def __init__(self, folder: Path, stack: contextlib.AsyncExitStack, more: str = "") -> None:
        self.chance = random.Random(20_261_130)
        self._stack = stack
        self.servers = NatsServers(folder, number=1)
        self.servers.wait_ready()
        stack.callback(self.servers.close)
        self.ports = free_ports(3)
        self.nodes = [
            Process(
                *(folder, name, port),
                f'[nodes]\nservers = ["{self.servers.urls[0]}"]\nnode = "{name}"\n{more}',
            )
            for name, port in zip("abc", self.ports, strict=True)
        ]

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()
            self._stack.push_async_callback(node.kill)

    async def clients(self, kind: str) -> list[Client]:
        """One at each node, with a kept session."""
        return [
            await self._stack.enter_async_context(
                Client(
                    *("127.0.0.1", port),
                    client_id=f"{kind}{at}",
                    clean_start=False,
                    session_expiry_interval=1_000,
                    min_reconnect_delay=0.1,
                    max_reconnect_delay=0.5,
                )
            )
            for at, port in enumerate(self.ports)
        ]

    async def go_on(self) -> None:
        """Kill nodes and NATS, or let NATS stand still."""
        chance, servers = self.chance, self.servers
        for number in range(ROUNDS):
            await asyncio.sleep(chance.random() * 2)
            if number % 4 == 3:
                if chance.random() < 0.5:
                    servers.kill(0)
                    await asyncio.sleep(chance.random() * 2)
                    servers.start(0)
                else:
                    servers.pause(0)
                    await asyncio.sleep(chance.random() * 5)
                    servers.resume(0)
                continue
            node = self.nodes[number % 3]
            await node.kill()
            await asyncio.sleep(chance.random())
            await node.start()


async def test_nothing_is_lost_between_nodes_and_nothing_repeated_at_qos_2(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        trouble = Trouble(tmp_path, stack)
        await trouble.start()
        is_over = asyncio.Event()
        published: list[list[str]] = [[], [], []]
        found: list[list[str]] = [[], [], []]
        writers, readers = await trouble.clients("writer"), await trouble.clients("reader")
        for reader in readers:
            await reader.subscribe("t/#", qos=2)
        reading = [asyncio.create_task(read(client, to)) for client, to in zip(readers, found, strict=True)]
        writing = [
            asyncio.create_task(publish(client, f"t/{at}", at % 2 + 1, published[at], is_over))
            for at, client in enumerate(writers)
        ]
        await trouble.go_on()
        is_over.set()
        await asyncio.gather(*writing)
        wanted = Counter(each for some in published for each in some)
        assert len(wanted) > 100
        async with asyncio.timeout(LATEST_S):
            while any(not wanted.keys() <= set(each) for each in found):
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        once = set(published[1])
        for each in found:
            twice = [payload for payload, times in Counter(each).items() if times > 1 and payload in once]
            assert not twice
            assert set(each) == wanted.keys()
        for task in reading:
            task.cancel()


QUEUE = """
[[queues]]
name = "jobs"
filters = ["t/#"]
"""


async def test_a_queue_loses_nothing_with_publishers_and_consumers_at_nodes_that_are_killed(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        trouble = Trouble(tmp_path, stack, QUEUE)
        await trouble.start()
        is_over = asyncio.Event()
        published: list[list[str]] = [[], [], []]
        found: list[str] = []
        writers, consumers = await trouble.clients("writer"), await trouble.clients("consumer")
        for consumer in consumers:
            await consumer.subscribe("$queue/jobs", qos=1)
        reading = [asyncio.create_task(read(client, found)) for client in consumers]
        writing = [
            asyncio.create_task(publish(client, f"t/{at}", at % 2 + 1, published[at], is_over))
            for at, client in enumerate(writers)
        ]
        await trouble.go_on()
        is_over.set()
        await asyncio.gather(*writing)
        wanted = {each for some in published for each in some}
        assert len(wanted) > 100
        async with asyncio.timeout(LATEST_S):
            while not wanted <= set(found):
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        again = sum(times - 1 for times in Counter(found).values())
        print(len(wanted), "messages,", again, "came again")
        assert again < len(wanted) / 10
        for task in reading:
            task.cancel()
