"""Kills a broker with a queue again and again, while consumers refuse messages, forget them and seek, and checks each.

`tools/torture --queue MESSAGES` runs it. Publishers send messages of many ordering keys; consumers acknowledge most,
refuse some, and keep some beyond the deadline. The queue is killed (SIGKILL), sought to times, backward and forward,
and to snapshots. In the end each acknowledged message was acknowledged by a consumer, is a dead letter, or was passed
over by a seek; within a key none overtook another; no attempt was above the limit; nothing is left.
"""

import asyncio
import contextlib
import random
import struct
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.torture_broker import TorturedBroker
from tools.torture_packets import packet, read_packet, text

WINDOW = 200
"""Messages that a publisher has under way, and that a consumer takes."""

PING_S = 0.05
"""How often consumers look how far behind they are."""

DEADLINE_S = 1.0
MAX_ATTEMPTS = 6
SLACK_S = 0.5
"""What was sent before a seek was answered may be read so much later, from another socket."""

CONFIG = f"""
[[queues]]
name = "jobs"
filters = ["work/#"]
ordering = true
retain_acked = true
ack_deadline_s = {DEADLINE_S}
allow_short_deadlines = true
max_attempts = {MAX_ATTEMPTS}
max_messages = 100_000_000
max_bytes = 1_000_000_000_000
retry = {{ min_s = 0.05, max_s = 0.2, on_deadline = "at_once" }}
[limits]
max_inflight = 1_000
max_queued_messages = 10_000_000
max_queued_bytes = 10_000_000_000
[[listeners]]
port = 0
[listeners.capabilities]
tell_delivery = true
"""

BROKEN = (OSError, asyncio.IncompleteReadError, AssertionError)


class Link:
    """A connection of MQTT 5.0. A session of `expiry_s` 0 ends with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.era = -1
        """What it delivers now was sent in this era, as far as is known."""
        self.broker = 0
        """Which broker it is connected to, by the number of kills before."""
        self.pings: deque[float] = deque()
        """When those were sent that are not answered."""
        self.sent_after = 0.0
        """When the latest ping was sent that is answered: what comes behind its answer was sent later."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, port: int, client_id: str, expiry_s: int = 0, window: int = WINDOW, keep_alive_s: int = 0
    ) -> "AsyncIterator[Link]":
        link = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
        try:
            properties = b"\x11" + struct.pack(">I", expiry_s) + b"\x21" + struct.pack(">H", window)
            start = b"\0" if expiry_s else b"\2"
            head = text("MQTT") + b"\5" + start + struct.pack(">H", keep_alive_s)
            body = head + bytes([len(properties)]) + properties + text(client_id)
            link.writer.write(packet(0x10, body))
            first, body = await link.read()
            assert (first, body[1]) == (0x20, 0), f"CONNECT of {client_id} was refused: {body!r}"
            yield link
        finally:
            link.writer.close()
            with contextlib.suppress(OSError):
                await link.writer.wait_closed()

    async def read(self) -> tuple[int, bytes]:
        """The first byte and the body of the next packet."""
        return await read_packet(self._reader)

    def ping(self) -> None:
        """PINGRESP comes behind what is on its way."""
        self.pings.append(time.monotonic())
        self.writer.write(b"\xc0\0")

    async def subscribe(self, topic_filter: str) -> None:
        self.writer.write(packet(0x82, b"\0\1\0" + text(topic_filter) + b"\1"))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        digit = data[at]
        at += 1
        value |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return value, at


def delivered(body: bytes) -> tuple[bytes, bytes, dict[str, str]]:
    """The packet identifier, payload and user properties of a PUBLISH of a queue or its dead letters."""
    at = 2 + int.from_bytes(body[:2], "big")
    packet_id = body[at : at + 2]
    size, at = _varint(body, at + 2)
    return packet_id, body[at + size :], _user_properties(body, at, at + size)


def _user_properties(body: bytes, at: int, end: int) -> dict[str, str]:
    pairs: dict[str, str] = {}
    while at < end:
        kind = body[at]
        at += 1
        if kind != 0x26:
            at += {0x01: 1, 0x02: 4}[kind] if kind in (0x01, 0x02) else _varint(body, at)[1] - at
            continue
        key_end = at + 2 + int.from_bytes(body[at : at + 2], "big")
        value_end = key_end + 2 + int.from_bytes(body[key_end : key_end + 2], "big")
        pairs[body[at + 2 : key_end].decode()] = body[key_end + 2 : value_end].decode()
        at = value_end
    return pairs


@dataclass
class Result:
    """What was seen. All of the first part are to be 0."""

    lost: int = 0
    stuck: int = 0
    two_ends: int = 0
    """Messages that were delivered after they had become dead letters."""
    inversions: int = 0
    too_many_attempts: int = 0
    repeated: int = 0
    """Attempts whose number was not higher than that of one before."""
    early: int = 0
    """Attempts before the deadline of the one before was over."""
    older_than_seek: int = 0

    published: int = 0
    deliveries: int = 0
    acknowledged: int = 0
    dead_letters: int = 0
    passed_over: int = 0
    kills: int = 0
    seeks: int = 0
    snapshots: int = 0
    slowest_start_s: float = 0.0
    slowest_seek_s: float = 0.0
    lateness_s: list[float] = field(default_factory=list)
    """How long after their deadline forgotten messages came again, while the broker ran."""

    @property
    def is_good(self) -> bool:
        bad = (
            self.lost
            + self.stuck
            + self.two_ends
            + self.inversions
            + self.too_many_attempts
            + self.repeated
            + self.early
        )
        return not bad and not self.older_than_seek and self.published > 0

    def __str__(self) -> str:
        late = sorted(self.lateness_s) or [0.0]
        return (
            f"{self.published} messages, {self.deliveries} deliveries, {self.kills} kills, {self.seeks} seeks to "
            f"times, {self.snapshots} to snapshots: {self.lost} lost, {self.stuck} stuck, {self.two_ends} with two "
            f"ends, {self.inversions} inversions, {self.too_many_attempts} with too many attempts, {self.repeated} "
            f"repeated, {self.early} early, {self.older_than_seek} older than a seek; {self.acknowledged} "
            f"acknowledged, {self.dead_letters} dead letters, {self.passed_over} passed over; slowest start "
            f"{self.slowest_start_s:.1f} s, slowest seek {self.slowest_seek_s:.2f} s; redelivery after a deadline: "
            f"median {late[len(late) // 2] * 1e3:+.0f} ms, p99 {late[len(late) * 99 // 100] * 1e3:+.0f} ms of "
            f"{len(self.lateness_s)}"
        )


@dataclass(slots=True)
class Latest:
    """The highest message-id that was delivered of a key in an era."""

    era: int
    message_id: int
    link: Link
    read_at: float


@dataclass(slots=True)
class Seen:
    """What is known of a message, by its message-id."""

    number: int
    key: int
    acknowledged: bool = False
    dead: float = 0.0
    attempt: int = 0
    """The latest that was read in its era, from which link, and when."""
    era: int = -1
    link: Link | None = None
    read_at: float = 0.0
    forgotten_at: float = 0.0
    sent_after: float = 0.0
    """When it was sent at the earliest, of a forgotten one."""


class QueueTorture:
    """`serve` is the command of the broker, without its port and data directory."""

    def __init__(self, serve: list[str], directory: Path, seed: int, messages: int, keys: int) -> None:
        self._tortured = TorturedBroker(serve, directory, CONFIG)
        self._random = random.Random(seed)
        self._messages = messages
        self._keys = keys
        self._over = False
        self._calm = False
        """Whether consumers acknowledge everything at once."""
        self.result = Result()
        self._confirmed: dict[int, int] = {}
        """By number, the message-id in the PUBACK of a message."""
        self._seen: dict[int, Seen] = {}
        self._latest_of_key: dict[int, Latest] = {}
        self._broker = 0
        self._era = 0
        """Counts kills and seeks: each may bring messages back."""
        self._sought_to = 0
        self._has_sought = False
        self._links: list[Link] = []
        self._is_seeking = False
        self._passed: int = 0
        """Messages below this message-id may have been passed over by a seek."""
        self._next = 0
        self._latest = 0
        """The highest message-id that was delivered."""

    async def run(self, kills: int) -> Result:
        """Kill the broker so often while all is published, let everything arrive, and compare."""
        await self._tortured.start()
        tasks = [asyncio.create_task(self._publisher(f"p{at}")) for at in range(2)]
        publishers = len(tasks)
        tasks += [asyncio.create_task(self._consumer(f"c{at}")) for at in range(4)]
        tasks.append(asyncio.create_task(self._dead_letters()))
        seeker = asyncio.create_task(self._seeker())
        try:
            for at in range(kills):
                while len(self._confirmed) < self._messages * (at + 1) / (kills + 1):
                    self._raise(tasks)
                    await asyncio.sleep(0.05)
                await asyncio.sleep(self._random.random())
                self._era += 1
                self._broker += 1
                self._sought_to = 0
                await self._tortured.kill()
                self.result.kills += 1
                await self._tortured.start()
            while not all(each.done() for each in tasks[:publishers]):
                self._raise(tasks)
                await asyncio.sleep(0.05)
            self._has_sought = True
            await seeker
            self._calm = True
            await self._drain(tasks)
        finally:
            self._over = True
            await self._tortured.kill()
            for task in [*tasks, seeker]:
                task.cancel()
            await asyncio.gather(*tasks, seeker, return_exceptions=True)
        self._compare()
        return self.result

    @staticmethod
    def _raise(tasks: list["asyncio.Task[None]"]) -> None:
        for task in tasks:
            if task.done() and task.exception() is not None:
                task.result()

    async def _drain(self, tasks: list["asyncio.Task[None]"]) -> None:
        """Wait until nothing is in the queue, or nothing happens for half a minute."""
        changed, before = time.monotonic(), -1
        while time.monotonic() - changed < 30:
            self._raise(tasks)
            await asyncio.sleep(0.3)
            state = await self._tortured.ask("GET", "/queues/jobs")
            self.result.stuck = int(str(state["depth"]))
            if not self.result.stuck:
                await asyncio.sleep(1.0)  # dead letters come after
                return
            if self.result.deliveries != before:
                before, changed = self.result.deliveries, time.monotonic()

    # ------------------------------------------------------------------ clients

    async def _publisher(self, name: str) -> None:
        under_way: dict[int, int] = {}
        ids: deque[int] = deque(range(1, 2 * WINDOW))
        while self._next < self._messages or under_way:
            with contextlib.suppress(*BROKEN):
                async with Link.open(self._tortured.port, name) as link:
                    for packet_id, number in under_way.items():  # a new session: as new messages
                        link.writer.write(self._publish(number, packet_id))
                    while self._next < self._messages or under_way:
                        while len(under_way) < WINDOW and self._next < self._messages:
                            packet_id = ids.popleft()
                            under_way[packet_id] = self._next
                            link.writer.write(self._publish(self._next, packet_id))
                            self._next += 1
                        first, body = await link.read()
                        if first == 0x40:
                            (packet_id,) = struct.unpack(">H", body[:2])
                            size, at = _varint(body, 3)
                            told = _user_properties(body, at, at + size)
                            self._confirmed[under_way.pop(packet_id)] = int(told["message-id"])
                            ids.append(packet_id)
            await asyncio.sleep(0.05)

    def _publish(self, number: int, packet_id: int) -> bytes:
        pair = b"\x26" + text("ordering-key") + text(f"k{number % self._keys}")
        body = text(f"work/{number % 7}") + struct.pack(">H", packet_id) + bytes([len(pair)]) + pair + b"%d" % number
        return packet(0x32, body)

    async def _consumer(self, name: str) -> None:
        rng = random.Random(self._random.random())
        while not self._over:
            with contextlib.suppress(*BROKEN):
                broker = self._broker
                async with Link.open(self._tortured.port, name) as link:
                    await link.subscribe("$queue/jobs")
                    link.broker = broker
                    link.era = -1 if self._is_seeking or broker != self._broker else self._era
                    self._links.append(link)
                    try:
                        await self._consume(link, rng)
                    finally:
                        self._links.remove(link)
            await asyncio.sleep(0.05)

    async def _consume(self, link: Link, rng: random.Random) -> None:
        forgotten: list[Seen] = []
        try:
            await self._take(link, rng, forgotten)
        finally:
            for seen in forgotten:  # the end of a connection gives its messages back at once
                seen.forgotten_at = 0.0

    async def _take(self, link: Link, rng: random.Random, forgotten: list[Seen]) -> None:
        loop = asyncio.get_running_loop()
        while not self._over:
            if not link.pings or time.monotonic() - link.pings[-1] > PING_S:
                link.ping()
            first, body = await link.read()
            if first == 0xD0:
                link.sent_after = link.pings.popleft()
                if not link.pings and not self._is_seeking and link.broker == self._broker:
                    link.era = self._era
            if first >> 4 != 3:
                continue
            packet_id, payload, told = delivered(body)
            seen = self._note(link, int(told["message-id"]), int(payload), int(told["delivery-attempt"]))
            what = 1.0 if self._calm else rng.random()
            if seen.number % 997 == 0 and not self._calm:
                what = 0.0  # refused each time: it becomes a dead letter
            if what < 0.05:
                link.writer.write(packet(0x40, packet_id + b"\x80\0"))
            elif what < 0.07:
                seen.forgotten_at = time.monotonic()
                seen.sent_after = link.sent_after
                forgotten.append(seen)
                loop.call_later(DEADLINE_S * 1.5, self._late, link, packet_id)
            elif what < 0.0705:
                return  # disconnects
            else:
                seen.acknowledged = True
                link.writer.write(packet(0x40, packet_id))

    @staticmethod
    def _late(link: Link, packet_id: bytes) -> None:
        """Give the place in the window back, refusing what is refused already."""
        if not link.writer.is_closing():
            link.writer.write(packet(0x40, packet_id + b"\x80\0"))

    def _note(self, link: Link, message_id: int, number: int, attempt: int) -> Seen:
        result, now = self.result, time.monotonic()
        result.deliveries += 1
        self._latest = max(self._latest, message_id)
        seen = self._seen.get(message_id)
        if seen is None:
            seen = self._seen[message_id] = Seen(number, number % self._keys)
        result.two_ends += 0 < seen.dead < now - SLACK_S
        result.too_many_attempts += attempt > MAX_ATTEMPTS
        if link.era != self._era:
            return seen  # it may have been sent before a kill or a seek
        if seen.era == self._era:
            if attempt < seen.attempt and seen.link is not link and link.sent_after <= seen.read_at:
                return seen  # it may have been sent before, as where a commit took longer than the deadline
            result.repeated += attempt <= seen.attempt
            if seen.forgotten_at and attempt == seen.attempt + 1:
                late = now - seen.forgotten_at - DEADLINE_S
                result.lateness_s.append(late)
                result.early += now < seen.sent_after + DEADLINE_S
        seen.forgotten_at = 0.0
        result.older_than_seek += message_id < self._sought_to
        before = self._latest_of_key.get(seen.key)
        if before is not None and before.era == self._era and message_id < before.message_id:
            # What is read later from another connection may have been sent earlier.
            result.inversions += before.link is link or link.sent_after > before.read_at
        else:
            self._latest_of_key[seen.key] = Latest(self._era, message_id, link, now)
        seen.attempt, seen.era, seen.link, seen.read_at = attempt, self._era, link, now
        return seen

    async def _dead_letters(self) -> None:
        """A session that stays, so that it gets each."""
        while not self._over:
            with contextlib.suppress(*BROKEN):
                async with Link.open(self._tortured.port, "dead-letters", expiry_s=86_400) as link:
                    await link.subscribe("$dlq/jobs")
                    while not self._over:
                        first, body = await link.read()
                        if first >> 4 == 3:
                            packet_id, payload, told = delivered(body)
                            self._note_dead(int(told["message-id"]), int(payload))
                            link.writer.write(packet(0x40, packet_id))
            await asyncio.sleep(0.05)

    def _note_dead(self, message_id: int, number: int) -> None:
        seen = self._seen.get(message_id)
        if seen is None:
            seen = self._seen[message_id] = Seen(number, number % self._keys)
        seen.dead = seen.dead or time.monotonic()

    # ------------------------------------------------------------------ seeks

    async def _seeker(self) -> None:
        snapshot = ""
        count = 0
        while not self._has_sought:
            count += 1
            await asyncio.sleep(self._random.uniform(0.3, 2.0))
            with contextlib.suppress(*BROKEN, ValueError, KeyError):
                what = self._random.random()
                if what < 0.3:
                    snapshot = f"s{count}"
                    await self._tortured.ask("POST", f"/queues/jobs/snapshots/{snapshot}")
                    if count > 3:
                        await self._tortured.ask("DELETE", f"/snapshots/s{count - 3}")
                elif what < 0.5 and snapshot:
                    await self._seek({"snapshot": snapshot}, 0)
                elif self._seen:
                    # mostly back by a second or two of what was seen; sometimes on
                    latest = self._latest
                    wanted = latest - int(self._random.uniform(-0.2, 1.5) * 1e6)
                    seconds, micros = divmod(wanted, 1_000_000)
                    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"
                    await self._seek({"time": text}, wanted)

    async def _seek(self, to: dict[str, str], message_id: int) -> None:
        self._is_seeking = True
        self._sought_to = 0
        self._era += 1
        self._passed = max(self._passed, message_id)
        begun, sent_at = time.monotonic(), time.time()
        try:
            await self._tortured.ask("POST", "/queues/jobs/seek", to)
        finally:
            self._era += 1
            self._is_seeking = False
            for link in self._links:
                if not link.writer.is_closing():
                    link.ping()
        self.result.slowest_seek_s = max(self.result.slowest_seek_s, time.monotonic() - begun)
        if message_id:
            self.result.seeks += 1
            self._sought_to = min(message_id, int(sent_at * 1e6))  # what comes later may be older than a time to come
        else:
            self.result.snapshots += 1

    # ------------------------------------------------------------------ the end

    def _compare(self) -> None:
        result = self.result
        result.slowest_start_s = self._tortured.slowest_start_s
        result.published = len(self._confirmed)
        for message_id in self._confirmed.values():
            seen = self._seen.get(message_id)
            if seen is not None and (seen.acknowledged or seen.dead):
                continue
            if message_id < self._passed:
                result.passed_over += 1
            else:
                result.lost += 1
        result.acknowledged = sum(each.acknowledged for each in self._seen.values())
        result.dead_letters = sum(each.dead > 0 for each in self._seen.values())
