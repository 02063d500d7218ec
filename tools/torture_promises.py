"""Clients of whatever is tortured, and what they were promised.

In the end no acknowledged message is lost, QoS 2 came exactly once, those of a publisher came in their order, each will
of a client that was lost came exactly once, no will of a client that is back came, and no session was forgotten.
"""

import asyncio
import contextlib
import itertools
import statistics
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from tools.torture_clients import Link, Publisher, Subscriber
from tools.torture_packets import packet, text
from tools.torture_patience import Patience
from tools.torture_queues import delivered
from tools.torture_takers import PAUSE_S, Client, Consumer, Prober

BROKEN = (OSError, asyncio.IncompleteReadError, AssertionError)

PATIENCE_S = 1.5
"""How long a client waits for a sign of its broker before it connects again."""

STUBBORN_S = 30.0
"""The same, of clients that wait for a broker that stands still: it may acknowledge nothing any more."""

QUIET_S = 30.0

ACKNOWLEDGED_S = 90.0
"""After so long without it, nothing is acknowledged any more."""


@dataclass
class Result:
    """What was seen: `wrong` is to have zeros only."""

    wrong: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    rounds: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """What was measured, by its name."""
    counted: dict[str, int] = field(default_factory=dict)
    """What is neither right nor wrong."""

    @property
    def is_good(self) -> bool:
        return not any(self.wrong.values()) and self.acknowledged > 0

    def note(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def __str__(self) -> str:
        lines = [f"{self.rounds} rounds, {self.acknowledged} messages acknowledged"]
        lines += [f"  {number} {what}" for what, number in {**self.wrong, **self.counted}.items()]
        lines += [
            f"  {name}: {len(found)} times, median {statistics.median(found):.2f} s, worst {max(found):.2f} s"
            for name, found in sorted(self.seconds.items())
        ]
        return "\n".join(lines)


class Promises:
    """`ports` says where a client connects, by its name: at one after the other, until one accepts it. Without a
    sign of it for `patience_s` it tries the next one; some clients are stubborn, by their names."""

    def __init__(
        self,
        ports: Callable[[str], Sequence[int]],
        publishers: Sequence[Publisher],
        subscribers: Sequence[Subscriber],
        consumers: Sequence[Consumer],
        probers: Sequence[Prober],
        others: Sequence[Client] = (),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._ports = ports
        self._publishers = publishers
        self._subscribers = subscribers
        self._consumers = consumers
        self._probers = probers
        self._watcher = Subscriber("watcher", 2, "wills/#", version=5)
        self._patience_s = patience_s
        self._takers: list[Client] = [*subscribers, self._watcher, *consumers, *probers, *others]
        self._wills_expected: set[int] = set()
        self._wills_possible: set[int] = set()
        self._will_number = 0
        self._known: set[str] = set()
        """Clients that have a session."""
        self._has_published = False
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.connacks: list[float] = []
        """When a client found its session."""
        self.links: set[Link] = set()
        """Those of clients that stay."""
        self.losses = 0
        """Connections that ended."""
        self.result = Result(wrong={"sessions forgotten": 0})

    # ------------------------------------------------------------------ clients

    async def begin(self) -> None:
        """Let clients subscribe, and then publish."""
        self._tasks += [asyncio.create_task(self._keep_talking(client)) for client in self._takers]
        await asyncio.sleep(2)  # for their subscriptions
        self._tasks += [asyncio.create_task(self._keep_talking(client)) for client in self._publishers]
        await self.acknowledged(1)

    async def end(self) -> None:
        """Raises what a client has raised."""
        for task in self._tasks:
            task.cancel()
        for done in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(done, Exception):
                raise done

    async def _keep_talking(self, client: Client) -> None:
        is_publisher = isinstance(client, Publisher)
        patience_s = STUBBORN_S if client.name.endswith("0-qos1") else self._patience_s
        while not self._is_over:
            with contextlib.suppress(*BROKEN):
                async with self._connected(client.name, client.version, patience_s) as link:
                    self.links.add(link)
                    try:
                        await client.talk(link, lambda: self._has_published if is_publisher else self._is_over)
                    except BROKEN:
                        self.losses += 1
                        raise
                    finally:
                        self.links.discard(link)
                    return
            await asyncio.sleep(PAUSE_S)

    @contextlib.asynccontextmanager
    async def _connected(
        self, name: str, version: int, patience_s: float = PATIENCE_S, will: bytes | None = None
    ) -> AsyncIterator[Link]:
        """A connection to whichever broker serves that client."""
        for port in itertools.cycle(self._ports(name)):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    opening = Link.open(port, name, version, patience_s, will)
                    async with asyncio.timeout(self._patience_s):
                        link = await stack.enter_async_context(opening)
                except BROKEN:
                    await asyncio.sleep(PAUSE_S)
                    continue
                if link.has_session:
                    self.connacks.append(time.monotonic())
                elif name in self._known:
                    self.result.wrong["sessions forgotten"] += 1
                self._known.add(name)
                yield link
                return

    async def leave_a_will(self, is_lost: asyncio.Event, comes_back: bool) -> None:
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

    async def acknowledged(self, more: int) -> None:
        """Wait until so many messages more are acknowledged one after the other, to each of the probers."""
        goals = [each.acknowledged + more for each in self._probers]
        patience = Patience(ACKNOWLEDGED_S)
        while late := [each.name for each, goal in zip(self._probers, goals, strict=True) if each.acknowledged < goal]:
            assert not patience.is_over(), f"nothing is acknowledged any more to {', '.join(late)}"
            await asyncio.sleep(PAUSE_S)

    # ------------------------------------------------------------------ the end

    async def arrive(self, grace_s: float) -> None:
        """Publish no more, and wait until everything acknowledged has come, or nothing comes any more; so long at
        least, for what is not to come."""
        self._has_published = True
        patience, before = Patience(QUIET_S), -1
        await asyncio.sleep(grace_s)
        while not patience.is_over() and not self._is_whole():
            await asyncio.sleep(0.5)
            takers = [*self._subscribers, self._watcher]
            count = sum(len(numbers) for each in takers for numbers in each.got.values()) + len(self._consumed)
            if count != before:
                before = count
                patience.renew()
        self._is_over = True

    @property
    def _consumed(self) -> set[int]:
        return set().union(*(each.numbers for each in self._consumers))

    def _is_whole(self) -> bool:
        return (
            not any(each.under_way for each in self._publishers)
            and all(
                publisher.acknowledged <= set(subscriber.got.get(publisher.name, []))
                for publisher in self._of("passing")
                for subscriber in self._subscribers
            )
            and all(publisher.acknowledged <= self._consumed for publisher in self._of("jobs"))
            and self._wills_expected <= set(self._watcher.got.get("w", []))
        )

    def _of(self, prefix: str) -> list[Publisher]:
        return [each for each in self._publishers if each.prefix == prefix]

    async def compare(self) -> None:
        """Note what is wrong."""
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
        wrong["lost in the queue"] = sum(len(each.acknowledged - self._consumed) for each in self._of("jobs"))
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

    async def retained(self, port: int) -> dict[str, int]:
        """By its name, the number of the message of each prober that a broker has retained."""
        found: dict[str, int] = {}
        async with Link.open(port, f"retained{port}", 4) as link:
            link.writer.write(packet(0x82, b"\0\1" + text("kept/#") + b"\1"))
            with contextlib.suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(2):
                        first, body = await link.read()
                    if first >> 4 == 3:
                        end = 2 + int.from_bytes(body[:2], "big")
                        found[body[7:end].decode()] = int(body[end + 2 :])
                        link.writer.write(packet(0x40, body[end : end + 2]))
        return found
