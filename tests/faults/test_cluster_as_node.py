"""Three machines are one of two nodes: the other one hears of no difference when another machine serves."""

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mqttlite import Client
from tests.faults.test_nodes_killed import publish, read
from tests.support.nats_servers import free_ports, nats_server
from tests.support.rounds import todays
from tools.torture_machines import Machines

pytest.importorskip("nats")

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "mqttlite"]
LATEST_S = 60.0
NODE = """
[nodes]
servers = {servers}
node = "a"
"""
OTHER_NODE = """
data_dir = "{folder}/b"
[[listeners]]
port = {port}
[limits]
max_queued_messages = 10_000_000
max_queued_bytes = 10_000_000_000
[nodes]
servers = {servers}
node = "b"
"""


class TwoNodes:
    """The node `a` is three machines, the node `b` one broker."""

    def __init__(self, folder: Path) -> None:
        self.machines = Machines([*COMMAND, "serve"], folder, more=NODE)
        self._folder = folder
        self._port = free_ports(1)[0]
        values = {"folder": folder, "port": self._port, "servers": self.machines.servers}
        (folder / "b.toml").write_text(OTHER_NODE.format(**values))

    async def start(self) -> None:
        for place in range(3):
            self.machines.start_engine(place)
        for place in range(3):
            self.machines.start(place)
        await self.machines.whole()
        await self.start_b()

    async def start_b(self) -> None:
        config = str(self._folder / "b.toml")
        self.machines.run("b", [*COMMAND, "serve", "--config", config, "--log-format", "text"])
        async with asyncio.timeout(LATEST_S):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)

    def client(self, name: str, node: str) -> Client:
        """One with a kept session."""
        ports = self.machines.ports if node == "a" else [self._port]
        return Client(
            [f"127.0.0.1:{port}" for port in ports],
            client_id=f"{name}-{node}",
            clean_start=False,
            session_expiry_interval=1_000,
            keep_alive=2,
            min_reconnect_delay=0.1,
            max_reconnect_delay=0.5,
        )

    async def kill_serving(self) -> None:
        serving = await self.machines.serving()
        await self.machines.end(f"m{serving}")
        await self.machines.serving()
        self.machines.start(serving)
        await self.machines.whole()

    async def pause_serving(self) -> None:
        """It goes on when another machine of the same node serves."""
        serving = await self.machines.serving()
        self.machines.send(f"m{serving}", signal.SIGSTOP)
        await asyncio.sleep(5)
        self.machines.send(f"m{serving}", signal.SIGCONT)
        await self.machines.whole()

    async def hand_over(self) -> None:
        await self.machines.hand_over(COMMAND)
        await self.machines.whole()

    async def kill_other_node(self) -> None:
        await self.machines.end("b")
        await asyncio.sleep(1)
        await self.start_b()


FAULTS: list[Callable[[TwoNodes], Awaitable[None]]] = [
    TwoNodes.kill_serving,
    TwoNodes.pause_serving,
    TwoNodes.hand_over,
    TwoNodes.kill_other_node,
]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    nats_server()
    two = TwoNodes(tmp_path)
    try:
        await two.start()
        yield two
    finally:
        two.machines.close()


@pytest.mark.parametrize(
    "faults", todays([FAULTS[:2], FAULTS[2:]]), ids=lambda faults: "-".join(each.__name__ for each in faults)
)
async def test_nothing_is_lost_between_two_nodes_of_which_one_is_three_machines(
    nodes: TwoNodes, faults: list[Callable[[TwoNodes], Awaitable[None]]]
) -> None:
    is_over = asyncio.Event()
    published: dict[tuple[str, int], list[str]] = {(node, qos): [] for node in "ab" for qos in (1, 2)}
    found: dict[str, list[str]] = {"a": [], "b": []}
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        reading = []
        for node, payloads in found.items():
            reader = await stack.enter_async_context(nodes.client("reader", node))
            await reader.subscribe("t/#", qos=2)
            reading.append(asyncio.create_task(read(reader, payloads)))
        writing = []
        for (node, qos), payloads in published.items():
            writer = await stack.enter_async_context(nodes.client(f"writer{qos}", node))
            writing.append(asyncio.create_task(publish(writer, f"t/{node}/{qos}", qos, payloads, is_over)))
        for fault in faults:
            await asyncio.sleep(1)
            await fault(nodes)
        await asyncio.sleep(1)
        is_over.set()
        await asyncio.gather(*writing)
        wanted = {each for payloads in published.values() for each in payloads}
        assert len(wanted) > 200
        async with asyncio.timeout(LATEST_S):
            while any(not wanted <= set(each) for each in found.values()):
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        once = {*published["a", 2], *published["b", 2]}
        for payloads in found.values():
            assert not [each for each, times in Counter(payloads).items() if times > 1 and each in once]
        for task in reading:
            task.cancel()
