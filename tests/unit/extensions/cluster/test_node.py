"""A machine of a cluster, without a broker."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.engine.memory import MemoryServers
from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.options import ClusterOptions
from mqttlite.store.sqlite.files import NoRoom
from mqttlite.store.sqlite.store import SqliteStore


class FullDisk(DataDirectory):
    """Has no room until `has_room`."""

    has_room = False

    def open(self) -> SqliteStore:
        if not self.has_room:
            raise NoRoom("mqttlite.db cannot be opened: database or disk is full")
        return super().open()


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


async def test_a_machine_is_ready_when_it_follows(tmp_path: Path) -> None:
    servers = MemoryServers()
    servers.is_available = False
    machine = Node(ClusterOptions(servers=("nats://a",)), DataDirectory(tmp_path), servers.connect())
    ready = asyncio.Event()
    machine.on_follows = ready.set
    turn = asyncio.create_task(machine.serve_next())
    await asyncio.sleep(0.1)
    assert not ready.is_set(), "the engine is not there"
    servers.is_available = True
    async with asyncio.timeout(10):
        await ready.wait()
    assert machine.role == "follows"
    turn.cancel()
    await asyncio.wait([turn])
    await machine.close()


async def test_a_machine_that_starts_on_a_full_disk_waits_for_room_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.extensions.cluster.node.RECHECK_S", 0.01)
    disk = FullDisk(tmp_path)
    machine = Node(ClusterOptions(servers=("nats://a",)), disk, MemoryServers().connect())
    follows = asyncio.Event()
    machine.on_follows = follows.set
    turn = asyncio.create_task(machine.serve_next())
    await asyncio.sleep(0.1)
    assert (machine.role, follows.is_set(), turn.done()) == ("cannot serve", False, False)
    assert caplog.text.count("waits for room on its disk: mqttlite.db cannot be opened") == 1
    disk.has_room = True
    async with asyncio.timeout(10):
        await follows.wait()
    assert machine.role == "follows"
    turn.cancel()
    await asyncio.wait([turn])
    await machine.close()


async def test_a_machine_whose_disk_is_full_at_its_turn_gives_the_lease_back_at_once(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path)
    disk.has_room = True
    machine = Node(ClusterOptions(servers=("nats://a",)), disk, MemoryServers().connect())

    def fill() -> None:
        disk.has_room = False

    machine.on_follows = fill
    machine.start()
    turn = asyncio.create_task(machine.serve_next())
    async with asyncio.timeout(10):
        while machine.role != "cannot serve":
            await asyncio.sleep(0.01)
    assert not machine.turn.is_held
    turn.cancel()
    await asyncio.wait([turn])
    await machine.close()
