"""Kills a broker with a stream, and kills, stops, adds and takes away members of a group, each a process of its own.

`tools/torture --stream ROUNDS` runs it. A publisher sends numbered messages of many keys; a kept session reads all of
them, and a group shares the partitions. After each fault every partition must have a reader again. In the end
`torture_group_checks` compares what the members read with what was acknowledged. Invariant: one fault at a time, except
for members that come while another one is stopped.
"""

import asyncio
import contextlib
import random
import signal
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from tools.torture_broker import TorturedBroker
from tools.torture_group_checks import KILL, Fault, Got, Verdict, judge
from tools.torture_member import WINDOW
from tools.torture_packets import packet, text
from tools.torture_queues import BROKEN, Link

ROOT: Final = Path(__file__).resolve().parent.parent
PARTITIONS: Final = 12
KEYS: Final = 240

RATE: Final = 500.0
"""Messages a second: some forty for each partition."""

MOST_MEMBERS: Final = 5
FEWEST_MEMBERS: Final = 2

SETTLE_S: Final = 30.0
"""How long it may take until each partition has a reader, and they are at the end."""

QUIET_S: Final = 0.5
"""How long nothing is done after each fault, so that it can be seen who reads."""

LAG: Final = 200
"""How far behind a group is that has caught up: what is under way."""

CONFIG: Final = """
[[listeners]]
port = {port}
[[streams]]
name = "jobs"
filters = ["work/#"]
partitions = {partitions}
"""


class Reading:
    """A process of `torture_member`, and the messages that it had."""

    def __init__(self, name: str, topic_filter: str, expiry_s: int) -> None:
        self.name: Final = name
        self._filter: Final = topic_filter
        self._expiry_s: Final = expiry_s
        self._process: asyncio.subprocess.Process | None = None
        self._lives = 0
        self._listening: asyncio.Task[None] | None = None
        self.got: Final[list[Got]] = []
        self.has_joined: bool = False
        self.is_stopped: bool = False

    async def start(self, port: int) -> None:
        """Start the process; it has not joined."""
        arguments = (self.name, str(port), self._filter, str(self._expiry_s))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tools.torture_member", *arguments),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._lives += 1
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(self._process, self._lives * 1_000_000, ready))
        await ready

    async def _listen(self, process: asyncio.subprocess.Process, life: int, ready: "asyncio.Future[None]") -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            words = line.split()
            if words[:1] == [b"ready"]:
                ready.set_result(None)
            elif len(words) == 8 and line.endswith(b"\n"):  # else it was killed while it wrote
                connection, partition, offset, number = map(int, words[1:5])
                times = map(float, words[5:])
                self.got.append(Got(self.name, life + connection, partition, offset, number, *times))
        if not ready.done():
            ready.set_exception(AssertionError(f"{self.name} did not start"))

    def tell(self, word: str) -> None:
        """`join` or `leave`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self.has_joined = word == "join"
        self._process.stdin.write(word.encode() + b"\n")

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT."""
        assert self._process is not None
        self.is_stopped = number == signal.SIGSTOP
        self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL; what it said is still read."""
        self.has_joined = False
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._listening is not None:
            await self._listening


class StreamTorture:
    """`serve` is the command of the broker, without its port and data directory."""

    def __init__(self, serve: list[str], directory: Path, seed: int, partitions: int = PARTITIONS) -> None:
        self._port: Final = _free_port()
        config = CONFIG.format(port=self._port, partitions=partitions)
        self._tortured: Final = TorturedBroker(serve, directory, config)
        self._random: Final = random.Random(seed)
        self._partitions: Final = partitions
        self._members: Final = [Reading(f"m{at}", "$share/g/$stream/jobs@earliest", 0) for at in range(MOST_MEMBERS)]
        self._alone: Final = Reading("alone", "$stream/jobs@earliest", 3_600)
        self._faults: Final[list[Fault]] = []
        self._acknowledged: Final[set[int]] = set()
        self._stuck = 0
        self._is_over = False

    async def run(self, rounds: int) -> Verdict:
        """Do so many faults, let everything arrive, and compare."""
        await self._tortured.start()
        readers = [self._alone, *self._members]
        publisher: asyncio.Task[None] | None = None
        try:
            await asyncio.gather(*(each.start(self._port) for each in readers))
            for each in [self._alone, *self._members[:3]]:
                each.tell("join")
            await self._settle(3)
            publisher = asyncio.create_task(self._publish())
            await asyncio.sleep(QUIET_S)
            for _ in range(rounds):
                await self._fault()
                if publisher.done():
                    publisher.result()
            self._is_over = True
            await publisher
            await self._arrive()
        finally:
            if publisher is not None:
                publisher.cancel()
            await asyncio.gather(*(each.kill() for each in readers))
            await self._tortured.kill()
        group = [got for each in self._members for got in each.got]
        verdict = judge(self._acknowledged, group, self._alone.got, self._faults, self._partitions, WINDOW)
        verdict.stuck = self._stuck
        return verdict

    # ------------------------------------------------------------------ faults

    async def _fault(self) -> None:
        joined = [each for each in self._members if each.has_joined]
        others = [each for each in self._members if not each.has_joined]
        kinds = [self._kill_broker, self._stop_shortly, self._stop_long]
        if len(joined) > FEWEST_MEMBERS:
            kinds += [self._leave, self._kill_member, self._kill_member]
        if others:
            kinds += [self._join, self._join, self._join_beside_stopped]
        moves, since = await self._moves(), time.monotonic()
        done = await self._random.choice(kinds)()
        now = sum(each.has_joined for each in self._members)
        fewest = min(len(joined), now)
        is_settled = await self._settle(now)
        self._stuck += not is_settled
        moved = 0 if done.kind == KILL else await self._moves() - moves
        self._faults.append(replace(done, since=since, settled=time.monotonic(), members=fewest, moves=moved))
        await asyncio.sleep(QUIET_S)

    async def _kill_broker(self) -> Fault:
        await self._tortured.kill()
        await asyncio.sleep(self._random.random() * 0.3)
        await self._tortured.start()
        return Fault(KILL, 0, 0, 0)

    async def _kill_member(self) -> Fault:
        member = self._one(True)
        await member.kill()
        await member.start(self._port)  # for a later one
        return Fault("kills of members", 0, 0, 0, went=frozenset((member.name,)))

    async def _leave(self) -> Fault:
        member = self._one(True)
        member.tell("leave")
        return Fault("leaves", 0, 0, 0, went=frozenset((member.name,)))

    async def _join(self) -> Fault:
        self._one(False).tell("join")
        return Fault("joins", 0, 0, 0)

    async def _stop_shortly(self) -> Fault:
        """The broker does not notice."""
        member = self._one(True)
        member.send(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        member.send(signal.SIGCONT)
        await asyncio.sleep(QUIET_S)
        return Fault("short stops", 0, 0, 0, changes=0, went=frozenset((member.name,)))

    async def _stop_long(self) -> Fault:
        """The broker closes its connection; it comes again when it goes on."""
        member = self._one(True)
        member.send(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(6.0, 8.0))
        member.send(signal.SIGCONT)
        await asyncio.sleep(QUIET_S)
        return Fault("long stops", 0, 0, 0, changes=2, went=frozenset((member.name,)))

    async def _join_beside_stopped(self) -> Fault:
        """Partitions of the stopped one move while it has messages."""
        stopped = self._one(True)
        stopped.send(signal.SIGSTOP)
        await asyncio.sleep(0.3)
        self._one(False).tell("join")
        await asyncio.sleep(self._random.uniform(0.5, 7.0))
        stopped.send(signal.SIGCONT)
        await asyncio.sleep(QUIET_S)
        return Fault("joins beside stopped members", 0, 0, 0, changes=3, went=frozenset((stopped.name,)))

    def _one(self, has_joined: bool) -> Reading:
        return self._random.choice([each for each in self._members if each.has_joined is has_joined])

    # ------------------------------------------------------------------ what the broker says

    async def _group(self) -> dict[str, object]:
        found = (await self._tortured.ask("GET", "/streams/jobs/groups"))["items"]
        assert isinstance(found, list)
        if not found:
            raise ValueError("nobody has subscribed")
        group: dict[str, object] = found[0]
        return group

    async def _moves(self) -> int:
        return int(str((await self._group())["moves"]))

    async def _settle(self, members: int) -> bool:
        """Wait until the group has so many members, which have all partitions, evenly, and are at the end."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                group = await self._group()
                owners, there = group["owners"], group["members"]
                assert isinstance(owners, list)
                assert isinstance(there, list)
                counts = [owners.count(each) for each in there]
                is_even = len(there) == members and sum(counts) == self._partitions and max(counts) - min(counts) < 2
                if is_even and int(str(group["lag"])) <= LAG:
                    return True
            await asyncio.sleep(0.05)
        return False

    async def _arrive(self) -> None:
        """Wait until both have everything, or nothing comes any more."""
        until, count = time.monotonic() + SETTLE_S, -1
        while time.monotonic() < until:
            group = {got.number for each in self._members for got in each.got}
            if self._acknowledged <= group and self._acknowledged <= {got.number for got in self._alone.got}:
                return
            if len(group) != count:
                count, until = len(group), time.monotonic() + SETTLE_S
            await asyncio.sleep(0.3)

    # ------------------------------------------------------------------ the publisher

    async def _publish(self) -> None:
        """Publish at a constant rate; what was not acknowledged is sent again."""
        number, under_way = 0, dict[int, int]()
        ids = deque(range(1, 60_000))
        while not self._is_over or under_way:
            with contextlib.suppress(*BROKEN):
                async with Link.open(self._port, "publisher") as link:
                    for packet_id, each in under_way.items():
                        link.writer.write(_message(each, packet_id))
                    reading = asyncio.create_task(self._confirm(link, under_way, ids))
                    try:
                        began, sent = time.monotonic(), 0
                        while not reading.done() and (not self._is_over or under_way):
                            due = int((time.monotonic() - began) * RATE)
                            while sent < due and not self._is_over and ids:
                                packet_id = ids.popleft()
                                under_way[packet_id] = number
                                link.writer.write(_message(number, packet_id))
                                number += 1
                                sent += 1
                            await asyncio.sleep(0.005)
                    finally:
                        reading.cancel()
                        await asyncio.gather(reading, return_exceptions=True)
            await asyncio.sleep(0.02)

    async def _confirm(self, link: Link, under_way: dict[int, int], ids: deque[int]) -> None:
        while True:
            first, body = await link.read()
            if first == 0x40:
                packet_id = int.from_bytes(body[:2], "big")
                self._acknowledged.add(under_way.pop(packet_id))
                ids.append(packet_id)


def _message(number: int, packet_id: int) -> bytes:
    payload = b"%d %.6f" % (number, time.monotonic())
    return packet(0x32, text(f"work/{number % KEYS}") + struct.pack(">H", packet_id) + b"\0" + payload)


def _free_port() -> int:
    with socket.socket() as kernel:
        kernel.bind(("127.0.0.1", 0))
        port: int = kernel.getsockname()[1]
        return port
