"""Faults of three machines and of their engine under load: what was acknowledged is there, whichever machine serves.

`tools/torture --cluster ROUNDS` runs it. Clients know the three addresses, and try the next one where a connection
ends. In the end no acknowledged message is lost, QoS 2 came exactly once, those of a publisher came in their order,
each will of a client that was lost came exactly once, no will of a client that is back came, no session was forgotten,
and no message of a queue came again after its acknowledgement was safe.
"""

import asyncio
import contextlib
import itertools
import random
import signal
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from tools.torture_clients import Link, Publisher, Subscriber
from tools.torture_machines import NUMBER, Machines
from tools.torture_packets import packet, text
from tools.torture_queues import delivered

BROKEN = (OSError, asyncio.IncompleteReadError, AssertionError)

PATIENCE_S = 1.5
"""How long a client waits for a sign of its broker before it tries the next address."""

STUBBORN_S = 30.0
"""The same, of clients that wait for a machine that stands still: it may acknowledge nothing any more."""

OUTAGE_S = 60.0
"""The same, while the engine has a fault: nobody is to be disconnected."""

PAUSE_S = 0.02
QUIET_S = 30.0
WILLS = 3
"""Clients with a will that are lost in each round."""

GRACE_S = 8.0
"""Wills of clients that a lost machine had come after five seconds and a moment."""


class Client(Protocol):
    """What connects again and again, to whichever machine serves."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None: ...


@dataclass
class Consumer:
    """Takes the messages of a queue. An acknowledgement is safe when a retained message behind it is acknowledged."""

    name: str
    version: ClassVar[int] = 5
    numbers: set[int] = field(default_factory=set)
    safe: set[str] = field(default_factory=set)
    """The messages whose acknowledgement is safe, by their identifiers."""
    again: int = 0
    _open: set[str] = field(default_factory=set)

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        link.writer.write(packet(0x82, b"\0\1\0" + text("$queue/jobs") + b"\1"))
        self._open.clear()
        confirming: set[str] = set()
        while not is_over():
            first, body = await link.read()
            if first >> 4 == 3:
                packet_id, payload, told = delivered(body)
                self.numbers.add(int(payload))
                self.again += told["message-id"] in self.safe
                link.writer.write(packet(0x40, packet_id))
                self._open.add(told["message-id"])
            elif first == 0x40:
                self.safe |= confirming
                confirming = set()
            if self._open and not confirming:
                confirming, self._open = self._open, set()
                link.writer.write(packet(0x33, text(f"kept/{self.name}") + b"\0\2\0" + b"1"))


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


@dataclass
class Prober:
    """Publishes one message at a time, and notes the longest time until one is acknowledged."""

    name: str = "prober"
    version: ClassVar[int] = 4
    longest_s: float = 0.0
    acknowledged: int = 0
    begun: float = 0.0

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.begun = self.begun or time.monotonic()
            link.writer.write(packet(0x33, text("kept/prober") + b"\0\1" + b"%d" % self.acknowledged))
            await link.read()
            self.longest_s = max(self.longest_s, time.monotonic() - self.begun)
            self.begun = 0.0
            self.acknowledged += 1
            await asyncio.sleep(PAUSE_S)


@dataclass
class Result:
    """What was seen: `wrong` is to have zeros only."""

    wrong: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    rounds: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """What was measured, by its name."""

    @property
    def is_good(self) -> bool:
        return not any(self.wrong.values()) and self.acknowledged > 0

    def note(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def __str__(self) -> str:
        lines = [f"{self.rounds} rounds, {self.acknowledged} messages acknowledged"]
        lines += [f"  {number} {what}" for what, number in self.wrong.items()]
        lines += [
            f"  {name}: {len(found)} times, median {statistics.median(found):.2f} s, worst {max(found):.2f} s"
            for name, found in sorted(self.seconds.items())
        ]
        return "\n".join(lines)


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
        self._publishers = [
            Publisher(f"{prefix}{at}-qos{qos}", qos, prefix=prefix, pause_s=PAUSE_S)
            for prefix, qos, at in (
                *(("passing", qos, at) for qos in (1, 2) for at in range(2)),
                ("jobs", 1, 0),
                ("events", 1, 0),
            )
        ]
        self._subscribers = [
            Subscriber(f"s{version}-qos{qos}", qos, version=version) for qos in (1, 2) for version in (4, 5)
        ]
        self._watcher = Subscriber("watcher", 2, "wills/#", version=5)
        self._consumer = Consumer("consumer")
        self._ticker = Ticker()
        self._prober = Prober()
        self._wills_expected: set[int] = set()
        self._wills_possible: set[int] = set()
        self._will_number = 0
        self._known: set[str] = set()
        """Clients that have a session."""
        self._has_published = False
        self._is_over = False
        self._connacks: list[float] = []
        self._links: set[Link] = set()
        """Those of clients that stay."""
        self._losses = 0
        """Connections that ended."""
        self.result = Result(wrong={"sessions forgotten": 0})

    async def run(self, rounds: int) -> Result:
        """Do so many faults; then let everything arrive, and compare."""
        faults = self._faults or [each for each in FAULTS if each not in NEEDS]
        await self.machines.links.open()
        for place in range(NUMBER):
            self.machines.start_engine(place)
        for place in range(NUMBER):
            self.machines.start(place)
        try:
            await self.machines.whole()
            takers: list[Client] = [*self._subscribers, self._watcher, self._consumer, self._ticker, self._prober]
            tasks = [asyncio.create_task(self._keep_talking(client)) for client in takers]
            try:
                await asyncio.sleep(2)  # for their subscriptions
                tasks += [asyncio.create_task(self._keep_talking(client)) for client in self._publishers]
                await self._acknowledged(1)
                for at in range(rounds):
                    name = faults[at % len(faults)] if self._faults else self._random.choice(faults)
                    await self._round(name)
                await self._arrive()
            finally:
                for task in tasks:
                    task.cancel()
                for done in await asyncio.gather(*tasks, return_exceptions=True):
                    if isinstance(done, Exception):
                        raise done
            await self._compare()
        finally:
            await self.machines.links.close()
            self.machines.close()
        return self.result

    # ------------------------------------------------------------------ clients

    async def _keep_talking(self, client: Client) -> None:
        is_publisher = isinstance(client, Publisher)
        patience_s = STUBBORN_S if client.name.endswith("0-qos1") else PATIENCE_S
        while not self._is_over:
            with contextlib.suppress(*BROKEN):
                async with self._connected(client.name, client.version, patience_s) as link:
                    self._links.add(link)
                    try:
                        await client.talk(link, lambda: self._has_published if is_publisher else self._is_over)
                    except BROKEN:
                        self._losses += 1
                        raise
                    finally:
                        self._links.discard(link)
                    return
            await asyncio.sleep(PAUSE_S)

    @contextlib.asynccontextmanager
    async def _connected(
        self, name: str, version: int, patience_s: float = PATIENCE_S, will: bytes | None = None
    ) -> AsyncIterator[Link]:
        """A connection to whichever machine serves."""
        for port in itertools.cycle(self.machines.ports):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    opening = Link.open(port, name, version, patience_s, will)
                    async with asyncio.timeout(PATIENCE_S):
                        link = await stack.enter_async_context(opening)
                except BROKEN:
                    await asyncio.sleep(PAUSE_S)
                    continue
                if link.has_session:
                    self._connacks.append(time.monotonic())
                elif name in self._known:
                    self.result.wrong["sessions forgotten"] += 1
                self._known.add(name)
                yield link
                return

    async def _leave_a_will(self, is_lost: asyncio.Event, comes_back: bool) -> None:
        """Connect with a will, and be lost; with `comes_back`, connect again and disconnect."""
        number = self._will_number = self._will_number + 1
        delay = b"\5\x18" + struct.pack(">I", 60) if comes_back else b"\0"
        will = delay + text("wills/w") + text(str(number))
        name = f"mortal{number}"
        with contextlib.suppress(*BROKEN):
            async with self._connected(name, 5, STUBBORN_S, will) as link:
                if not comes_back:
                    self._wills_possible.add(number)
                link.writer.write(packet(0x33, text("kept/mortal") + b"\0\1\0" + b"1"))
                await link.read()
                if not comes_back:
                    self._wills_expected.add(number)
                await is_lost.wait()
        while comes_back:
            with contextlib.suppress(*BROKEN):
                async with self._connected(name, 5) as link:
                    link.writer.write(packet(0x33, text("kept/mortal") + b"\0\1\0" + b"1"))
                    await link.read()
                    link.writer.write(b"\xe0\0")
                    return

    # ------------------------------------------------------------------ faults

    async def _round(self, name: str) -> None:
        is_lost = asyncio.Event()
        wills = [asyncio.create_task(self._leave_a_will(is_lost, at == 0)) for at in range(WILLS + 1)]
        await asyncio.sleep(self._random.uniform(0.5, 1.5))
        if name in ENGINE_FAULTS:
            await self._be_patient(OUTAGE_S)
        losses = self._losses
        self._ticker.longest_s = self._prober.longest_s = 0.0
        began = time.monotonic()
        await FAULTS[name](self)
        await self._acknowledged(3)
        is_lost.set()
        await asyncio.gather(*wills)
        await self.machines.whole()
        await self._acknowledged(3)
        result = self.result
        result.note(f"{name}: longest time until PUBACK", self._prober.longest_s)
        result.note(f"{name}: longest time without QoS 0", self._ticker.longest_s)
        result.note(f"{name}: all in all", time.monotonic() - began)
        if name in ENGINE_FAULTS:
            key = "connections lost by faults of the engine"
            result.wrong[key] = result.wrong.get(key, 0) + self._losses - losses
            await self._be_patient(PATIENCE_S)
        result.rounds += 1
        print(
            f"{time.strftime('%X')} round {result.rounds}: {name}, {self._losses - losses} connections lost", flush=True
        )

    async def _be_patient(self, seconds: float) -> None:
        """Let all clients wait so long for a sign: answers to pings come in order, behind acknowledgements that wait
        for the engine."""
        for link in self._links:
            link.patience_s = seconds
        await asyncio.sleep(0.7)  # until they have begun another read

    async def _acknowledged(self, more: int) -> None:
        """Wait until so many messages more are acknowledged one after the other."""
        goal = self._prober.acknowledged + more
        deadline = time.monotonic() + 90
        while self._prober.acknowledged < goal:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            await asyncio.sleep(PAUSE_S)

    async def _first_connack(self, name: str, since: float) -> None:
        """Wait for a CONNACK with a session, and note how long after `since` it came."""
        async with asyncio.timeout(90):
            while not self._connacks or self._connacks[-1] < since:
                await asyncio.sleep(0.005)
        self.result.note(
            f"{name}: until the first CONNACK", next(each for each in self._connacks if each >= since) - since
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
        self.machines.send(serving, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(1, 10))
        self.machines.send(serving, signal.SIGCONT)

    async def kill_engine_leader(self) -> None:
        """kill -9 of the engine's server that leads the log."""
        name = f"engine{await self.machines.leader()}"
        await self.machines.end(name)
        await self._acknowledged(3)
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
        await self._acknowledged(3)
        self.result.note("stop-two-engines: until PUBACK after two are back", time.monotonic() - since)

    async def hand_over(self) -> None:
        """An operator lets another machine serve."""
        losses = self._losses
        handing = asyncio.create_task(self.machines.hand_over(self._command))
        while self._losses == losses:
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
        await self._acknowledged(20)
        await asyncio.sleep(self._random.uniform(1, 5))
        self.machines.empty_disk(name)

    async def fill_engine_disk(self) -> None:
        """The disk of the engine's server that leads the log is full. An operator makes room, and restarts it."""
        name = f"engine{await self.machines.leader()}"
        self.machines.fill_disk(name)
        await self._acknowledged(20)
        self.machines.empty_disk(name)
        await self.machines.end(name)
        self.machines.start_engine(int(name[-1]))

    async def step_clock(self) -> None:
        """The clock of the machine that serves steps, by less than delays of wills; then another one serves."""
        serving = await self.machines.serving()
        self.machines.set_clock(serving, self._random.randint(-20, 20))
        await asyncio.sleep(self._random.uniform(0.1, 3))
        await self._lose_serving("step-clock", signal.SIGKILL)

    # ------------------------------------------------------------------ the end

    async def _arrive(self) -> None:
        """Publish no more, and wait until everything acknowledged has come, or nothing comes any more."""
        self._has_published = True
        changed, before = time.monotonic(), -1
        await asyncio.sleep(GRACE_S)
        while time.monotonic() - changed < QUIET_S and not self._is_whole():
            await asyncio.sleep(0.5)
            takers = [*self._subscribers, self._watcher]
            count = sum(len(numbers) for each in takers for numbers in each.got.values())
            count += len(self._consumer.numbers)
            if count != before:
                changed, before = time.monotonic(), count
        self._is_over = True

    def _is_whole(self) -> bool:
        return (
            not any(each.under_way for each in self._publishers)
            and all(
                publisher.acknowledged <= set(subscriber.got.get(publisher.name, []))
                for publisher in self._of("passing")
                for subscriber in self._subscribers
            )
            and all(publisher.acknowledged <= self._consumer.numbers for publisher in self._of("jobs"))
            and self._wills_expected <= set(self._watcher.got.get("w", []))
        )

    def _of(self, prefix: str) -> list[Publisher]:
        return [each for each in self._publishers if each.prefix == prefix]

    async def _compare(self) -> None:
        wrong = self.result.wrong
        lost = twice = out_of_order = 0
        for publisher, subscriber in itertools.product(self._of("passing"), self._subscribers):
            got = subscriber.got.get(publisher.name, [])
            first = list(dict.fromkeys(got))
            lost += len(publisher.acknowledged - set(got))
            out_of_order += sum(left > right for left, right in itertools.pairwise(first))
            if publisher.qos == 2 and subscriber.qos == 2:
                twice += len(got) - len(first)
        self.result.acknowledged = sum(len(each.acknowledged) for each in self._publishers)
        wrong["lost"] = lost
        wrong["of QoS 2 twice"] = twice
        wrong["out of order"] = out_of_order
        wrong["lost in the queue"] = sum(len(each.acknowledged - self._consumer.numbers) for each in self._of("jobs"))
        wrong["delivered again by the queue"] = self._consumer.again
        wills = self._watcher.got.get("w", [])
        wrong["wills lost"] = len(self._wills_expected - set(wills))
        wrong["wills twice"] = len(wills) - len(set(wills))
        wrong["wills of clients that are back"] = len(set(wills) - self._wills_possible)
        (publisher,) = self._of("events")
        offsets, numbers = await self._read_stream()
        wrong["lost in the stream"] = len(publisher.acknowledged - set(numbers))
        wrong["gaps in the stream"] = sum(right != left + 1 for left, right in itertools.pairwise(offsets))
        first = list(dict.fromkeys(numbers))
        wrong["out of order in the stream"] = sum(left > right for left, right in itertools.pairwise(first))

    async def _read_stream(self) -> tuple[list[int], list[int]]:
        """The offsets and numbers in the stream."""
        offsets: list[int] = []
        numbers: list[int] = []
        async with self._connected("reader", 5) as link:
            link.writer.write(packet(0x82, b"\0\1\0" + text("$stream/events@earliest") + b"\1"))
            with contextlib.suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(2):
                        first, body = await link.read()
                    if first >> 4 == 3:
                        packet_id, payload, told = delivered(body)
                        offsets.append(int(told["stream-offset"]))
                        numbers.append(int(payload))
                        link.writer.write(packet(0x40, packet_id))
        return offsets, numbers


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
