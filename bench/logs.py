"""How much streams take in and give out, how soon a reader at the head has a message, and what retention costs.

`python -m bench log` starts a broker for each case, with a store on disk, and is its clients, in one process; only the
readers of old messages are another one. Invariant: each message is acknowledged, and one that is missing is an error.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.counting import Client, Countdown, NotMeasured, Publisher, Reader, case_folder, connect
from bench.log_clients import First, Member, NewReader, Paced, Timed
from bench.native import ROOT
from bench.queue_clients import Running, start

LIMIT_S: Final = 1_800.0
"""How long a case may take."""

PUBLISHERS: Final = 4
TOPICS: Final = 1_000
"""On how many topics, which are the keys, messages are published in turn."""

BURST: Final = 50
"""How many messages a publisher sends to one topic before the next one, in the cases with bursts."""

HEAD_RATE: Final = 500.0
"""Messages a second to the reader at the head: what the broker does with ease, so that waiting is measured."""

PROBES: Final = 20
"""How often a time is searched, and a reader begins."""

C = TypeVar("C", bound=Client)
Say = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured with how much."""

    messages: int = 300_000
    rounds: int = 3
    readers: int = 100
    seconds: float = 10.0
    """How long the head is read without and beside the readers of old messages."""
    long: int = 10_000_000
    """Messages of the stream in which times are searched."""
    groups: int = 100
    written_bytes: int = 10_000_000_000
    keep_bytes: int = 1_000_000_000
    message_bytes: int = 8_192
    write_bytes_per_s: float = 40e6


async def measure(source: Path, plan: Plan, cases: tuple[str, ...], say: Say) -> None:
    """Measure these cases. Raises `NotMeasured`."""
    for name in cases:
        try:
            async with asyncio.timeout(LIMIT_S):
                await CASES[name](source, plan, say)
        except TimeoutError:
            raise NotMeasured(f"{name} took more than {LIMIT_S:g} s") from None


# ---------------------------------------------------------------------- in and out


async def append(source: Path, plan: Plan, say: Say) -> None:
    """200 bytes at QoS 1, to a kept session that is offline, to 16 partitions and to 1,000, in turn."""
    kinds = ("a kept session", "16 partitions", "1,000 partitions")
    for burst in (BURST, 1):
        rates: dict[str, list[float]] = {each: [] for each in kinds}
        for _ in range(plan.rounds):
            with case_folder() as folder:
                running = await start(source, folder, _stream("b", 16) + _stream("c", 1_000))
                try:
                    await _keep_session(running)
                    for kind, first in zip(kinds, "abc", strict=True):
                        rates[kind].append(plan.messages / await _publish(running, first, plan.messages, 200, burst))
                finally:
                    await running.kill()
        plain = statistics.median(rates[kinds[0]])
        how = f"{burst} messages for a topic at a time" if burst > 1 else "each message for another topic"
        for kind, found in rates.items():
            middle = statistics.median(found)
            say(f"{how}, to {kind}: {middle:,.0f} a second acknowledged, {middle / plain:.2f} of a kept session")


async def _keep_session(running: Running) -> None:
    """A session that is offline, and gets what is published to `a/#`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    name, wanted = b"\0\4kept", b"\0\3a/#"
    writer.write(b"\x10\x10\0\4MQTT\4\0\0\0" + name + b"\x82\x08\0\1" + wanted + b"\1")
    await reader.readexactly(4 + 5)
    writer.write(b"\xe0\0")
    await reader.read()
    writer.close()


async def replay(source: Path, plan: Plan, say: Say) -> None:
    """One reader from the beginning on, which keeps up with what it gets."""
    with case_folder() as folder:
        running = await start(source, folder, _stream("b", 16))
        try:
            await _publish(running, "b", plan.messages, 200, BURST)
            rates: dict[str, list[float]] = {}
            for _ in range(plan.rounds):
                for qos in (0, 1):
                    rate = await _read(running, plan.messages, qos)
                    rates.setdefault(f"MQTT 3.1.1, QoS {qos}", []).append(rate)
                rates.setdefault("MQTT 5.0, QoS 0, with places", []).append(await _read(running, plan.messages, -1))
            for how, found in rates.items():
                say(f"replayed to one reader over {how}: {statistics.median(found):,.0f} a second")
        finally:
            await running.kill()


async def _read(running: Running, messages: int, qos: int) -> float:
    """Messages a second to one reader; -1: over 5.0 at QoS 0."""
    left = Countdown(messages)
    began = time.perf_counter()
    wanted = b"$stream/b@earliest"
    if qos < 0:
        reader: Client = await connect(running.port, NewReader("new", wanted, left.count))
    else:
        reader = await connect(running.port, Reader(f"old{qos}", wanted, qos, b"b/000", 200, left.count))
    await left.done.wait()
    took = time.perf_counter() - began
    reader.close()
    return messages / took


async def commits(source: Path, plan: Plan, say: Say) -> None:
    """Many groups that take one message at a time, so that each acknowledgement moves a position by itself."""
    with case_folder() as folder:
        running = await start(source, folder, _stream("b", 1))
        try:
            each = max(1, plan.messages // 10 // plan.groups) * 10
            await _publish(running, "b", each, 200, 1)
            left = Countdown(each * plan.groups)
            began = time.perf_counter()
            members = [
                await connect(running.port, Member(f"m{at}", f"g{at}", "b", left.count)) for at in range(plan.groups)
            ]
            await left.done.wait()
            took = time.perf_counter() - began
            for member in members:
                member.close()
            say(f"{plan.groups} groups, one message at a time: {each * plan.groups / took:,.0f} commits a second")
            await asyncio.sleep(0.2)
            await running.kill()
            running = await start(source, folder, _stream("b", 1))
            found = (await running.ask("GET", "/streams/b/groups"))["items"]
            behind = sum(group["lag"] for group in found)
            if len(found) != min(plan.groups, 1_000) or behind:
                raise NotMeasured(f"{len(found)} groups are there after kill -9, with {behind} messages not finished")
        finally:
            await running.kill()


# ---------------------------------------------------------------------- the head, and times


async def head(source: Path, plan: Plan, say: Say) -> None:
    """How old messages are for a reader at the head, without and beside readers of old ones."""
    partitions = 4
    with case_folder() as folder:
        running = await start(source, folder, _stream("b", partitions), window=100)
        try:
            await _publish(running, "b", plan.messages, 200, BURST)
            timed = await connect(running.port, Timed("head", b"$stream/b"))
            topics = _topics("b")
            paced = await connect(running.port, Paced("p", topics, 200, HEAD_RATE, stamps=True))
            await asyncio.sleep(1.0)
            before = await _percentile(timed, plan.seconds)
            end = plan.messages // partitions // 2
            asked = [str(each) for each in (running.port, "b", partitions, end, plan.readers, "b/000", 200)]
            readers = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.log_readers", *asked),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert readers.stdout is not None
            if not await readers.stdout.readline():
                raise NotMeasured("the readers of old messages do not read")
            await asyncio.sleep(1.0)
            beside = await _percentile(timed, plan.seconds)
            read, _ = await readers.communicate(b"")
            paced.stop()
            timed.close()
            say(
                f"a reader at the head, {HEAD_RATE:,.0f} messages a second: {_ms(before)} without others, "
                f"{_ms(beside)} beside {plan.readers} at random places, which read "
                f"{int(read) / (plan.seconds + 1.0):,.0f} a second"
            )
        finally:
            await running.kill()


async def _percentile(timed: Timed, seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of what comes now."""
    timed.took.clear()
    await asyncio.sleep(seconds)
    if len(timed.took) < seconds * HEAD_RATE * 0.9:
        raise NotMeasured(f"{len(timed.took)} messages came in {seconds:g} s")
    return _middle_and_high(timed.took)


async def places(source: Path, plan: Plan, say: Say) -> None:
    """Offsets of times in a long stream, and how soon readers that begin somewhere have a message."""
    with case_folder() as folder:
        running = await start(source, folder, _stream("b", 4))
        try:
            begun = datetime.now(UTC)
            await _publish(running, "b", plan.long, 64, BURST)
            took = datetime.now(UTC) - begun
            say(f"{plan.long:,} messages in 4 partitions, the broker has {running.memory_bytes() / 1e6:,.0f} MB")
            chance = random.Random(1)

            def some_time() -> str:
                # The end of it is without messages, when the last ones are acknowledged.
                return (begun + took * chance.random() / 2).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

            searched = []
            for _ in range(PROBES):
                at = time.perf_counter()
                await running.ask("GET", f"/streams/b/offsets?at={some_time()}")
                searched.append(time.perf_counter() - at)
            say(f"the offsets of a time: {_told(searched)}")
            for what, position in (("@earliest", "earliest"), ("a time", "")):
                waited = []
                for number in range(PROBES):
                    first = await connect(
                        running.port, First(f"f{number}", f"$stream/b@{position or some_time()}".encode())
                    )
                    waited.append(await first.took)
                    first.close()
                say(f"the first message of {what}, from SUBSCRIBE on: {_told(waited)}")
        finally:
            await running.kill()


# ---------------------------------------------------------------------- retention


async def disk(source: Path, plan: Plan, say: Say) -> None:
    """Much more is written than is kept: how large the files are, and how long a PUBACK takes."""
    rate = plan.write_bytes_per_s / plan.message_bytes
    with case_folder() as folder:
        running = await start(source, folder, _stream("b", 4, keep_bytes=plan.keep_bytes))
        try:
            paced = await connect(running.port, Paced("p", _topics("b"), plan.message_bytes, rate))
            await asyncio.sleep(min(5.0, 0.1 * plan.keep_bytes / plan.write_bytes_per_s))
            paced.took.clear()
            await asyncio.sleep(0.7 * plan.keep_bytes / plan.write_bytes_per_s)
            idle = _middle_and_high(paced.took)
            largest = 0
            while not int((await running.ask("GET", "/streams/b"))["removed"]):
                await asyncio.sleep(0.2)
            paced.took.clear()
            first = _files(folder)
            left = (plan.written_bytes - plan.keep_bytes) / plan.message_bytes
            while len(paced.took) < left:
                await asyncio.sleep(0.2)
                largest = max(largest, _files(folder))
            busy = _middle_and_high(paced.took)
            state = await running.ask("GET", "/streams/b")
            paced.stop()
            say(
                f"{plan.written_bytes / 1e9:,.1f} GB written at {plan.write_bytes_per_s / 1e6:,.0f} MB a second, "
                f"{plan.keep_bytes / 1e6:,.0f} MB kept: files of {first / 1e6:,.1f} MB when the first message went, "
                f"{largest / 1e6:,.1f} MB at most, {state['size_bytes'] / 1e6:,.1f} MB of messages at the end"
            )
            say(f"PUBACK before anything is removed {_ms(idle)}, while it is {_ms(busy)}")
        finally:
            await running.kill()


def _files(folder: Path) -> int:
    """Bytes of all files of the broker."""
    return sum(each.stat().st_size for each in os.scandir(folder / "data") if each.is_file(follow_symlinks=False))


# ---------------------------------------------------------------------- what they have in common


def _stream(name: str, partitions: int, keep_bytes: int = 1_000_000_000_000) -> str:
    return (
        f'[[streams]]\nname = "{name}"\nfilters = ["{name}/#"]\npartitions = {partitions}\nkeep_bytes = {keep_bytes}\n'
    )


def _topics(first: str) -> list[bytes]:
    return [f"{first}/{each:03}".encode() for each in range(TOPICS)]


async def _publish(running: Running, first: str, count: int, size: int, burst: int) -> float:
    """Publish to all topics. Return the seconds until all is acknowledged."""
    topics = _topics(first)
    share = TOPICS // PUBLISHERS
    parts = [count // PUBLISHERS] * (PUBLISHERS - 1)
    parts.append(count - sum(parts))
    began = time.perf_counter()
    publishers = [
        await connect(running.port, Publisher(f"{first}{at}", topics[at * share : (at + 1) * share], part, size, burst))
        for at, part in enumerate(parts)
    ]
    await asyncio.gather(*(each.done for each in publishers))
    took = time.perf_counter() - began
    for each in publishers:
        each.close()
    return took


def _middle_and_high(times: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def _ms(found: tuple[float, float]) -> str:
    return f"median {found[0] * 1e3:.1f} ms, p99 {found[1] * 1e3:.1f} ms"


def _told(times: Sequence[float]) -> str:
    ordered = sorted(times)
    return f"median {ordered[len(ordered) // 2] * 1e3:.1f} ms, {ordered[-1] * 1e3:.1f} ms at most of {len(ordered)}"


CASES: Final[dict[str, Callable[[Path, Plan, Say], Awaitable[None]]]] = {
    "append": append,
    "replay": replay,
    "commits": commits,
    "head": head,
    "places": places,
    "disk": disk,
}
