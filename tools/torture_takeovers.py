"""One client identifier that connects at all nodes at once, again and again: its session is one.

A message with DUP 0 that came over two connections was in two sessions; so were two if CONNACK says that there was
none (Session Present 0). What is acknowledged to the publisher comes over one of the connections.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.torture_clients import Link, Publisher
from tools.torture_packets import packet, text
from tools.torture_patience import Patience
from tools.torture_promises import BROKEN, PATIENCE_S, QUIET_S, Result
from tools.torture_queues import delivered

NAME = "fought"
PAUSE_S = 0.005
TAKEOVER_S = 2.0
"""The longest that a takeover of a fight may take on average: many times what it takes on a busy machine."""

SETTLE_S = 3.0
"""So long after nodes have met, one session of each client is left."""


@dataclass
class Takeovers:
    """`ports` are those of the nodes."""

    ports: Sequence[int]
    random: random.Random
    connects: int = 0
    strangers: int = 0
    """Connections that found no session, but for the first."""
    _fresh: Counter[int] = field(default_factory=Counter)
    """By its number, how often a message came that was not sent again."""
    _came: set[int] = field(default_factory=set)
    _publisher: Publisher = field(default_factory=lambda: Publisher("feed", 1, prefix="fought", pause_s=PAUSE_S))
    _is_over: bool = False

    async def fight(self, count: int, result: Result) -> None:
        """Let the client connect so often, and note what is wrong. All nodes must be connected with each other."""
        goal = self.connects + count
        self._is_over = False
        strangers = self.strangers
        self._fresh.clear()
        await self._subscribe()
        feeding = asyncio.create_task(self._feed())
        fighting = [asyncio.create_task(self._fight(port)) for port in self.ports]
        try:
            patience = Patience(count * TAKEOVER_S)
            while self.connects < goal:
                assert not patience.is_over(), f"{goal - self.connects} of {count} takeovers are missing"
                await asyncio.sleep(0.01)
            self._is_over = True
            await feeding
            patience = Patience(QUIET_S)
            while not (self._publisher.acknowledged <= self._came or patience.is_over()):
                await asyncio.sleep(0.05)
        finally:
            for task in (feeding, *fighting):
                task.cancel()
            for done in await asyncio.gather(feeding, *fighting, return_exceptions=True):
                if isinstance(done, Exception):
                    raise done
        wrong, counted = result.wrong, result.counted
        for key, found in (
            ("takeovers that found no session", self.strangers - strangers),
            ("messages in two sessions of one client", sum(times > 1 for times in self._fresh.values())),
            ("lost in takeovers", len(self._publisher.acknowledged - self._came)),
        ):
            wrong[key] = wrong.get(key, 0) + found
        counted["takeovers of one identifier"] = self.connects
        counted["messages for it"] = len(self._publisher.acknowledged)

    async def wander(self) -> None:
        """Connect at all nodes, until this is cancelled. While nodes do not hear each other, the client may have
        several sessions. Let it settle afterwards."""
        async with asyncio.TaskGroup() as tasks:
            for port in self.ports:
                tasks.create_task(self._wander(port))

    async def _wander(self, port: int) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0, 0.5))
            with contextlib.suppress(*BROKEN):
                async with Link.open(port, NAME, 5, PATIENCE_S) as link:
                    await link.read()

    async def settle(self) -> None:
        """All nodes are connected: wait until one session is left."""
        await asyncio.sleep(SETTLE_S)

    async def _subscribe(self) -> None:
        """The session of this connection has the subscription."""
        async with Link.open(self.ports[0], NAME, 5, QUIET_S) as link:
            link.writer.write(packet(0x82, b"\0\1\0" + text("fought/#") + b"\1"))
            while (await link.read())[0] != 0x90:
                pass

    async def _feed(self) -> None:
        while True:
            with contextlib.suppress(*BROKEN):
                async with Link.open(self.ports[0], "feed", 4) as link:
                    await self._publisher.talk(link, lambda: self._is_over)
                    return
            await asyncio.sleep(PAUSE_S)

    async def _fight(self, port: int) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0, 0.02))
            with contextlib.suppress(*BROKEN):
                async with Link.open(port, NAME, 5) as link:
                    self.connects += 1
                    self.strangers += not link.has_session
                    while True:
                        first, body = await link.read()
                        if first >> 4 == 3:
                            packet_id, payload, _ = delivered(body)
                            number = int(payload)
                            self._fresh[number] += not first & 8
                            self._came.add(number)
                            link.writer.write(packet(0x40, packet_id))
            if self._is_over and port != self.ports[-1]:
                return  # the last one takes what is left
