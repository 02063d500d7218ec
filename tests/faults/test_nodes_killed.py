"""Three nodes and the server of NATS between them, each in a process that is killed or stands still, at any time."""

import asyncio
import contextlib
import json
import random
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mqttlite import Client, MqttError
from mqttlite.cli.main import main
from tests.faults.test_bridges_killed import LATEST_S, Process
from tests.support.nats_servers import NatsServers, free_ports
from tests.support.rounds import todays

pytestmark = pytest.mark.slow

AT_ONCE = 4
PAUSE_S = 0.01

ROUNDS = 4
"""Each node and NATS once."""

SEEDS = todays(range(4))


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

    def __init__(
        self, folder: Path, stack: contextlib.AsyncExitStack, seed: int, more: str = "", head: str = ""
    ) -> None:
        """`more` and `head` are added to the configuration of each node, which is {node} there, and {http} a port."""
        self.chance = random.Random(seed)
        self._stack = stack
        self.servers = NatsServers(folder, number=1)
        self.servers.wait_ready()
        stack.callback(self.servers.close)
        ports = free_ports(6)
        self.ports, self.http = ports[:3], ports[3:]
        self.nodes = [
            Process(
                *(folder, name, port),
                f'[nodes]\nservers = ["{self.servers.urls[0]}"]\nnode = "{name}"\n{more.format(node=name, http=http)}',
                head.format(node=name, http=http),
            )
            for name, port, http in zip("abc", self.ports, self.http, strict=True)
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


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_between_nodes_and_nothing_repeated_at_qos_2(tmp_path: Path, seed: int) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        trouble = Trouble(tmp_path, stack, seed)
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


async def move(folder: Path, chance: random.Random, is_over: asyncio.Event) -> int:
    """Bring the queue to some node, again and again; how often that was done."""
    moved = 0
    while not is_over.is_set():
        asked, to = chance.choice("abc"), chance.choice("abc")
        words = ["queue", "move", "jobs", "--to", to, "--data-dir", str(folder / asked)]
        moved += (await asyncio.to_thread(CliRunner().invoke, main, words)).exit_code == 0
        await asyncio.sleep(chance.random())
    return moved


@pytest.mark.parametrize(("seed", "moves"), todays([(seed, moves) for seed in range(4) for moves in (False, True)]))
async def test_a_queue_loses_nothing_with_publishers_and_consumers_at_nodes_that_are_killed(
    tmp_path: Path, moves: bool, seed: int
) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        trouble = Trouble(tmp_path, stack, seed, QUEUE)
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
        moving = asyncio.create_task(move(tmp_path, trouble.chance, is_over)) if moves else None
        await trouble.go_on()
        is_over.set()
        await asyncio.gather(*writing)
        if moving is not None:
            print(await moving, "moves")
        wanted = {each for some in published for each in some}
        assert len(wanted) > 100
        async with asyncio.timeout(LATEST_S):
            while not wanted <= set(found):
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        again = sum(times - 1 for times in Counter(found).values())
        print(len(wanted), "messages,", again, "came again")
        assert again < len(wanted) / (2 if moves else 10)  # while a queue moves, messages go to both nodes
        for task in reading:
            task.cancel()


PASSWORD = "of the admin of all"
CONTROL = "$CONTROL/dynamic-security/v1"
ANSWERS_S = 15.0
"""How long an answer to a command is waited for."""


async def admin_of(stack: contextlib.AsyncExitStack, port: int, client_id: str) -> Client:
    client = Client(
        *("127.0.0.1", port),
        client_id=client_id,
        username="admin",
        password=PASSWORD,
        min_reconnect_delay=0.1,
        max_reconnect_delay=0.5,
    )
    await stack.enter_async_context(client)
    await client.subscribe(f"{CONTROL}/response")
    return client


async def told(client: Client, command: dict[str, str]) -> dict[str, Any] | None:
    """The response to a command; None if none came."""
    correlation = secrets.token_hex(8)
    payload = json.dumps({"commands": [{**command, "correlationData": correlation}]})
    try:
        async with asyncio.timeout(ANSWERS_S):
            await client.publish(CONTROL, payload, qos=1)
            async for message in client.messages:
                for response in json.loads(message.payload)["responses"]:
                    if response.get("correlationData") == correlation:
                        return dict(response)
                    if "error" in response and "correlationData" not in response:
                        return dict(response)
    except (TimeoutError, MqttError):
        pass
    return None


async def make_users(client: Client, kind: str, made: set[str], is_over: asyncio.Event) -> None:
    number = 0
    while not is_over.is_set():
        number += 1
        response = await told(client, {"command": "createClient", "username": f"{kind}{number}"})
        if response is not None and "error" not in response:
            made.add(f"{kind}{number}")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", SEEDS)
async def test_users_that_were_made_at_any_node_are_at_all_nodes_whatever_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("MOSQUITTO_DYNSEC_PASSWORD", PASSWORD)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(300):
        trouble = Trouble(tmp_path, stack, seed, "[dynamic_security]\n")
        await trouble.start()
        is_over = asyncio.Event()
        made: list[set[str]] = [set(), set(), set()]
        admins = [await admin_of(stack, port, f"admin-{at}") for at, port in enumerate(trouble.ports)]
        making = [
            asyncio.create_task(make_users(client, kind, made[at], is_over))
            for at, (client, kind) in enumerate(zip(admins, "xyz", strict=True))
        ]
        await trouble.go_on()
        is_over.set()
        await asyncio.gather(*making)
        wanted = set().union(*made) | {"admin"}
        assert all(made)
        assert len(wanted) > 15
        give_up_at = asyncio.get_running_loop().time() + LATEST_S
        while True:
            answers = [await told(client, {"command": "listClients"}) for client in admins]
            found = [set(each["data"]["clients"]) if each and "data" in each else set() for each in answers]
            if wanted <= found[0] == found[1] == found[2]:
                break
            assert asyncio.get_running_loop().time() < give_up_at, (
                [sorted(wanted - each) for each in found],
                [len(each) for each in found],
                answers,
            )
            await asyncio.sleep(0.2)
        print(f"{len(wanted)} users were made, {len(found[0])} are at each node")
