"""Three nodes in place of one broker: each new connection comes to the next one, as through a balancer."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from typing import Final

import msgspec
import pytest

from mqttlite import Broker
from mqttlite.extensions.nodes.options import NodesOptions
from tests.interop.support import RunningBroker
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import assembly_of

CHUNK_BYTES: Final = 65_536
NAMES: Final = "abc"


class RunningNodes(RunningBroker):
    """`broker` is the first one. What the nodes say to each other goes through the process."""

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        air = Air()
        try:
            async with contextlib.AsyncExitStack() as stack:
                patch = stack.enter_context(pytest.MonkeyPatch.context())
                where = "mqttlite.extensions.nodes.connect"
                patch.setattr(f"{where}.carrier_of", lambda _options: air.carrier())
                patch.setattr(f"{where}.engine_of", lambda options: air.connecting(options.node))
                brokers = [await stack.enter_async_context(Broker(self._of(name))) for name in NAMES]
                self.broker = brokers[0]
                await until(lambda: all(_others(each) == len(NAMES) - 1 for each in brokers))
                doors = []
                for ports in zip(*([each.port for each in broker.listeners] for broker in brokers), strict=True):
                    doors.append(await asyncio.start_server(forwarding(cycle(ports)), "127.0.0.1", 0))
                self._ports.set_result([each.sockets[0].getsockname()[1] for each in doors])
                await self._stop.wait()
                for each in doors:
                    each.close()
        except BaseException as error:
            if not self._ports.done():
                self._ports.set_exception(error)
            raise

    def _of(self, name: str) -> object:
        nodes = NodesOptions(servers=("nats://127.0.0.1:4222",), node=name)
        return msgspec.structs.replace(self._config, nodes=nodes)


def _others(broker: Broker) -> int:
    nodes = assembly_of(broker).nodes
    assert nodes is not None
    return sum(each.state == "connected" for each in nodes.states())


def forwarding(ports: Iterator[int]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Passes each connection to the next port."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", next(ports))
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_pump(reader, away), _pump(there, writer))
        writer.transport.abort()
        away.transport.abort()

    return forward


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()
