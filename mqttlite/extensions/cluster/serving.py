"""How `mqttlite serve` runs one machine of a cluster: it serves when it is its turn, again and again."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mqttlite.config import Config, ConfigError, LameDuckOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.engine.port import Engine, EngineError, EngineUnavailable
from mqttlite.extensions.cluster.codec import CodecError
from mqttlite.extensions.cluster.connect import connect, engine_child
from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.figures import ClusterFigures
from mqttlite.extensions.cluster.node import Node
from mqttlite.extensions.cluster.options import ClusterOptions
from mqttlite.extensions.cluster.readiness import problem_of
from mqttlite.extensions.cluster.replicated_store import ReplicatedStore
from mqttlite.extensions.cluster.shared_files import SharedFiles
from mqttlite.extensions.cluster.standby import ForeignDataError
from mqttlite.extensions.cluster.standby_port import StandbyPort
from mqttlite.operations.surroundings import Run, RunningBroker
from mqttlite.store.sqlite.files import make_directory

ENGINE_FOLDER: Final = "engine"
"""Where the server of the engine that runs on this machine keeps its files, in the data directory."""

RETRY_S: Final = 1.0
"""How long to wait before the engine is looked for again."""

LEAVE_S: Final = 0.3
"""How long a machine that has lost the lease, or hands it over, may take to send its clients away."""

IMPORTED_BEFORE: Final = (
    "mqttlite.extensions.bridge.bridges",
    "mqttlite.extensions.push.service",
    "mqttlite.extensions.queues.queueing",
    "mqttlite.extensions.schemas.schemas",
    "mqttlite.extensions.streams.service",
    "mqttlite.extensions.streams.stream_commands",
    "mqttlite.filters.build",
)
"""What each broker imports when it is built. A machine that follows has it already: it costs clients half a second."""

_log = logging.getLogger("mqttlite.cluster")


async def serve(config: Config, run: Run, ended: asyncio.Event, ready: Callable[[], None]) -> None:
    """Implements `cli.serve.Serving`."""
    options = config.cluster
    assert options is not None, "the section is there"
    try:
        directory = Path(str(config.data_dir))
        make_directory(directory)
        child = engine_child(options, directory / ENGINE_FOLDER)
        if child is not None:
            await child.start()
        try:
            await _serve_as_machine(options, config, run, ended, ready)
        finally:
            if child is not None:
                await child.stop()
    except (EngineError, CodecError) as error:
        raise ConfigError(f"cluster: {error}") from None
    except ForeignDataError as error:
        raise ConfigError(str(error)) from None


async def _serve_as_machine(
    options: ClusterOptions, config: Config, run: Run, ended: asyncio.Event, ready: Callable[[], None]
) -> None:
    engine = await _connected(options, ended)
    if engine is None:
        return
    import_early(IMPORTED_BEFORE)
    directory = Path(str(config.data_dir))
    files = SharedFiles(engine, directory)
    node = Node(options, DataDirectory(directory), engine, files, could_serve=lambda: problem_of(config))
    node.on_follows = ready
    try:
        node.start()
        await take_turns(node, run, ended, config.metrics)
    finally:
        await node.close()


def import_early(names: Iterable[str]) -> None:
    """Import modules of which some may not be there: an extension may be taken out, or its library not installed."""
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)


async def _connected(options: ClusterOptions, ended: asyncio.Event) -> Engine | None:
    """Connect to the engine, which may start later than this machine; None if `ended` is set before."""
    attempts = 1
    while not ended.is_set():
        try:
            return await connect(options)
        except EngineUnavailable as error:
            if attempts & (attempts - 1) == 0:  # the 1st, 2nd, 4th, 8th …
                _log.warning("waiting for the engine (attempt %d): %s", attempts, error)
            attempts += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), RETRY_S)
    return None


async def take_turns(node: Node, run: Run, ended: asyncio.Event, metrics: MetricsOptions | None = None) -> None:
    """Serve whenever it is this machine's turn, until `ended` is set. In between, the port for metrics tells that it
    follows."""
    figures = ClusterFigures(node)
    while not ended.is_set():
        port = None if metrics is None else StandbyPort(metrics, node, figures)
        if port is not None:
            await port.start("metrics")
        try:
            store = await _first(node.serve_next(), ended)
        finally:
            if port is not None:
                await port.stop()
        if store is None:
            return
        try:
            await run(store, figures, node.turn.over, lambda broker: _leave(node, broker))
        finally:
            await node.end()


async def _first(turn: Coroutine[Any, Any, ReplicatedStore], ended: asyncio.Event) -> ReplicatedStore | None:
    """The result of `turn`; None if `ended` is set before there is one."""
    loop = asyncio.get_running_loop()
    tasks = turning, _ending = loop.create_task(turn), loop.create_task(ended.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return turning.result() if turning.done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _leave(node: Node, broker: RunningBroker) -> None:
    """Send the clients away at once: another machine serves, or is to serve."""
    if node.turn.is_lost:
        await broker.stop(LEAVE_S)
    else:
        await broker.drain(LameDuckOptions(deadline_s=LEAVE_S, server_reference=node.successor_address()))
