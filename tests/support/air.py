"""Carries blobs between nodes in one process: with delays, losses and cuts, in the order in which they were sent."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from mqttlite.engine.memory import MemoryEngine, MemoryServers
from mqttlite.engine.port import Engine
from mqttlite.extensions.nodes.carrier import CarrierLost


class Air:
    """`max_delay_s` is the longest way; with `loss`, a blob is lost with this probability."""

    def __init__(self, chance: random.Random | None = None, max_delay_s: float = 0.0) -> None:
        self._chance: Final = chance or random.Random(0)
        self.max_delay_s = max_delay_s
        self.loss = 0.0
        self.delays: dict[tuple[str, str], float] = {}
        """The least time from one node to another."""
        self.cut: set[frozenset[str]] = set()
        """Pairs of nodes that do not hear each other."""
        self.without: set[str] = set()
        """Nodes without a connection."""
        self.still: set[str] = set()
        """Nodes whose connection stands still: what they say, and what is said to them, waits for `go_on`."""
        self.blobs: list[tuple[str, str, bytes]] = []
        """What was sent from one node to another."""
        self.servers: Final = MemoryServers()
        """What keeps the documents of all nodes."""
        self.engines: Final[dict[str, MemoryEngine]] = {}
        self._hears: Final[dict[str, list[Callable[[bytes], None]]]] = {}
        """By name: two nodes may have the same one, by mistake."""
        self._latest: Final[dict[tuple[str, str], float]] = {}
        self._waiting: Final[list[tuple[str, str, bytes]]] = []

    def carrier(self) -> "AirCarrier":
        """One for a node."""
        return AirCarrier(self)

    def connecting(self, node: str) -> Callable[[], Awaitable[Engine]]:
        """How a node connects to what keeps the documents."""

        async def connect() -> Engine:
            engine = self.servers.connect()
            await engine.entries("")
            self.engines[node] = engine
            return engine

        return connect

    def join(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        self._hears.setdefault(node, []).append(on_blob)

    def leave(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        """A node is gone, unless it has joined again."""
        if on_blob in self._hears.get(node, ()):
            self._hears[node].remove(on_blob)

    def send(self, sender: str, node: str, blob: bytes) -> None:
        self.blobs.append((sender, node, blob))
        if sender in self.still or node in self.still:
            self._waiting.append((sender, node, blob))
        else:
            self._pass(sender, node, blob)

    def go_on(self) -> None:
        """No connection stands still any more: all that waits arrives at once."""
        self.still.clear()
        waiting, self._waiting[:] = list(self._waiting), ()
        for each in waiting:
            self._pass(*each)

    def _pass(self, sender: str, node: str, blob: bytes) -> None:
        hears = self._hears.get(node)
        if not hears or frozenset((sender, node)) in self.cut or self._chance.random() < self.loss:
            return
        loop = asyncio.get_running_loop()
        way = sender, node
        delay = self.delays.get(way, 0.0) + self._chance.random() * self.max_delay_s
        at = max(self._latest.get(way, 0.0) + 1e-6, loop.time() + delay)
        self._latest[way] = at
        for each in hears:
            loop.call_at(at, self._arrive, node, each, blob)

    def _arrive(self, node: str, hears: Callable[[bytes], None], blob: bytes) -> None:
        if hears in self._hears.get(node, ()) and node not in self.without:
            hears(blob)

    def everybody(self) -> list[str]:
        return [name for name, hears in self._hears.items() if hears]


class AirCarrier:
    """Implements `Carrier`."""

    def __init__(self, air: Air) -> None:
        self._air: Final = air
        self._node = ""
        self._on_blob: Callable[[bytes], None] = lambda _blob: None

    async def open(self, node: str, on_blob: Callable[[bytes], None]) -> None:
        self._node, self._on_blob = node, on_blob
        self._air.join(node, on_blob)

    async def send(self, node: str, blob: bytes) -> None:
        if self._node in self._air.without:
            raise CarrierLost("it is cut off")
        self._air.send(self._node, node, blob)

    async def send_all(self, blob: bytes) -> None:
        for node in self._air.everybody():
            await self.send(node, blob)

    async def close(self) -> None:
        self._air.leave(self._node, self._on_blob)
