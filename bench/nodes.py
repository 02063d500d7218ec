"""What several nodes cost: three of them in this process, joined by a NATS server beside it.

All is measured in processor time, of this process and of NATS, so that a busy machine changes little. The clients are
inside the nodes: what is measured is the nodes' own work, without sockets. `python -m bench nodes` prints a table.
"""

import argparse
import asyncio
import gc
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import far_queue, hot_topic
from mqttlite import build
from mqttlite.client.client import Client
from mqttlite.config.file import parse_config
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.server import Broker
from mqttlite.wire.packets import Publish, Suback, SubscriptionRequest

PORT: Final = 24_322

FILTERS: Final = 40_000
"""Fewer than those above which others are told `#`."""

SUBSCRIBERS: Final = 6_000

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Nodes:
    """Three nodes and NATS."""

    def __init__(self, brokers: list[Broker], nats: int) -> None:
        self.a, self.b, self.c = brokers
        self._nats = nats

    def cpu_s(self) -> float:
        """Of this process and of NATS."""
        fields = Path(f"/proc/{self._nats}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / _TICKS

    async def cost_us(self, count: int, work: Callable[[], Awaitable[None]]) -> float:
        """Microseconds for each of `count`."""
        gc.collect()
        before = self.cpu_s()
        await work()
        return (self.cpu_s() - before) / count * 1e6


def session(broker: Broker, client_id: str, *, expiry_s: int = 0, window: int = 10_000) -> LocalSession:
    """A client inside a node."""
    made = LocalSession(broker._core, broker._loop_driver, lambda: None)
    made.connect(LocalClient(client_id=client_id, session_expiry_s=expiry_s, clean_start=False), window)
    return made


async def subscribed(broker: Broker, made: LocalSession, filters: list[bytes], qos: int = 0) -> None:
    """Subscribe, and wait until all nodes know it."""
    numbers: set[int] = set()
    for at in range(0, len(filters), 10):
        numbers.add(made.subscribe([SubscriptionRequest(each, qos) for each in filters[at : at + 10]]))
    while numbers:
        while (packet := made.receive()) is not None:
            if isinstance(packet, Suback):
                numbers.discard(packet.packet_id)
        await asyncio.sleep(0)


async def received(made: LocalSession, count: int) -> None:
    """Read and acknowledge so many messages."""
    while count:
        while (packet := made.receive()) is not None:
            if isinstance(packet, Publish):
                made.acknowledge(packet)
                count -= 1
        await asyncio.sleep(0)


def resident() -> int:
    """The memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _say(what: str, value: str) -> None:
    print(f"| {what} | {value} |", flush=True)


MESSAGES: Final = 20_000


async def messages(nodes: Nodes) -> None:
    """Of a publisher at one node to a subscriber at the same one, and at another."""
    for qos in (0, 1):
        for name, at in (("its own node", nodes.a), ("another node", nodes.b)):
            topic = f"m/{qos}/{name}".encode()
            reader = session(at, f"reader-{qos}-{name}")
            writer = session(nodes.a, f"writer-{qos}-{name}")
            await subscribed(at, reader, [topic], qos)
            cost = await nodes.cost_us(MESSAGES, partial(_bursts, writer, reader, topic, qos))
            _say(f"a message of QoS {qos} in bursts of 20, to a subscriber at {name}", f"{cost:.1f} µs")
            reader.leave()
            writer.leave()
            await asyncio.sleep(0.1)


async def _bursts(writer: LocalSession, reader: LocalSession, topic: bytes, qos: int) -> None:
    reading = asyncio.create_task(received(reader, MESSAGES))
    for number in range(MESSAGES):
        packet_id = number % 60_000 + 1 if qos else 0
        writer.publish(Publish(topic, b"x" * 100, qos, packet_id=packet_id))
        if number % 20 == 19:
            await asyncio.sleep(0)
            while writer.receive() is not None:
                pass
    await reading


IDLE_S: Final = 10.0


async def idle(nodes: Nodes) -> None:
    """Nodes without clients, which say each other that they run."""
    cost = await nodes.cost_us(1, partial(asyncio.sleep, IDLE_S))
    _say("an idle node of three, with a third of NATS: of a processor", f"{cost / 3 / IDLE_S / 1e4:.1f} %")


RATE: Final = 10_000
PACED_S: Final = 5.0
_STAMP: Final = struct.Struct(">d")


async def latency(nodes: Nodes) -> None:
    """At 10,000 messages a second, ten each millisecond: until the subscriber can read them."""
    found = []
    for name, at in (("its own node", nodes.a), ("another node", nodes.b)):
        topic = f"paced/{name}".encode()
        reader, writer = session(at, f"paced-{name}"), session(nodes.a, f"pacer-{name}")
        await subscribed(at, reader, [topic])
        took: list[float] = []
        reading = asyncio.create_task(_stamps(reader, took, int(RATE * PACED_S)))
        begun = time.perf_counter()
        for number in range(int(RATE * PACED_S)):
            if number % 10 == 0:
                await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            writer.publish(Publish(topic, _STAMP.pack(time.perf_counter()) + b"x" * 92, 0))
        async with asyncio.timeout(60):
            await reading
        took.sort()
        found.append((took[len(took) // 2], took[len(took) * 99 // 100]))
        reader.leave()
        writer.leave()
    for name, (median, worst) in zip(("at its own node", "at another node"), found, strict=True):
        said = f"{median * 1e3:.2f} ms, p99 {worst * 1e3:.2f} ms"
        _say(f"{RATE:,} messages/s of QoS 0 to one subscriber {name}: median, all nodes in one process", said)


async def _stamps(reader: LocalSession, took: list[float], count: int) -> None:
    while len(took) < count:
        while (packet := reader.receive()) is not None:
            if isinstance(packet, Publish):
                took.append(time.perf_counter() - _STAMP.unpack_from(packet.payload)[0])
        await asyncio.sleep(0)


async def filters(nodes: Nodes) -> None:
    """Topic filters that are subscribed at another node: their memory, and what a subscription costs."""
    one = [f"plant/{number}/state".encode() for number in range(FILTERS)]
    alone = session(nodes.a, "alone")
    before = resident()

    async def all_of_them(at: Broker, made: LocalSession, some: list[bytes]) -> None:
        for start in range(0, len(some), 1_000):
            await subscribed(at, made, some[start : start + 1_000])

    reader = session(nodes.b, "reader")
    cost = await nodes.cost_us(FILTERS, lambda: all_of_them(nodes.b, reader, one))
    size = (resident() - before) / FILTERS
    _say("a subscription that all three nodes know before its SUBACK, 1,000 at a time", f"{cost:.0f} µs")
    before = resident()
    again = session(nodes.b, "again")
    await all_of_them(nodes.b, again, one)
    own = (resident() - before) / FILTERS
    _say(f"a topic filter at one node, of {FILTERS:,}: its memory at each other node", f"{(size - own) / 2:.0f} B")
    _say("the same at its own node, with the subscription", f"{own:.0f} B")
    for each in (reader, again, alone):
        each.leave()
    await asyncio.sleep(1)


async def connects(nodes: Nodes) -> None:
    """A client that connects over TCP, and is asked for at all nodes."""
    count = 300

    async def come(broker: Broker, name: str) -> None:
        for number in range(count):
            async with Client("127.0.0.1", broker.port, client_id=f"{name}-{number}"):
                pass

    async def unnamed() -> None:
        for _ in range(count):
            async with Client("127.0.0.1", nodes.a.port):
                pass

    plain = await nodes.cost_us(count, unnamed)
    asked = await nodes.cost_us(count, lambda: come(nodes.a, "c"))
    _say("CONNECT and DISCONNECT, with the client's own part, without a question to other nodes", f"{plain:.0f} µs")
    _say("the same with a client identifier, for which two other nodes are asked", f"{asked:.0f} µs")


async def fan_out(nodes: Nodes) -> None:
    """One message to very many subscribers at three nodes."""
    readers = []
    before = resident()
    for number in range(SUBSCRIBERS):
        at = (nodes.a, nodes.b, nodes.c)[number % 3]
        reader = session(at, f"s-{number}", window=10)
        reader.subscribe([SubscriptionRequest(b"news", 0)])
        readers.append(reader)
        if number % 50 == 49:
            await asyncio.sleep(0.03)  # else the nodes take it for an overload
    while sum(each._core.subscriptions for each in (nodes.a, nodes.b, nodes.c)) < SUBSCRIBERS:
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    for reader in readers:
        while reader.receive() is not None:
            pass
    _say("a session inside a node with one subscription: memory", f"{(resident() - before) / SUBSCRIBERS:.0f} B")
    await asyncio.sleep(4)  # nodes that stood still for the figure above are connected again
    sent = [each.sent_bytes for each in nodes.a._assembly.nodes.states()]  # type: ignore[union-attr]
    writer = session(nodes.a, "writer")
    begun = time.perf_counter()

    async def work() -> None:
        writer.publish(Publish(b"news", b"x" * 100, 0))
        async with asyncio.timeout(60):
            while not all(reader.link.unsent_bytes for reader in readers[-3:]):
                await asyncio.sleep(0)

    cost = await nodes.cost_us(SUBSCRIBERS, work)
    took = time.perf_counter() - begun
    now = [each.sent_bytes for each in nodes.a._assembly.nodes.states()]  # type: ignore[union-attr]
    told = ", ".join(f"{after - before} B" for before, after in zip(sent, now, strict=True))
    _say(f"one message of 100 B to {SUBSCRIBERS:,} subscribers at three nodes: to each other node go", told)
    _say("each of these subscribers", f"{cost:.2f} µs ({took * 1e3:.0f} ms in all, three nodes in one process)")


CASES: Final = (idle, messages, latency, connects, filters, fan_out)


async def measure(nats: int) -> None:
    """All of it."""
    await asyncio.sleep(1)
    async with AsyncExitStack() as stack:
        brokers = []
        for name in "abc":
            options = {"servers": [f"nats://127.0.0.1:{PORT}"], "node": name}
            limits = {"max_subscriptions": 1_000_000, "max_queued_messages": 100_000, "max_sessions": 1_000_000}
            raw = {"listeners": [{"port": 0}], "nodes": options, "limits": limits}
            brokers.append(await stack.enter_async_context(Broker(parse_config(raw))))
        await asyncio.sleep(2)
        nodes = Nodes(brokers, nats)
        kind = "compiled" if build.is_compiled() else "pure Python"
        print(f"Three nodes ({kind}) in one process, NATS beside it; processor time of both.\n\n| | |\n|---|--:|")
        for each in CASES:
            await each(nodes)


def run(options: argparse.Namespace) -> int:
    """The command."""
    if options.subscribers:
        return hot_topic.measure(options.subscribers)
    if options.queue:
        return far_queue.measure()
    binary = shutil.which("nats-server") or str(Path(sys.executable).parent / "nats-server")
    with tempfile.TemporaryDirectory(prefix="mqttlite-bench-") as folder:
        where = ["-a", "127.0.0.1", "-p", str(PORT), "-js", "-sd", folder]
        nats = subprocess.Popen([binary, *where], stderr=subprocess.DEVNULL)
        try:
            asyncio.run(measure(nats.pid))
        finally:
            nats.terminate()
            nats.wait()
    return 0
