"""Every row of the table over sockets, where each new connection comes to the next of three nodes."""

import asyncio
import re
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Final

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.nodes import nodes
from mqttlite.extensions.nodes.options import NodesOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from tests.conformance.script import Row
from tests.conformance.test_statements import cases, title
from tests.conformance.worlds import PATIENCE_S, AuthChain, SocketStage, Wire, play
from tests.support.air import Air
from tests.support.table import over

SETTLES_S: Final = 0.008
"""In this time what happened at one node has reached the others: some times the pause between two blobs."""


class NodesStage(SocketStage):
    """A step is over when the other nodes know of it."""

    def __init__(self, ports: list[int], *, gated: bool) -> None:
        super().__init__(ports[0], gated=gated)
        self._ports = cycle(ports)

    async def send(self, link: str, data: bytes, *, whole: bool = True) -> None:
        await super().send(link, data, whole=whole)
        await asyncio.sleep(SETTLES_S)

    async def receive(self, link: str) -> bytes | None:
        wire = self._links[link]
        async with asyncio.timeout(PATIENCE_S):
            while not (wire.frames or wire.closed):
                await asyncio.sleep(0.001)
        return await super().receive(link)

    async def left(self, link: str) -> list[bytes]:
        await asyncio.sleep(SETTLES_S)
        return await super().left(link)

    async def drop(self, link: str) -> None:
        self._links.pop(link).transport.close()
        await asyncio.sleep(SETTLES_S)

    async def _open(self) -> Wire:
        self._port = next(self._ports)
        return await super()._open()


CLIENT: Final = re.compile(r"\b([a-z])(?=[<>.!-]| *$| [a-z]\b)", re.MULTILINE)
RETAINED: Final = re.compile(r"[<>] 3[1357] ")
OTHERWISE: Final = (
    re.compile(r'"\$(?!share/)'),  # topics that begin with $ stay at their node
    re.compile(r"97$", re.MULTILINE),  # a publisher is not told that a queue at another node is full
)
"""What nodes do not do as one broker does, in scripts."""


def together() -> list[tuple[Row, int]]:
    """Rows with several clients, each in one version."""
    return [
        (row, version)
        for row, version in cases(waiting=False)
        if version == (V311 if V311 in row.versions else V5)
        and len(set(CLIENT.findall(row.script))) > 1
        and row.limits.max_sessions > 10  # each node counts its own
        and not (version == V5 and RETAINED.search(row.script))  # it has one more property
        and not any(each.search(row.script) for each in OTHERWISE)
    ]


@pytest.fixture(autouse=True)
def airs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one carries the blobs of the nodes of a row."""
    _AIRS.clear()
    monkeypatch.setattr("mqttlite.extensions.nodes.connect.carrier_of", lambda _options: _AIRS[-1].carrier())
    monkeypatch.setattr(
        "mqttlite.extensions.nodes.connect.engine_of", lambda options: _AIRS[-1].connecting(options.node)
    )
    monkeypatch.setattr(nodes, "ANSWER_S", 0.002)


_AIRS: Final[list[Air]] = []


@pytest.mark.slow
@over(together(), title)
async def test_over_three_nodes(row: Row, version: int) -> None:
    _AIRS.append(Air())
    auth_chain = AuthChain() if row.gated else None
    options = [NodesOptions(servers=("nats://127.0.0.1:4222",), node=name) for name in "abc"]
    listener = ListenerOptions(port=0, capabilities=row.capabilities)
    async with AsyncExitStack() as stack:
        brokers = []
        for each in options:
            config = Config(listeners=(listener,), limits=row.limits, nodes=each)
            broker = Broker(config, authenticator=auth_chain, method_authenticator=auth_chain)
            brokers.append(await stack.enter_async_context(broker))
        stage = NodesStage([each.port for each in brokers], gated=row.gated)
        try:
            await play(row, version, stage)
        finally:
            await stage.end()
