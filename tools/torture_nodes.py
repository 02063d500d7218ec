"""Faults of three nodes and of their servers of NATS under load: what was acknowledged is there, at whichever node.

`tools/torture --nodes ROUNDS` runs it. Clients with kept sessions stay with a node each. What `Promises` says holds
over nodes; each node has the retained messages; numbers at QoS 0 never come behind higher ones; and one client that
connects at all nodes at once has one session whenever the nodes hear each other.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tools.torture_clients import Publisher, Subscriber
from tools.torture_node_processes import NUMBER, NodeProcesses, pair
from tools.torture_promises import Promises, Result
from tools.torture_race import Race
from tools.torture_takeovers import Takeovers
from tools.torture_takers import PAUSE_S, Consumer, Prober

WILLS = 3
"""Clients with a will that are lost in each round."""

TAKEOVERS = 50
"""Of one identifier after each round."""

LONGEST_S = 10.0
"""Three times as long as a node is silent until it counts as away."""

FREEZES = 3
"""How often in a row the whole machine stands still."""

LONGER = 4
"""How many times longer than a node: longer than each wait of a node, and of its server of NATS."""

GRACE_S = 1.0

PATIENCE_S = 15.0
"""How long a client waits for a sign of its node: it has no other one, and a busy machine may let it wait."""


class NodesTorture:
    """`serve` is the command of the broker."""

    def __init__(
        self, serve: list[str], folder: Path, seed: int, faults: list[str] | None = None, longest_s: float = LONGEST_S
    ) -> None:
        """`faults` are done in turn; without them any, by the seed. None lasts longer than `longest_s`."""
        self._longest_s = longest_s
        self._faults = faults
        self._random = random.Random(seed)
        self.nodes = NodeProcesses(serve, folder)
        ports = self.nodes.ports
        self._probers = [Prober(f"prober{place}") for place in range(NUMBER)]
        self._clients = Promises(
            self._ports_of,
            [
                Publisher(f"{prefix}{at}-qos{qos}", qos, prefix=prefix, pause_s=PAUSE_S)
                for prefix, qos, at in (
                    *(("passing", qos, at) for qos in (1, 2) for at in range(NUMBER)),
                    ("jobs", 1, 1),
                    ("events", 1, 1),
                )
            ],
            [
                Subscriber(f"s{at}-qos{qos}", qos, version=version)
                for at, qos, version in ((0, 1, 4), (1, 2, 5), (2, 2, 4))
            ],
            [Consumer(f"consumer{place}") for place in range(NUMBER)],
            self._probers,
            patience_s=PATIENCE_S,
        )
        self._takeovers = Takeovers(ports, self._random)
        self._races = [Race(f"r{at}", ports[at], ports[(at + 1) % NUMBER]) for at in range(NUMBER)]

    def _ports_of(self, name: str) -> list[int]:
        """A client stays with a node, which the first digit of its name says."""
        place = next((int(each) for each in name if each.isdigit()), 0) % NUMBER
        return [self.nodes.ports[place]]

    async def run(self, rounds: int, takeovers: int = TAKEOVERS) -> Result:
        """Let one client connect so often, and do so many faults; then let everything arrive, and compare."""
        faults = self._faults or list(FAULTS)
        clients = self._clients
        racing: list[asyncio.Task[None]] = []
        try:
            await self.nodes.begin()
            try:
                began = time.monotonic()
                await self._takeovers.fight(takeovers, clients.result)
                clients.result.note("takeovers before the first fault", time.monotonic() - began)
                await clients.begin()
                racing = [asyncio.create_task(each.run()) for each in self._races]
                for at in range(rounds):
                    await self._round(faults[at % len(faults)] if self._faults else self._random.choice(faults))
                await clients.arrive(GRACE_S)
            finally:
                await clients.end()
                for task in racing:
                    task.cancel()
                for done in await asyncio.gather(*racing, return_exceptions=True):
                    if isinstance(done, Exception):
                        raise done
            await self._compare()
        finally:
            await self.nodes.links.close()
            self.nodes.close()
        return clients.result

    async def _compare(self) -> None:
        await self._clients.compare()
        result = self._clients.result
        result.wrong["of QoS 0 out of order"] = sum(each.inversions for each in self._races)
        result.counted["of QoS 0 came"] = sum(each.came for each in self._races)
        assert all(each.came for each in self._races), "nothing of QoS 0 came"
        retained = await asyncio.gather(*(self._clients.retained(port) for port in self.nodes.ports))
        result.wrong["retained messages that a node lacks"] = sum(
            found.get(each.name, -1) < each.acknowledged - 1 for found in retained for each in self._probers
        )

    async def _round(self, name: str) -> None:
        clients = self._clients
        is_lost = asyncio.Event()
        wills = [asyncio.create_task(clients.leave_a_will(is_lost, at == 0)) for at in range(WILLS + 1)]
        await asyncio.sleep(self._random.uniform(0.5, 1.5))
        losses = clients.losses
        for each in self._probers:
            each.longest_s = 0.0
        began = time.monotonic()
        wandering = asyncio.create_task(self._takeovers.wander())
        try:
            await FAULTS[name](self)
            await clients.acknowledged(3)
        finally:
            wandering.cancel()
            await asyncio.wait([wandering])
        is_lost.set()
        await asyncio.gather(*wills)
        await self.nodes.whole()
        await clients.acknowledged(3)
        result = clients.result
        result.note(f"{name}: longest time until PUBACK", max(each.longest_s for each in self._probers))
        result.note(f"{name}: all in all", time.monotonic() - began)
        await self._takeovers.settle()
        await self._takeovers.fight(TAKEOVERS, result)
        result.rounds += 1
        said = f"round {result.rounds}: {name}, {clients.losses - losses} connections lost"
        print(f"{time.strftime('%X')} {said}", flush=True)

    # ------------------------------------------------------------------ faults

    def _any(self) -> int:
        return self._random.randrange(NUMBER)

    async def kill_node(self) -> None:
        """kill -9 of a node."""
        await self._start_again(f"m{self._any()}", signal.SIGKILL)

    async def end_node(self) -> None:
        """SIGTERM to a node."""
        await self._start_again(f"m{self._any()}", signal.SIGTERM)

    async def kill_nats(self) -> None:
        """kill -9 of a node's server of NATS."""
        await self._start_again(f"nats{self._any()}", signal.SIGKILL)

    async def _start_again(self, name: str, how: signal.Signals) -> None:
        """End a process, and start it some time later: a node that is away for three seconds counts as such."""
        await self.nodes.end(name, how)
        await asyncio.sleep(self._random.uniform(0.1, 0.6 * self._longest_s))
        start = self.nodes.start if name.startswith("m") else self.nodes.start_nats
        start(int(name[-1]))

    async def kill_all_nats(self) -> None:
        """kill -9 of all servers of NATS."""
        for place in range(NUMBER):
            await self.nodes.end(f"nats{place}")
        await asyncio.sleep(self._random.uniform(0.1, 0.6 * self._longest_s))
        for place in range(NUMBER):
            self.nodes.start_nats(place)

    async def pause_node(self) -> None:
        """A node stands still for some seconds; then it goes on."""
        await self.nodes.stand_still(f"m{self._any()}", self._random.uniform(1, self._longest_s))

    async def pause_nats(self) -> None:
        """A server of NATS does."""
        await self.nodes.stand_still(f"nats{self._any()}", self._random.uniform(1, self._longest_s))

    async def freeze(self) -> None:
        """The whole machine stands still, once or a few times in a row: nodes, servers of NATS and clients. When they
        go on, all deadlines are over at once."""
        for _ in range(self._random.randint(1, FREEZES)):
            self.nodes.freeze(self._random.uniform(1, LONGER * self._longest_s), self._random)
            await asyncio.sleep(self._random.uniform(0, 1))

    async def cut_node(self) -> None:
        """A node does not reach NATS for some seconds."""
        await self._cut(f"m{self._any()}")

    async def part_two(self) -> None:
        """Two nodes do not hear each other for some seconds; the third hears both."""
        await self._cut(pair(*self._random.sample(range(NUMBER), 2)))

    async def _cut(self, group: str) -> None:
        self.nodes.links.cut(group)
        await asyncio.sleep(self._random.uniform(1, self._longest_s))
        self.nodes.links.heal()

    async def slow_node(self) -> None:
        """What a node says to NATS, and NATS to it, takes 50 to 300 ms longer for some seconds."""
        self.nodes.links.slow(f"m{self._any()}", self._random.uniform(0.05, 0.3))
        await asyncio.sleep(self._random.uniform(1, self._longest_s))
        self.nodes.links.heal()


FAULTS: dict[str, Callable[[NodesTorture], Awaitable[None]]] = {
    "kill-node": NodesTorture.kill_node,
    "end-node": NodesTorture.end_node,
    "pause-node": NodesTorture.pause_node,
    "cut-node": NodesTorture.cut_node,
    "slow-node": NodesTorture.slow_node,
    "part-two": NodesTorture.part_two,
    "kill-nats": NodesTorture.kill_nats,
    "kill-all-nats": NodesTorture.kill_all_nats,
    "pause-nats": NodesTorture.pause_nats,
    "freeze": NodesTorture.freeze,
}
