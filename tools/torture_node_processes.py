"""Three nodes, each beside its own server of NATS, as processes on loopback, to be killed, stopped and cut off."""

import asyncio
import contextlib
import random
import signal
import time
from pathlib import Path

from tools.torture_links import Links
from tools.torture_patience import Patience
from tools.torture_processes import PATIENCE_S, Processes, free_ports, get, nats_server

NUMBER = 3
NAMES = "abc"

NATS = """
server_name: n{place}
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{folder}/nats{place}" }}
cluster {{
  name: c
  listen: 127.0.0.1:{route}
  routes: [{routes}]
  advertise: 127.0.0.1:{nowhere}
  no_advertise: true
}}
"""
"""What a server tells of itself leads nowhere: servers and nodes have only the links that can be cut."""

NODE = """
data_dir = "{folder}/{name}"
[[listeners]]
port = {port}
[metrics]
port = {metrics}
[limits]
max_queued_messages = 10_000_000
max_queued_bytes = 10_000_000_000
[[queues]]
name = "jobs"
filters = ["jobs/#"]
max_attempts = 100  # a consumer whose node is away again and again uses them up
[[streams]]
name = "events"
filters = ["events/#"]
partitions = 1
[nodes]
servers = ["nats://127.0.0.1:{server}"]
node = "{name}"
"""


class NodeProcesses(Processes):
    """`ports` are where clients find the nodes, by their place. `serve` is the command of the broker."""

    def __init__(self, serve: list[str], folder: Path) -> None:
        super().__init__(folder)
        self._serve = serve
        self.links = Links()
        """Those of node 0 to its server are the group `m0`, those between the servers 0 and 1 the group `01`."""
        ports = free_ports(5 * NUMBER + NUMBER * NUMBER + 1)
        self.ports, self._metrics, servers, routes, ways = (
            ports[at : at + NUMBER] for at in range(0, 5 * NUMBER, NUMBER)
        )
        between = iter(ports[5 * NUMBER :])
        for place in range(NUMBER):
            self.links.add(frozenset({f"m{place}"}), ways[place], servers[place])
            urls = []
            for other in range(NUMBER):
                if other != place:
                    way = next(between)
                    self.links.add(frozenset({pair(place, other)}), way, routes[other])
                    urls.append(f"nats-route://127.0.0.1:{way}")
            nats = NATS.format(
                folder=folder,
                place=place,
                port=servers[place],
                route=routes[place],
                routes=", ".join(urls),
                nowhere=ports[-1],
            )
            (folder / f"nats{place}.conf").write_text(nats)
            node = NODE.format(
                folder=folder,
                name=NAMES[place],
                port=self.ports[place],
                metrics=self._metrics[place],
                server=ways[place],
            )
            (folder / f"{NAMES[place]}.toml").write_text(node)

    async def begin(self) -> None:
        """Start all, and wait until they are whole."""
        await self.links.open()
        for place in range(NUMBER):
            self.start_nats(place)
        await asyncio.sleep(1)
        self.start(0)
        await self.serves(0)  # it has the queue and the stream
        for place in range(1, NUMBER):
            self.start(place)
        await self.whole()

    def start(self, place: int) -> None:
        """Start a node."""
        config = str(self.folder / f"{NAMES[place]}.toml")
        self.run(f"m{place}", [*self._serve, "--config", config, "--log-format", "text"])

    def start_nats(self, place: int) -> None:
        """Start a server of NATS."""
        self.run(f"nats{place}", [nats_server(), "-c", str(self.folder / f"nats{place}.conf")])

    async def stand_still(self, name: str, seconds: float) -> None:
        """SIGSTOP, and some time later SIGCONT."""
        self.send(name, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.send(name, signal.SIGCONT)

    def freeze(self, seconds: float, order: random.Random) -> None:
        """All processes stand still, and what runs in this one, too. They go on one after the other."""
        names = list(self._processes)
        for name in names:
            self.send(name, signal.SIGSTOP)
        time.sleep(seconds)
        order.shuffle(names)
        for name in names:
            self.send(name, signal.SIGCONT)

    async def serves(self, place: int) -> None:
        """Wait until a node lets clients in."""
        patience = Patience(PATIENCE_S)
        while not patience.is_over():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.ports[place])
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"node {NAMES[place]} lets nobody in after {PATIENCE_S:g} s")

    async def whole(self) -> None:
        """Wait until each node is connected with each other one."""
        connected = [0]
        patience = Patience(PATIENCE_S)
        while connected != [NUMBER - 1] * NUMBER:
            assert not patience.is_over(), f"the nodes are not whole again after {PATIENCE_S:g} s: {connected}"
            await asyncio.sleep(0.1)
            connected = [_connected(body) for _, body in await self._figures()]

    async def _figures(self) -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(get(port, "/metrics") for port in self._metrics))


def pair(place: int, other: int) -> str:
    """The group of the links between two servers."""
    return "".join(str(each) for each in sorted((place, other)))


def _connected(figures: bytes) -> int:
    """How many nodes are connected with the one that says this."""
    lines = [line for line in figures.splitlines() if line.startswith(b"mqttlite_nodes_connected{")]
    return sum(line.endswith((b" 1", b" 1.0")) for line in lines)
