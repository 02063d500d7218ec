"""How much a queue takes in and gives out over MQTT and HTTP, how late it redelivers, and what many queues cost.

`python -m bench queues` starts a broker for each case, with a store on disk, and is all its clients in one process.
Invariant: each message is published once and acknowledged once, and one that is missing is an error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.counting import WINDOW, Client, Countdown, NotMeasured, Publisher, Reader, case_folder, connect
from bench.queue_clients import PAYLOAD_BYTES, TOPIC, Http, Running, Silent, start
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

LIMIT_S: Final = 600.0
"""How long a case may take."""

PULLED: Final = 1_000
"""Messages of one pull."""

PULLERS: Final = 4
PUBLISHERS: Final = 4

DEADLINE_S: Final = 10.0
APART: Final = 100
"""Messages whose deadlines end one after the other, within two seconds."""

PUBLISHES: Final = 100
"""Publishes to very many queues."""

BASE: Final = "/v1/projects/p"

C = TypeVar("C", bound=Client)
Say = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured with how much."""

    messages: int = 300_000
    consumers: int = 8
    telemetry: bool = False
    together: int = 10_000
    """Messages whose deadlines end together."""
    beside: int = 20_000
    """Messages a second of other traffic beside some deadlines."""
    queues: int = 1_000
    filtered: int = 10_000
    """Queues on one topic, without filters and with them."""
    backlog: int = 10_000_000
    rate: int = 5_000
    """Messages a second at which the backlog is drained."""


async def measure(source: Path, plan: Plan, cases: tuple[str, ...], say: Say) -> None:
    """Measure these cases. Raises `NotMeasured`."""
    for name in cases:
        try:
            async with asyncio.timeout(LIMIT_S):
                await CASES[name](source, plan, say)
        except TimeoutError:
            raise NotMeasured(f"{name} took more than {LIMIT_S:g} s") from None


# ---------------------------------------------------------------------- throughput


async def deliver(source: Path, plan: Plan, say: Say) -> None:
    """Published, delivered and acknowledged at the same time; and from a backlog."""
    with case_folder() as folder:
        running = await start(source, folder, _queue("q"), telemetry=plan.telemetry)
        try:
            await _deliver(running, plan, say, is_backlog=False)
            await _deliver(running, plan, say, is_backlog=True)
        finally:
            await running.kill()


async def _deliver(running: Running, plan: Plan, say: Say, *, is_backlog: bool) -> None:
    if is_backlog:
        await _publish(running, plan.messages)
    left = Countdown(plan.messages)
    began, cpu = time.perf_counter(), running.cpu_s()
    consumers = [await connect(running.port, _consumer(at, left.count)) for at in range(plan.consumers)]
    if not is_backlog:
        await _publish(running, plan.messages)
    await left.done.wait()
    while await running.depth():
        await asyncio.sleep(0.01)
    took, used = time.perf_counter() - began, running.cpu_s() - cpu
    for consumer in consumers:
        consumer.close()
    what = "from a backlog" if is_backlog else "while they are published"
    say(
        f"{plan.consumers} consumers, {what}: {plan.messages / took:,.0f} a second delivered and acknowledged, "
        f"{used / plan.messages * 1e6:.1f} µs of processor for each"
    )


async def pull(source: Path, plan: Plan, say: Say) -> None:
    """Pulled over HTTP in batches and acknowledged."""
    with case_folder() as folder:
        running = await start(source, folder, "", telemetry=plan.telemetry)
        try:
            await _subscription(running, plan.messages)
            left = plan.messages
            began, cpu = time.perf_counter(), running.cpu_s()

            async def consume() -> None:
                nonlocal left
                client = await Http(running.http_port).open()
                while left > 0:
                    ids = [each["ackId"] for each in await _pull(client, PULLED)]
                    if ids:
                        left -= len(ids)
                        await client.ask("POST", f"{BASE}/subscriptions/bench-s:acknowledge", {"ackIds": ids})
                client.close()

            await asyncio.gather(*(consume() for _ in range(PULLERS)))
            took, used = time.perf_counter() - began, running.cpu_s() - cpu
            say(
                f"{PULLERS} pullers: {plan.messages / took:,.0f} a second pulled in batches of {PULLED} and "
                f"acknowledged, {used / plan.messages * 1e6:.1f} µs of processor for each"
            )
        finally:
            await running.kill()


# ---------------------------------------------------------------------- deadlines


async def deadlines(source: Path, plan: Plan, say: Say) -> None:
    """How long after its deadline a message comes again, as its consumer sees both deliveries."""
    with case_folder() as folder:
        running = await start(source, folder, _queue("q"), window=65_535)
        try:
            say(f"idle: {await _apart(running)}")
            load = await connect(running.port, _Load(plan.beside))
            say(f"beside {plan.beside:,} messages a second: {await _apart(running)}")
            load.stop()
            await running.ask("POST", "/queues/q/pause")
            await _publish(running, plan.together)
            consumer = await connect(running.port, Silent("c", (b"$queue/q",)))
            await running.ask("POST", "/queues/q/resume")
            say(f"{plan.together:,} together: {await _lateness(running, consumer)}")
        finally:
            await running.kill()
    with case_folder() as folder:
        running = await start(source, folder, "")
        try:
            await _subscription(running, APART)
            client = await Http(running.http_port).open()
            first = {each["message"]["messageId"] for each in await _pull(client, APART)}
            told_at = time.monotonic()
            await running.kill()
            running = await start(source, folder, "")
            client = await Http(running.http_port).open()
            late: list[float] = []
            while len(late) < APART:
                again = await _pull(client, APART)
                late += [time.monotonic() - told_at - DEADLINE_S] * sum(
                    each["message"]["messageId"] in first for each in again
                )
                await asyncio.sleep(0.002)
            say(f"pulled, across a restart: {_told(late)}")
        finally:
            await running.kill()


async def _apart(running: Running) -> str:
    consumer = await connect(running.port, Silent("c", (b"$queue/q",)))
    publisher = await connect(running.port, Client(encode(Connect("p", V311, keep_alive=0), V311)))
    for at in range(APART):
        publisher.transport.write(encode(Publish(TOPIC, b"x", qos=1, packet_id=1 + at), V311))
        await asyncio.sleep(2.0 / APART)
    told = await _lateness(running, consumer)
    publisher.close()
    return told


async def _lateness(running: Running, consumer: Silent) -> str:
    await asyncio.sleep(DEADLINE_S + 3.0)
    consumer.close()
    await running.ask("DELETE", "/queues/q/messages")
    first: dict[str, float] = {}
    late: list[float] = []
    for at, message_id, attempt in consumer.deliveries():
        if attempt == 1:
            first[message_id] = at
        elif attempt == 2:
            late.append(at - first[message_id] - DEADLINE_S)
    if len(late) != len(first):
        raise NotMeasured(f"{len(first)} messages were delivered, and {len(late)} of them again")
    return _told(late)


def _told(late: list[float]) -> str:
    late.sort()
    middle, high = late[len(late) // 2], late[len(late) * 99 // 100]
    times = ", ".join(f"{each * 1e3:+.1f}" for each in (late[0], middle, high, late[-1]))
    return f"{len(late):,} deliveries, least, median, p99 and most {times} ms after the deadline"


class _Load(Client):
    """Publishes so many messages a second at QoS 0 to a subscriber that is itself."""

    def __init__(self, rate: int) -> None:
        super().__init__(
            encode(Connect("load", V311, keep_alive=0), V311)
            + encode(Subscribe(1, (SubscriptionRequest(b"other/#", 0),)), V311)
        )
        self._rate: Final = rate
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        sent, began = 0, time.monotonic()
        frame = encode(Publish(b"other/a", bytes(64)), V311)
        while True:
            await asyncio.sleep(0.01)
            due = int((time.monotonic() - began) * self._rate) - sent
            self.transport.write(frame * due)
            sent += due

    def stop(self) -> None:
        self._task.cancel()
        self.close()


# ---------------------------------------------------------------------- many queues


async def many(source: Path, plan: Plan, say: Say) -> None:
    """What a publish costs that many queues take; and how soon an attempt has begun in each of many with filters."""
    with case_folder() as folder:
        running = await start(source, folder, "".join(_queue(f"q{at}") for at in range(plan.queues)))
        try:
            say(f"{plan.queues:,} queues: {await _publishes(running)}")
        finally:
            await running.kill()
    expressions = "".join(
        _queue(f"q{at}", f"filter = 'attributes.region = \"us\" AND payload.n != {at}'\n")
        for at in range(plan.filtered)
    )
    with case_folder() as folder:
        running = await start(source, folder, expressions, window=65_535)
        try:
            consumers = [
                await connect(
                    running.port, Silent(f"c{at}", tuple(b"$queue/q%d" % n for n in range(at, plan.filtered, 10)))
                )
                for at in range(10)
            ]
            await asyncio.sleep(2.0)
            took = []
            for number in range(5):
                for consumer in consumers:
                    consumer.seen.clear()
                publisher = await connect(running.port, Client(encode(Connect("p", V5, keep_alive=0), V5)))
                began = time.monotonic()
                publisher.transport.write(_filtered(number))
                while sum(len(chunk) for each in consumers for _, chunk in each.seen) < 100 * plan.filtered:
                    await asyncio.sleep(0.01)
                    if time.monotonic() > began + 30:
                        raise NotMeasured("messages are missing")
                await asyncio.sleep(0.5)
                seen = [each for consumer in consumers for each in consumer.deliveries()]
                if len(seen) != plan.filtered:
                    raise NotMeasured(f"{len(seen)} deliveries")
                took.append(max(at for at, _, _ in seen) - began)
                publisher.close()
            took.sort()
            say(f"{plan.filtered:,} queues with filters: all deliveries were there after {took[2]:.2f} s (median of 5)")
            for consumer in consumers:
                consumer.close()
            say(f"{plan.filtered:,} queues with filters, nobody there: {await _publishes(running)}")
        finally:
            await running.kill()


def _filtered(number: int) -> bytes:
    where = Properties(user_properties=[("region", "us")])
    return encode(Publish(TOPIC, b'{"n": -%d}' % (number + 1), qos=1, packet_id=1, properties=where), V5)


async def _publishes(running: Running) -> str:
    publisher = await connect(running.port, _Waiting())
    await publisher.publish(10)
    cpu, began = running.loop_cpu_s(), time.perf_counter()
    await publisher.publish(PUBLISHES)
    took, used = time.perf_counter() - began, running.loop_cpu_s() - cpu
    publisher.close()
    return f"a publish takes {used / PUBLISHES * 1e3:.2f} ms of the loop, and PUBACK {took / PUBLISHES * 1e3:.1f} ms"


class _Waiting(Client):
    """Publishes a message when the one before is acknowledged."""

    def __init__(self) -> None:
        super().__init__(encode(Connect("w", V5, keep_alive=0), V5))
        self._event: Final = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._event.set()

    async def publish(self, count: int) -> None:
        for number in range(count):
            self._event.clear()
            self.transport.write(_filtered(number))
            await self._event.wait()


# ---------------------------------------------------------------------- a backlog


async def backlog(source: Path, plan: Plan, say: Say) -> None:
    """Seeks in a very long queue, which is then drained at a set rate."""
    with case_folder() as folder:
        running = await start(source, folder, _queue("q", f"retain_acked = true\nmax_rate = {plan.rate}\n"))
        try:
            begun = datetime.now(UTC)
            await _publish(running, plan.backlog)
            took = datetime.now(UTC) - begun
            say(f"{plan.backlog:,} messages wait, the broker has {running.memory_bytes() / 1e6:,.0f} MB")
            for part in (0.5, 0.9, 0.1, 0.0):
                to = begun + took * part - timedelta(seconds=part == 0.0)
                at = time.perf_counter()
                await running.ask("POST", "/queues/q/seek", {"time": to.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
                seconds = time.perf_counter() - at
                say(f"seek to {part:.0%} of the time: {seconds * 1e3:.0f} ms, {await running.depth():,} messages wait")
            count = 0

            def on_count(more: int) -> None:
                nonlocal count
                count += more

            consumers = [await connect(running.port, _consumer(at, on_count)) for at in range(4)]
            await asyncio.sleep(2.0)
            low = high = running.memory_bytes()
            before, began = count, time.perf_counter()
            for _ in range(40):
                await asyncio.sleep(0.5)
                low, high = min(low, running.memory_bytes()), max(high, running.memory_bytes())
            rate = (count - before) / (time.perf_counter() - began)
            for consumer in consumers:
                consumer.close()
            say(
                f"drained at {rate:,.0f} messages a second ({rate / plan.rate - 1:+.1%}) with {low / 1e6:,.0f} to "
                f"{high / 1e6:,.0f} MB"
            )
        finally:
            await running.kill()


# ---------------------------------------------------------------------- what they have in common


def _queue(name: str, more: str = "") -> str:
    return (
        f'[[queues]]\nname = "{name}"\nfilters = ["bench/#"]\nmax_messages = 100_000_000\n'
        'retry.on_deadline = "at_once"\n'
        f"max_bytes = 1_000_000_000_000\n{more}"
    )


def _consumer(at: int, on_count: Callable[[int], None]) -> Reader:
    return Reader(f"c{at}", b"$queue/q", 1, TOPIC, PAYLOAD_BYTES, on_count)


async def _publish(running: Running, count: int) -> None:
    parts = [count // PUBLISHERS] * (PUBLISHERS - 1)
    parts.append(count - sum(parts))
    publishers = [
        await connect(running.port, Publisher(f"p{at}", [TOPIC], part, PAYLOAD_BYTES, WINDOW))
        for at, part in enumerate(parts)
    ]
    await asyncio.gather(*(publisher.done for publisher in publishers))
    for publisher in publishers:
        publisher.close()


async def _subscription(running: Running, messages: int) -> None:
    """A topic of Google's with a subscription and so many messages."""
    client = await Http(running.http_port).open()
    await client.ask("PUT", f"{BASE}/topics/bench", {})
    asked = {"topic": "projects/p/topics/bench", "ackDeadlineSeconds": int(DEADLINE_S)}
    await client.ask("PUT", f"{BASE}/subscriptions/bench-s", asked)
    for first in range(0, messages, 1_000):
        batch = [{"data": "eHh4" * 16}] * min(1_000, messages - first)
        await client.ask("POST", f"{BASE}/topics/bench:publish", {"messages": batch})
    client.close()


async def _pull(client: Http, most: int) -> list[dict[str, dict[str, str]]]:
    asked = {"maxMessages": most, "returnImmediately": True}
    found = await client.ask("POST", f"{BASE}/subscriptions/bench-s:pull", asked)
    received: list[dict[str, dict[str, str]]] = found.get("receivedMessages", [])
    return received


CASES: Final[dict[str, Callable[[Path, Plan, Say], Awaitable[None]]]] = {
    "deliver": deliver,
    "pull": pull,
    "deadlines": deadlines,
    "many": many,
    "backlog": backlog,
}
