"""A fleet: many clients that publish, a few that receive everything, and what became of each message.

How it is shown is in `fleet`. Invariants: the clock of a latency is this process's own, at both ends; memory does not
grow with the number of messages; every wait ends.
"""

import asyncio
import gc
import math
import random
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import msgspec

from mqttlite.client import Client, ConnectRefused, MqttError, Properties
from tools.devices.counting import Count, total
from tools.devices.delivery_log import DeliveryLog
from tools.devices.latency import Latencies
from tools.devices.resumption import Tickets, resume_sessions
from tools.devices.target import Target
from tools.devices.troubles import Speaker, Surroundings, Troubled

ATTEMPTS: Final = 3
"""So often a device tries to connect before it counts as not connected."""

MAX_DIALLING: Final = 64
"""Connections that are being made at once: handshakes are CPU, and more at once only make each slower."""

KEEP_ALIVE_S: Final = 60

SESSION_EXPIRY_S: Final = 300
"""The broker keeps a subscriber's messages so long while its connection is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the fleet does. Each device publishes `messages` messages, or for `duration_s` where that is None.

    `troubles` are how many devices there are besides with each of `troubles.LIVES`.
    """

    devices: int
    subscribers: int = 1
    interval_s: float = 5.0
    jitter: float = 0.5
    duration_s: float = 30.0
    messages: int | None = None
    qos: int = 1
    size_bytes: int = 128
    connect_rate: float = 200.0
    drain_s: float = 10.0
    resume: bool = True
    troubles: Mapping[str, int] = field(default_factory=dict)

    @property
    def publishing_s(self) -> float:
        """The longest that publishing can take where the broker keeps up."""
        if self.messages is None:
            return self.duration_s
        return self.messages * self.interval_s * (1 + self.jitter)


class Sample(msgspec.Struct):
    """What a device publishes; `at_s` is our own clock when it did."""

    device: int
    number: int
    at_s: float


_samples: Final = msgspec.json.Decoder(Sample)

SMALLEST_BYTES: Final = 80
"""Room for the largest `Sample` and its padding."""


def payload(device: int, number: int, at_s: float, size_bytes: int) -> bytes:
    """A `Sample` as JSON of exactly that size."""
    sample = f'{{"device":{device},"number":{number},"at_s":{at_s:.6f},"fill":"'
    return f'{sample}{"." * (size_bytes - len(sample) - 2)}"}}'.encode()


def delays(interval_s: float, jitter: float, dice: random.Random) -> Iterator[float]:
    """When a device publishes: first anywhere within an interval, so that the fleet is spread, then jittered."""
    yield dice.random() * interval_s
    while True:
        yield interval_s * (1 + jitter * dice.uniform(-1, 1))


class Fleet:
    """One run. Its counters may be read at any time."""

    def __init__(self, where: Target, plan: Plan) -> None:
        self.where: Final = where
        self.plan: Final = plan
        self.phase = "connecting"
        self.connected = 0
        self.acked = 0
        self.reconnects = 0
        self.not_connected = 0
        self.ended = 0
        """Devices that the broker sent away, or that failed otherwise."""
        self.first_error: MqttError | None = None
        self.connect_s = 0.0
        self.publish_s = 0.0
        self.connecting: Final = Latencies()
        self.acknowledging: Final = Latencies()
        self.arriving: Final = Latencies()
        members = plan.devices + sum(plan.troubles.values())
        self.delivery_logs: Final = [DeliveryLog(members) for _ in range(plan.subscribers)]
        self.sent: Final = [0] * members
        self.tickets: Final[Tickets | None] = resume_sessions(where.tls) if where.tls and plan.resume else None
        self._run: Final = secrets.token_hex(4)
        self._top: Final = f"fleet/{self._run}"
        self._stop: Final = asyncio.Event()
        self._count: Final = Count()
        self.troubled: Final = self._troubled()
        self._moved: Final = asyncio.Event()
        self._unacknowledged: Final[set[tuple[int, int]]] = set()

    @property
    def total_sent(self) -> int:
        return sum(self.sent)

    @property
    def received(self) -> int:
        return sum(delivery_log.received for delivery_log in self.delivery_logs)

    @property
    def duplicates(self) -> int:
        return sum(delivery_log.duplicates for delivery_log in self.delivery_logs)

    @property
    def unacknowledged(self) -> int:
        return len(self._unacknowledged)

    @property
    def lost(self) -> int:
        """Deliveries that never came of messages that the broker acknowledged, at QoS 0 of all that were sent."""
        return sum(delivery_log.lost(self.sent, self._unacknowledged) for delivery_log in self.delivery_logs)

    @property
    def count(self) -> Count:
        """What all clients have seen of their own traffic."""
        return total([self._count, *[device.count for device in self.troubled]])

    @property
    def complete(self) -> bool:
        """Whether everything went as it should; at QoS 2 nothing may come twice either."""
        troubles = self.lost or self._unacknowledged or self.not_connected or self.ended
        return not troubles and (self.plan.qos < 2 or not self.duplicates)

    def end(self) -> None:
        """Publish no more; what is under way still arrives."""
        self._stop.set()

    async def run(self) -> None:
        """Connect, publish, drain, disconnect. Raises `MqttError` when a subscriber cannot connect or is sent away."""
        subscribers: list[Client] = []
        devices: list[tuple[int, Client]] = []
        tasks: list[asyncio.Task[None]] = []
        troubled: list[asyncio.Task[None]] = []
        try:
            for number, delivery_log in enumerate(self.delivery_logs):
                subscribers.append(await self._open_subscriber(number))
                tasks.append(asyncio.create_task(self._receive(subscribers[-1], delivery_log)))
            began = perf_counter()
            await self._unless_broken(asyncio.create_task(self._connect_all(devices)), tasks)
            self.connect_s = perf_counter() - began
            gc.collect()
            gc.freeze()  # thousands of clients that stay: walking them again and again would only be heard in latencies
            self.phase = "publishing"
            began = perf_counter()
            publishing = [asyncio.create_task(self._publish(number, client)) for number, client in devices]
            troubled += [asyncio.create_task(self._be_troubled(device)) for device in self.troubled]
            await self._unless_broken(asyncio.create_task(self._finish(publishing, troubled)), tasks)
            self.publish_s = perf_counter() - began
        finally:
            gc.unfreeze()
            self.phase = "disconnecting"
            for task in (*tasks, *troubled):
                task.cancel()
            await asyncio.gather(*tasks, *troubled, return_exceptions=True)
            forget = Properties(session_expiry_interval=0)
            await asyncio.gather(*[client.disconnect(properties=forget) for client in subscribers])
            await asyncio.gather(*[client.disconnect() for _number, client in devices])

    async def _unless_broken(self, work: asyncio.Task[None], receiving: list[asyncio.Task[None]]) -> None:
        """Wait for work; give it up when a subscriber ends, which it does only with an error."""
        try:
            await asyncio.wait([work, *receiving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        for task in receiving:
            if task.done():
                task.result()
        if not work.cancelled():
            work.result()

    # connecting

    def _client(self, client_id: str, session_expiry_s: int | None = None) -> Client:
        return Client(
            self.where.host,
            self.where.port,
            client_id=f"fleet-{self._run}-{client_id}",
            session_expiry_interval=session_expiry_s,
            keep_alive=KEEP_ALIVE_S,
            tls=self.where.tls,
            on_reconnected=self._on_reconnected,
            trace=self._count.trace,
        )

    def _on_reconnected(self, session_present: bool) -> None:
        self.reconnects += 1
        self._count.sessions += 1

    async def _open_subscriber(self, number: int) -> Client:
        client = self._client(f"subscriber-{number}", SESSION_EXPIRY_S)
        await client.__aenter__()
        self._count.sessions += 1
        await client.subscribe(f"{self._top}/#", self.plan.qos)
        return client

    async def _connect_all(self, devices: list[tuple[int, Client]]) -> None:
        """Begin connections at the rate of the plan, as far as they come about."""
        loop = asyncio.get_running_loop()
        dialling: set[asyncio.Task[None]] = set()
        began = loop.time()
        try:
            for number in range(self.plan.devices):
                await asyncio.sleep(began + number / self.plan.connect_rate - loop.time())
                if self._stop.is_set():
                    break
                if len(dialling) >= MAX_DIALLING:
                    _done, dialling = await asyncio.wait(dialling, return_when=asyncio.FIRST_COMPLETED)
                dialling.add(asyncio.create_task(self._connect(number, devices)))
            if dialling:
                await asyncio.wait(dialling)
        finally:
            for task in dialling:
                task.cancel()

    async def _connect(self, number: int, devices: list[tuple[int, Client]]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            client = self._client(f"device-{number}")
            began = perf_counter()
            try:
                await client.__aenter__()
            except MqttError as error:
                self.first_error = self.first_error or error
                if attempt == ATTEMPTS or (isinstance(error, ConnectRefused) and error.permanent):
                    self.not_connected += 1
                    return
                await asyncio.sleep(attempt)
            else:
                self.connecting.add(perf_counter() - began)
                self.connected += 1
                self._count.sessions += 1
                devices.append((number, client))
                return

    # publishing and receiving

    async def _finish(self, publishing: list[asyncio.Task[None]], troubled: list[asyncio.Task[None]]) -> None:
        """Let devices publish until their time is up, then wait for those in trouble and for what is under way."""
        plan = self.plan
        limit_s = plan.publishing_s if plan.messages is None else plan.publishing_s + plan.drain_s
        stop = asyncio.create_task(self._stop.wait())
        everyone = asyncio.gather(*publishing)
        either: list[asyncio.Future[Any]] = [everyone, stop]
        try:
            await asyncio.wait(either, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if everyone.done():
                everyone.result()
            self._stop.set()
            self.phase = "draining"
            await asyncio.gather(*troubled)
            deadline = asyncio.get_running_loop().time() + plan.drain_s
            while self._unacknowledged or self.lost:
                self._moved.clear()
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._moved.wait()
                except TimeoutError:
                    break
        finally:
            stop.cancel()
            everyone.cancel()
            await asyncio.gather(everyone, stop, return_exceptions=True)

    async def _publish(self, number: int, client: Client) -> None:
        """A device's life."""
        plan = self.plan
        loop = asyncio.get_running_loop()
        topic = f"{self._top}/{number}/reading"
        due = loop.time()
        try:
            for delay_s in delays(plan.interval_s, plan.jitter, random.Random()):
                due = max(due + delay_s, loop.time())
                await asyncio.sleep(due - loop.time())
                if self._stop.is_set():
                    return
                await self._publish_one(number, client, topic)
                if self.sent[number] == plan.messages:
                    return
        except MqttError as error:
            self.first_error = self.first_error or error
            self.ended += 1

    async def _publish_one(self, number: int, client: Speaker, topic: str) -> None:
        message = (number, self.sent[number])
        self._unacknowledged.add(message)
        self.sent[number] += 1
        at_s = perf_counter()
        await client.publish(topic, payload(*message, at_s, self.plan.size_bytes), self.plan.qos, timeout=math.inf)
        self._unacknowledged.discard(message)
        self._moved.set()
        if self.plan.qos:
            self.acked += 1
            self.acknowledging.add(perf_counter() - at_s)

    def _troubled(self) -> list[Troubled]:
        """Those that will be in trouble, numbered after the others."""
        around = Surroundings(
            where=self.where,
            top=self._top,
            interval_s=self.plan.interval_s,
            publishing_s=self.plan.publishing_s,
            keep_alive_s=KEEP_ALIVE_S,
            stop=self._stop,
            publish=self._publish_one,
        )
        kinds = [(kind, number) for kind, count in self.plan.troubles.items() for number in range(count)]
        return [
            Troubled(kind, f"fleet-{self._run}-{kind}-{number}", place, around)
            for place, (kind, number) in enumerate(kinds, self.plan.devices)
        ]

    async def _be_troubled(self, device: Troubled) -> None:
        """The life of such a device; one that the broker thwarts ends as any other does."""
        try:
            await device.live()
        except MqttError as error:
            self.first_error = self.first_error or error
            self.ended += 1

    async def _receive(self, client: Client, delivery_log: DeliveryLog) -> None:
        async for message in client.messages:
            sample = _samples.decode(message.payload)
            self.arriving.add(perf_counter() - sample.at_s)
            delivery_log.on_message(sample.device, sample.number)
            self._moved.set()
