"""Clients that come to one node after the other, in a time of their own: all from a seed.

Each client has one kept session, and opens its next connection at any node while the former may still be open. At each
moment one node at most has its session; and in the end it has each message of QoS 2 once. Where nodes are cut off from
each other, clients begin several sessions: in the end each has one again.
"""

import asyncio
import random
from typing import Any, Final

from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.net.link import Link
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connack, Connect, Packet, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties
from tests.simulation.cluster import VirtualLoop
from tests.simulation.nodes import KEPT_S, NAMES, DyingStore, Life
from tests.support.air import Air

TOPIC: Final = b"t"
LOOKS_S: Final = 0.001
HEALS_S: Final = 30.0


class Socket(asyncio.Transport):
    """A client's socket at a node: bytes take up to `max_delay_s` each way, in order."""

    def __init__(self, client: "Roamer | Guest", chance: random.Random, max_delay_s: float) -> None:
        super().__init__()
        self._client: Final = client
        self._chance: Final = chance
        self._max_delay_s: Final = max_delay_s
        self._loop: Final = asyncio.get_running_loop()
        self._latest = [0.0, 0.0]
        self._protocol: Any = None
        self.framer: Final = Framer(1_000_000)
        self.is_over = False

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._later(0, self._client.on_bytes, self, bytes(data))

    def send(self, packet: Packet) -> None:
        """The client sends something."""
        self._later(1, self._arrive, encode(packet, V5))

    def _arrive(self, data: bytes) -> None:
        if not self.is_over:
            self._protocol.data_received(data)

    def _later(self, way: int, call: Any, *arguments: Any) -> None:
        at = max(self._latest[way] + 1e-7, self._loop.time() + self._chance.random() * self._max_delay_s)
        self._latest[way] = at
        self._loop.call_at(at, call, *arguments)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._later(0, self._client.on_closed, self)
            self._loop.call_soon(lambda: self._protocol.connection_lost(None))

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_over

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """What is sent here is little."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is none."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Door:
    """The listener of a node."""

    name: Final = "door"

    def __init__(self, life: Life, *, must_authenticate: bool) -> None:
        self._life: Final = life
        self._peer: Final = Peer(must_authenticate=must_authenticate)

    def open(self, transport: asyncio.Transport) -> Link:
        """A connection."""
        link = Link("door", "tcp", self._life.core, self._life.driver, self._on_made, lambda _link: None)
        transport.set_protocol(link)  # type: ignore[arg-type]
        link.connection_made(transport)
        return link

    def _on_made(self, _link: Link) -> Connection:
        return self._life.core.open(self._peer, asyncio.get_running_loop().time())

    def take_in(self, transport: asyncio.Transport, *_about: str | None) -> Link:
        link = self.open(transport)
        link.connection.is_located = True
        return link


class Roamer:
    """A client with one kept session, that publishes to all of them."""

    def __init__(self, client_id: str, doors: list[Door], chance: random.Random, *, may_begin_again: bool) -> None:
        self.client_id: Final = client_id
        self._doors: Final = doors
        self._chance: Final = chance
        self._may_begin_again: Final = may_begin_again
        self._socket: Socket | None = None
        self.is_welcome = False
        self.got: list[bytes] = []
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.resumed = 0
        self._unreleased: dict[int, bytes] = {}
        self._under_way: Publish | None = None
        self._is_received = False

    def come(self) -> None:
        """Connect at some node; the former connection is left open."""
        self.is_welcome = False
        socket = self._socket = Socket(self, self._chance, 0.01)
        self._chance.choice(self._doors).open(socket)
        properties = Properties(session_expiry_interval=KEPT_S)
        socket.send(Connect(self.client_id, clean_start=False, properties=properties))

    def on_bytes(self, socket: Socket, data: bytes) -> None:
        for first, body in socket.framer.split(data):
            if socket is self._socket:
                self._take(socket, decode(first, body, V5))

    def on_closed(self, socket: Socket) -> None:
        if socket is self._socket:  # its former connection came in behind it
            self.come()

    def publish(self) -> None:
        """The next message, if the one before is acknowledged."""
        if self._under_way is not None or self._socket is None or not self.is_welcome:
            return
        payload = f"{self.client_id} {len(self.sent)}".encode()
        self.sent.append(payload)
        self._under_way = Publish(TOPIC, payload, 2, packet_id=len(self.sent) % 60_000 + 1)
        self._is_received = False
        self._socket.send(self._under_way)

    def _take(self, socket: Socket, packet: Packet) -> None:
        if isinstance(packet, Connack):
            assert packet.reason_code == 0
            assert packet.session_present == (self.resumed > 0) or self._may_begin_again
            if not packet.session_present:
                self.resumed = 0
                self._unreleased.clear()
                self._is_received = False
            self.resumed += 1
            self.is_welcome = True
            if self.resumed == 1:
                socket.send(Subscribe(1, (SubscriptionRequest(TOPIC, 2),)))
            if self._under_way is not None:
                again = self._under_way
                if self._is_received:
                    socket.send(Ack(PUBREL, again.packet_id))
                else:
                    socket.send(Publish(again.topic, again.payload, 2, dup=True, packet_id=again.packet_id))
        elif isinstance(packet, Publish):
            self._unreleased.setdefault(packet.packet_id, packet.payload)
            socket.send(Ack(PUBREC, packet.packet_id))
        elif isinstance(packet, Ack):
            self._on_ack(socket, packet)

    def _on_ack(self, socket: Socket, packet: Ack) -> None:
        assert packet.packet_type != PUBACK
        if packet.packet_type == PUBREL:
            payload = self._unreleased.pop(packet.packet_id, None)
            if payload is not None:
                self.got.append(payload)
            socket.send(Ack(PUBCOMP, packet.packet_id))
        elif self._under_way is not None and packet.packet_id == self._under_way.packet_id:
            if packet.packet_type == PUBREC:
                self._is_received = True
                socket.send(Ack(PUBREL, packet.packet_id))
            else:
                self.acknowledged.append(self._under_way.payload)
                self._under_way = None


class Guest:
    """A client without a kept session, that connects to several nodes at once and leaves again."""

    def __init__(self, client_id: str, doors: list[Door], chance: random.Random) -> None:
        self.client_id: Final = client_id
        self._doors: Final = doors
        self._chance: Final = chance
        self._sockets: list[Socket] = []
        self.welcomes = 0

    def come(self) -> None:
        """Connect to some nodes, or leave them."""
        if self._sockets and self._chance.random() < 0.5:
            for socket in self._sockets:
                socket.close()
            self._sockets.clear()
            return
        for door in self._doors:
            if self._chance.random() < 0.7:
                socket = Socket(self, self._chance, 0.002)
                door.open(socket)
                socket.send(Connect(self.client_id, clean_start=self._chance.random() < 0.5))
                self._sockets.append(socket)

    def on_bytes(self, socket: Socket, data: bytes) -> None:
        for first, body in socket.framer.split(data):
            self.welcomes += isinstance(decode(first, body, V5), Connack)

    def on_closed(self, _socket: Socket) -> None:
        """Another one of its connections stays."""


class World:
    """`parts`: nodes are cut off from each other now and then."""

    def __init__(self, seed: int, roamers: int, takeovers: int, *, parts: bool) -> None:
        self._parts: Final = parts
        self.chance: Final = random.Random(seed)
        self._air: Final = Air(random.Random(seed + 1), self.chance.choice((0.0, 0.005, 0.05)))
        self._takeovers: Final = takeovers
        self._count: Final = roamers
        self.lives: list[Life] = []
        self.roamers: list[Roamer] = []
        self.guests: list[Guest] = []
        self.most_owners = 0

    async def live(self) -> None:
        self.lives = [Life(name, DyingStore(self.chance), self._air) for name in NAMES]
        must_authenticate = self.chance.random() < 0.5
        doors = [Door(life, must_authenticate=must_authenticate) for life in self.lives]
        for life, door in zip(self.lives, doors, strict=True):
            life.nodes.locating.passing.serve_at({"door": door})
            await life.nodes.start()
        await asyncio.sleep(2)
        self.roamers = [
            Roamer(f"r-{number}", doors, self.chance, may_begin_again=self._parts) for number in range(self._count)
        ]
        self.guests = [Guest(f"g-{number}", doors, self.chance) for number in range(self._count)]
        for roamer in self.roamers:
            roamer.come()
        await asyncio.sleep(1)
        await (self._live_apart() if self._parts else self._live_together())
        for life in self.lives:
            await life.nodes.stop()
            await life.driver.settled()
            await life.driver.stop()

    async def _live_apart(self) -> None:
        for _ in range(self._takeovers):
            await asyncio.sleep(self.chance.random() * self.chance.choice((0.01, 0.2, 1.5)))
            self.chance.choice(self.roamers).come()
            for roamer in self.roamers:
                roamer.publish()
            fault = self.chance.random()
            if fault < 0.06:
                self._air.cut.add(frozenset(self.chance.sample(NAMES, 2)))
            elif fault < 0.12:
                self._air.cut.clear()
        self._air.cut.clear()
        await asyncio.sleep(HEALS_S)
        for roamer in self.roamers:
            sessions = [life.core.sessions.get(roamer.client_id) for life in self.lives]
            (session,) = [each for each in sessions if each is not None]
            assert session.outbox is not None
            assert not session.identity.is_trusted
            assert roamer.is_welcome
        for life in self.lives:
            assert len(life.nodes.locating._moving) == 0, "all has been moved"
            assert not life.nodes.locating._claims, "each question is answered"

    async def _live_together(self) -> None:
        looking = asyncio.create_task(self._look())
        for _ in range(self._takeovers):
            await asyncio.sleep(self.chance.random() * self.chance.choice((0.001, 0.01, 0.2)))
            self.chance.choice(self.roamers).come()
            self.chance.choice(self.guests).come()
            for roamer in self.roamers:
                roamer.publish()
        await asyncio.sleep(5)
        looking.cancel()
        self._check()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOKS_S)
            for client in (*self.roamers, *self.guests):
                owners = [life for life in self.lives if life.core.sessions.get(client.client_id) is not None]
                self.most_owners = max(self.most_owners, len(owners))

    def _check(self) -> None:
        assert self.most_owners == 1, "a client has two sessions"
        published = [payload for roamer in self.roamers for payload in roamer.acknowledged]
        for roamer in self.roamers:
            assert roamer.is_welcome
            assert len(set(roamer.got)) == len(roamer.got), f"{roamer.client_id} has something twice"
            missing = set(published) - set(roamer.got)
            assert not missing, f"{roamer.client_id} lacks {len(missing)} of {len(published)}"


def run_roaming(seed: int, roamers: int = 5, takeovers: int = 300, *, parts: bool = False) -> World:
    """Let clients roam. Raises AssertionError if a promise is broken."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        world = World(seed, roamers, takeovers, parts=parts)
        runner.run(world.live())
        return world
