"""Faults of three machines and of their engine under load: what was acknowledged is there, whichever machine serves.

`tools/torture --cluster ROUNDS` runs it. Clients know the three addresses, and try the next one where a connection
ends. In the end no acknowledged message is lost, QoS 2 came exactly once, those of a publisher came in their order,
each will of a client that was lost came exactly once, no will of a client that is back came, no session was forgotten,
and no message of a queue came again after its acknowledgement was safe.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tools.torture_clients import Link, Publisher, Subscriber
from tools.torture_machines import NUMBER, Machines
from tools.torture_packets import packet, text
from tools.torture_promises import PATIENCE_S, Promises, Result
from tools.torture_takers import PAUSE_S, Consumer, Prober

OUTAGE_S = 60.0
"""How long clients wait for a sign while the engine has a fault: nobody is to be disconnected."""

GRACE_S = 8.0
"""Wills of clients that a lost machine had come after five seconds and a moment."""

WILLS = 3
"""Clients with a will that are lost in each round."""


@dataclass
class Ticker:
    """Sends itself messages at QoS 0, and notes the longest time without one."""

    name: str = "ticker"
    version: ClassVar[int] = 5
    longest_s: float = 0.0
    latest: float = 0.0

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        link.writer.write(packet(0x82, b"\0\1\0" + text("tick") + b"\0"))
        ticking = asyncio.create_task(self._tick(link))
        try:
            while not is_over():
                first, _ = await link.read()
                if first >> 4 == 3:
                    now = time.monotonic()
                    self.longest_s = max(self.longest_s, now - self.latest if self.latest else 0.0)
                    self.latest = now
        finally:
            ticking.cancel()

    async def _tick(self, link: Link) -> None:
        while True:
            link.writer.write(packet(0x30, text("tick") + b"\0"))
            await asyncio.sleep(PAUSE_S)


class ClusterTorture:
    """`command` is `mqttlite`, without `serve`."""

    def __init__(self, command: list[str], folder: Path, seed: int, faults: list[str] | None = None) -> None:
        """`faults` are done in turn; without them those that need nothing special, by the seed."""
        self._command = command
        self._faults = faults
        self.machines = Machines(
            [*command, "serve"], folder, frozenset(NEEDS[each] for each in faults or () if each in NEEDS)
        )
        self._random = random.Random(seed)
        self._consumer = Consumer("consumer")
        self._ticker = Ticker()
        self._prober = Prober()
        self._clients = Promises(
            lambda _name: self.machines.ports,
            [
                Publisher(f"{prefix}{at}-qos{qos}", qos, prefix=prefix, pause_s=PAUSE_S)
                for prefix, qos, at in (
                    *(("passing", qos, at) for qos in (1, 2) for at in range(2)),
                    ("jobs", 1, 0),
                    ("events", 1, 0),
                )
            ],
            [Subscriber(f"s{version}-qos{qos}", qos, version=version) for qos in (1, 2) for version in (4, 5)],
            [self._consumer],
            [self._prober],
            [self._ticker],
        )

    async def run(self, rounds: int) -> Result:
        """Do so many faults; then let everything arrive, and compare."""
        faults = self._faults or [each for each in FAULTS if each not in NEEDS]
        await self.machines.links.open()
        for place in range(NUMBER):
            self.machines.start_engine(place)
        for place in range(NUMBER):
            self.machines.start(place)
        clients = self._clients
        try:
            await self.machines.whole()
            try:
                await clients.begin()
                for at in range(rounds):
                    name = faults[at % len(faults)] if self._faults else self._random.choice(faults)
                    await self._round(name)
                await clients.arrive(GRACE_S)
            finally:
                await clients.end()
            await clients.compare()
            clients.result.wrong["delivered again by the queue"] = self._consumer.again
        finally:
            await self.machines.links.close()
            self.machines.close()
        return clients.result

    # ------------------------------------------------------------------ faults

    async def _round(self, name: str) -> None:
        is_lost = asyncio.Event()
        wills = [asyncio.create_task(self._clients.leave_a_will(is_lost, at == 0)) for at in range(WILLS + 1)]
        await asyncio.sleep(self._random.uniform(0.5, 1.5))
        if name in ENGINE_FAULTS:
            await self._be_patient(OUTAGE_S)
        losses = self._clients.losses
        self._ticker.longest_s = self._prober.longest_s = 0.0
        began = time.monotonic()
        await FAULTS[name](self)
        await self._clients.acknowledged(3)
        is_lost.set()
        await asyncio.gather(*wills)
        await self.machines.whole()
        await self._clients.acknowledged(3)
        result = self._clients.result
        result.note(f"{name}: longest time until PUBACK", self._prober.longest_s)
        result.note(f"{name}: longest time without QoS 0", self._ticker.longest_s)
        result.note(f"{name}: all in all", time.monotonic() - began)
        if name in ENGINE_FAULTS:
            key = "connections lost by faults of the engine"
            result.wrong[key] = result.wrong.get(key, 0) + self._clients.losses - losses
            await self._be_patient(PATIENCE_S)
        result.rounds += 1
        print(
            f"{time.strftime('%X')} round {result.rounds}: {name}, {self._clients.losses - losses} connections lost",
            flush=True,
        )

    async def _be_patient(self, seconds: float) -> None:
        """Let all clients wait so long for a sign: answers to pings come in order, behind acknowledgements that wait
        for the engine."""
        for link in self._clients.links:
            link.patience_s = seconds
        await asyncio.sleep(0.7)  # until they have begun another read

    async def _first_connack(self, name: str, since: float) -> None:
        """Wait for a CONNACK with a session, and note how long after `since` it came."""
        async with asyncio.timeout(90):
            while not self._clients.connacks or self._clients.connacks[-1] < since:
                await asyncio.sleep(0.005)
        self._clients.result.note(
            f"{name}: until the first CONNACK", next(each for each in self._clients.connacks if each >= since) - since
        )

    async def _follower(self) -> int:
        serving = await self.machines.serving()
        return self._random.choice([place for place in range(NUMBER) if place != serving])

    async def kill_serving(self) -> None:
        """kill -9 of the machine that serves."""
        await self._lose_serving("kill-serving", signal.SIGKILL)

    async def end_serving(self) -> None:
        """SIGTERM to the machine that serves."""
        await self._lose_serving("end-serving", signal.SIGTERM)

    async def _lose_serving(self, name: str, how: signal.Signals) -> None:
        serving = await self.machines.serving()
        since = time.monotonic()
        await self.machines.end(f"m{serving}", how)
        await self._first_connack(name, since)
        self.machines.start(serving)

    async def kill_following(self) -> None:
        """kill -9 of a machine that follows."""
        place = await self._follower()
        await self.machines.end(f"m{place}")
        await asyncio.sleep(self._random.uniform(0.1, 3))
        self.machines.start(place)

    async def pause_serving(self) -> None:
        """The machine that serves stands still for 1 to 10 seconds; then it goes on."""
        serving = await self.machines.serving()
        self.machines.send(f"m{serving}", signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(1, 10))
        self.machines.send(f"m{serving}", signal.SIGCONT)

    async def kill_engine_leader(self) -> None:
        """kill -9 of the engine's server that leads the log."""
        name = f"engine{await self.machines.leader()}"
        await self.machines.end(name)
        await self._clients.acknowledged(3)
        self.machines.start_engine(int(name[-1]))

    async def stop_two_engines(self) -> None:
        """Two servers of the engine are down for some seconds."""
        places = self._random.sample(range(NUMBER), 2)
        for place in places:
            await self.machines.end(f"engine{place}")
        await asyncio.sleep(self._random.uniform(2, 8))
        since = time.monotonic()
        for place in places:
            self.machines.start_engine(place)
        await self._clients.acknowledged(3)
        self._clients.result.note("stop-two-engines: until PUBACK after two are back", time.monotonic() - since)

    async def hand_over(self) -> None:
        """An operator lets another machine serve."""
        losses = self._clients.losses
        handing = asyncio.create_task(self.machines.hand_over(self._command))
        while self._clients.losses == losses:
            if handing.done():
                handing.result()
            await asyncio.sleep(0.002)
        since = time.monotonic()
        await self._first_connack("hand-over", since)
        await handing

    async def lose_data(self) -> None:
        """A machine comes back without its data directory."""
        place = self._random.randrange(NUMBER)
        await self.machines.end(f"m{place}")
        self.machines.lose_data(place)
        await asyncio.sleep(self._random.uniform(0.1, 5))
        self.machines.start(place)

    async def cut_serving(self) -> None:
        """The machine that serves reaches no server of the engine for 1 to 10 seconds."""
        await self._disturb_links(f"m{await self.machines.serving()}", 0.0)

    async def slow_serving(self) -> None:
        """What it says to them, and they to it, takes 50 to 300 ms longer."""
        await self._disturb_links(f"m{await self.machines.serving()}", self._random.uniform(0.05, 0.3))

    async def cut_engine_leader(self) -> None:
        """The server of the engine that leads the log does not reach the others for 1 to 10 seconds, but machines."""
        await self._disturb_links(f"n{await self.machines.leader()}", 0.0)

    async def slow_engine_leader(self) -> None:
        """What it says to them, and they to it, takes 50 to 300 ms longer."""
        await self._disturb_links(f"n{await self.machines.leader()}", self._random.uniform(0.05, 0.3))

    async def _disturb_links(self, group: str, delay_s: float) -> None:
        """Let links be slow for some seconds; without a delay, cut."""
        links = self.machines.links
        if delay_s:
            links.slow(group, delay_s)
        else:
            links.cut(group)
        await asyncio.sleep(self._random.uniform(1, 10))
        links.heal()

    async def fill_disk(self) -> None:
        """The disk of the machine that serves is full for some seconds; acknowledgements go on."""
        name = f"m{await self.machines.serving()}"
        self.machines.fill_disk(name)
        await self._clients.acknowledged(20)
        await asyncio.sleep(self._random.uniform(1, 5))
        self.machines.empty_disk(name)

    async def fill_engine_disk(self) -> None:
        """The disk of the engine's server that leads the log is full. An operator makes room, and restarts it."""
        name = f"engine{await self.machines.leader()}"
        self.machines.fill_disk(name)
        await self._clients.acknowledged(20)
        self.machines.empty_disk(name)
        await self.machines.end(name)
        self.machines.start_engine(int(name[-1]))

    async def step_clock(self) -> None:
        """The clock of the machine that serves steps, by less than delays of wills; then another one serves."""
        serving = await self.machines.serving()
        self.machines.set_clock(serving, self._random.randint(-20, 20))
        await asyncio.sleep(self._random.uniform(0.1, 3))
        await self._lose_serving("step-clock", signal.SIGKILL)


FAULTS: dict[str, Callable[[ClusterTorture], Awaitable[None]]] = {
    "kill-serving": ClusterTorture.kill_serving,
    "kill-following": ClusterTorture.kill_following,
    "pause-serving": ClusterTorture.pause_serving,
    "kill-engine-leader": ClusterTorture.kill_engine_leader,
    "stop-two-engines": ClusterTorture.stop_two_engines,
    "hand-over": ClusterTorture.hand_over,
    "lose-data": ClusterTorture.lose_data,
    "end-serving": ClusterTorture.end_serving,
    "cut-serving": ClusterTorture.cut_serving,
    "slow-serving": ClusterTorture.slow_serving,
    "cut-engine-leader": ClusterTorture.cut_engine_leader,
    "slow-engine-leader": ClusterTorture.slow_engine_leader,
    "fill-disk": ClusterTorture.fill_disk,
    "fill-engine-disk": ClusterTorture.fill_engine_disk,
    "step-clock": ClusterTorture.step_clock,
}
NEEDS = {
    "cut-serving": "links",
    "slow-serving": "links",
    "cut-engine-leader": "links",
    "slow-engine-leader": "links",
    "fill-disk": "disks",
    "fill-engine-disk": "disks",
    "step-clock": "clocks",
}
"""What machines must have for a fault. These are done only where they are named."""
ENGINE_FAULTS = ("kill-engine-leader", "stop-two-engines")
