"""Machines of a cluster in this process: each with its own data directory and connection to the engine."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from mqttlite.config import ClusterOptions, Config, ListenerOptions
from mqttlite.core.ports import Store
from mqttlite.engine.memory import MemoryEngine, MemoryServers
from mqttlite.event_hub import Listener
from mqttlite.extensions.cluster import serving
from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.readiness import problem_of
from mqttlite.extensions.cluster.shared_files import SharedFiles
from mqttlite.extensions.dataset import options as telemetry
from mqttlite.operations.surroundings import RunningBroker, Surroundings
from mqttlite.server import Broker
from tests.support.nats_servers import free_ports

Leave: TypeAlias = Callable[[RunningBroker], Awaitable[None]]


class Machine:
    """One machine; `broker` is there while it serves."""

    def __init__(self, name: str, servers: MemoryServers, directory: Path) -> None:
        self.name: Final = name
        self.directory: Final = directory
        self.broker: Broker | None = None
        self.engine: MemoryEngine = servers.connect()
        self._servers: Final = servers
        self._latest: Broker | None = None
        """The one that serves, or did last."""
        self.port: Final = free_ports(1)[0]
        """Where it serves."""
        self.telemetry: telemetry.TelemetryOptions | None = None
        """Of its broker."""
        self.listeners: list[Listener] = []
        """To the events of its broker."""
        self.node: Node
        self.figures: Surroundings
        self._options: Final = Machine.options(name)
        self._ended: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @staticmethod
    def options(name: str) -> ClusterOptions:
        return ClusterOptions(servers=("nats://127.0.0.1:4222",), node=name, addresses=(f"{name}.example:1883",))

    async def start(self) -> None:
        files = SharedFiles(self.engine, self.directory)
        could_serve = partial(problem_of, self._config())
        self.node = Node(self._options, DataDirectory(self.directory), self.engine, files, could_serve)
        self.node.start()
        self._task = asyncio.get_running_loop().create_task(serving.take_turns(self.node, self._run, self._ended))

    def beside(self, name: str) -> "Machine":
        """Another machine of the cluster, which does not run yet. The caller stops it."""
        return Machine(name, self._servers, self.directory.with_name(name))

    def open_connections(self) -> int:
        """Those of the broker that serves, or did last."""
        return 0 if self._latest is None else sum(each.open for each in self._latest.listeners)

    async def serves(self) -> Broker:
        """Wait until it serves."""
        while self.broker is None:
            assert self._task is not None
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.01)
        return self.broker

    async def ended(self) -> None:
        """Wait until it ends by itself; raise why."""
        task, self._task = self._task, None
        assert task is not None
        await task

    async def stop(self) -> None:
        """End as after SIGTERM. Harmless if it has ended."""
        task, self._task = self._task, None
        self._ended.set()
        if task is not None:
            await task
        await self.node.close()

    def _config(self) -> Config:
        return Config(
            listeners=(ListenerOptions(port=self.port),),
            data_dir=str(self.directory),
            cluster=self._options,
            stop_timeout_s=0.5,
            telemetry=self.telemetry,
        )

    async def _run(self, store: Store, around: Surroundings, until: asyncio.Event, leave: Leave) -> None:
        broker = Broker(self._config(), store=store)
        broker.surroundings = self.figures = around
        broker.event_listeners.extend(self.listeners)
        async with broker:
            self.broker = self._latest = broker
            waits = [asyncio.ensure_future(each.wait()) for each in (until, self._ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            self.broker = None
            if until.is_set():
                await leave(broker)
