"""A machine of a cluster, without a broker."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.engine.memory import MemoryServers
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.options import ClusterOptions


def node(directory: Path) -> Node:
    return Node(ClusterOptions(servers=("nats://a",)), DataDirectory(directory), MemoryServers().connect())


async def test_work_that_fails_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = node(tmp_path)

    async def fail() -> None:
        raise ValueError("no key")

    tasks: list[asyncio.Task[None]] = []
    machine._begin_task(tasks, fail())
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert "ValueError: no key" in caplog.text
    await machine.close()
