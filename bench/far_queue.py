"""A queue whose consumers are at another node, beside one whose consumers are at its own: processor time of each node.

Two nodes and NATS are processes of their own; publishers are at the node of the queue. `python -m bench nodes --queue`
prints a table. What bounds the queue is the processor of its node.
"""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from bench.node_processes import NodeProcesses
from mqttlite.client.client import Client

NAMES: Final = "ab"
MESSAGES: Final = 20_000
AT_ONCE: Final = 50
PAYLOAD: Final = b"x" * 100
QUEUE: Final = '[[queues]]\nname = "jobs"\nfilters = ["jobs/#"]\nmax_messages = 1_000_000\n'
PATIENCE_S: Final = 120.0

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def measure() -> int:
    """Print a table. Return the exit code."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-bench-") as folder, contextlib.ExitStack() as stack:
        nodes = NodeProcesses(stack, folder, NAMES, QUEUE)
        print(f"{MESSAGES:,} messages of QoS 1, of 100 B, through a queue at node a; one consumer.\n")
        print("| consumer at | node a, for a message | node b | NATS |\n|---|--:|--:|--:|")
        for place, name in enumerate(NAMES):
            found = asyncio.run(_cost_us(nodes, nodes.ports[place], f"consumer-{name}"))
            print(f"| {name} | {' | '.join(f'{each:.0f} µs' for each in found)} |", flush=True)
    return 0


async def _cost_us(nodes: NodeProcesses, port: int, name: str) -> list[float]:
    """Microseconds of each process, for a message."""
    async with (
        Client("127.0.0.1", nodes.ports[0]) as publisher,
        Client("127.0.0.1", port, client_id=name) as consumer,
        asyncio.timeout(PATIENCE_S),
    ):
        await consumer.subscribe("$queue/jobs", qos=1)
        before = [_cpu_s(each) for each in nodes.pids]
        consuming = asyncio.create_task(_consume(consumer))
        for _ in range(0, MESSAGES, AT_ONCE):
            await asyncio.gather(*(publisher.publish("jobs/1", PAYLOAD, qos=1) for _ in range(AT_ONCE)))
        await consuming
        return [(_cpu_s(pid) - was) / MESSAGES * 1e6 for pid, was in zip(nodes.pids, before, strict=True)]


async def _consume(consumer: Client) -> None:
    count = 0
    async for _ in consumer.messages:
        count += 1
        if count == MESSAGES:
            return


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
