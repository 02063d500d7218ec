"""What waits in a former session of a client is moved to the one that it has now, at another node.

The former one is read as its client would read it. Each message goes to the other node as a note, and is acknowledged
here when that node has it on disk. So none is lost; one comes twice if the nodes part in between.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.extensions.nodes.blobs import Moved, Note, Settled
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, waiting_in
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode_publish
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Publish

MAX_MOVES: Final = 50
"""How many sessions are moved at a time. Others wait."""

AGAIN_S: Final = 10.0
"""When a move is tried again whose client had no session at the other node."""

UNDER_WAY: Final = 20
"""How many messages of a session are under way."""


class Destination(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    def note(self, note: Note) -> None: ...


class _Move:
    """One session. `on_over` is called when nothing waits in it any more, `on_cut` when an operator has closed it."""

    def __init__(
        self,
        client_id: str,
        core: Broker,
        driver: LoopDriver,
        to: Destination,
        on_over: Callable[[], None],
        on_cut: Callable[[], None],
    ) -> None:
        session = core.sessions.get(client_id)
        assert session is not None, "something waits in it"
        self.client_id: Final = client_id
        self._core: Final = core
        self.to: Final = to
        self._on_over: Final = on_over
        self._on_cut: Final = on_cut
        self._is_stopped = False
        self._loop: Final = asyncio.get_running_loop()
        self._identity: Final = session.identity
        self._under_way: Final[dict[int, Publish]] = {}
        self._local: Final = LocalSession(core, driver, self._on_readable, "node", "local", to.name)
        client = LocalClient(
            client_id=client_id,
            clean_start=False,
            session_expiry_s=session.expiry_interval,
            username=session.identity.username,
            mount_point=session.identity.mount_point,
            is_trusted=True,
        )
        connected_at = session.connected_at
        self._local.connect(client, UNDER_WAY)
        session.connected_at = connected_at  # its client has not come

    def _on_readable(self) -> None:
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        while not self._local.is_over and (packet := self._local.receive()) is not None:
            if isinstance(packet, Publish):
                self._under_way[packet.packet_id] = packet
                self.to.note(Moved(packet.packet_id, self.client_id, encode_publish(packet, V5)))
        if self._is_stopped:
            return
        if self._local.is_over:
            self._on_cut()
        elif not (self._under_way or waiting_in(self._core, self.client_id)):
            self._is_stopped = True
            self._on_over()
            self._local.leave()

    def on_settled(self, number: int, is_there: bool) -> None:
        """The other node has a message on disk, or has no session of the client any more."""
        packet = self._under_way.pop(number, None)
        if packet is not None and is_there:
            self._local.acknowledge(packet)
            self._loop.call_soon(self._read)

    def stop(self) -> None:
        """The rest stays."""
        self._is_stopped = True
        self._local.end()
        session = self._core.sessions.get(self.client_id)
        if session is not None:
            session.identity = self._identity


class Moving:
    """`peers` are all other nodes by name. `on_nowhere` is called when the other node has not the client any more."""

    def __init__(
        self,
        peers: Mapping[str, Destination],
        core: Broker,
        driver: LoopDriver,
        on_nowhere: Callable[[str], None],
    ) -> None:
        self._on_nowhere: Final = on_nowhere
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[dict[str, str]] = {}
        """By client identifier: the node to which what waits is to be moved."""
        self._moves: Final[dict[str, _Move]] = {}
        self._not_before: Final[dict[str, float]] = {}
        """When a move is tried again whose client had no session at the other node."""
        self._settling: Final[set[asyncio.Task[None]]] = set()

    def moves(self, client_id: str) -> bool:
        """Whether the session of a client is being moved."""
        return client_id in self._moves

    def __len__(self) -> int:
        return len(self._waiting) + len(self._moves)

    def add(self, client_id: str, name: str) -> None:
        """Move what waits for a client to a node, also if it is being moved to another one."""
        if client_id in self._moves:
            self._stop(client_id)
        self._not_before.pop(client_id, None)
        self._waiting[client_id] = name
        self.tick()

    def tick(self) -> None:
        """Called several times a second: begin what can begin."""
        now = self._driver.time()
        for client_id, name in list(self._waiting.items()):
            session = self._core.sessions.get(client_id)
            peer = self._peers.get(name)
            if session is None:
                self._give_up(client_id)
            elif not waiting_in(self._core, client_id):
                # Also if its client has come back to it, while the nodes were apart: it has no subscriptions any more.
                self._give_up(client_id)
                self._core.end_session(client_id, now)
                self._driver.wake()
            elif (
                peer is not None
                and peer.is_connected
                and session.outbox is None
                and len(self._moves) < MAX_MOVES
                and now >= self._not_before.get(client_id, now)
            ):
                self._begin(client_id, peer)

    def _give_up(self, client_id: str) -> None:
        del self._waiting[client_id]
        self._not_before.pop(client_id, None)

    def on_away(self, name: str) -> None:
        """A node is not connected any more."""
        for client_id in [client_id for client_id, move in self._moves.items() if move.to.name == name]:
            self._stop(client_id)

    def on_settled(self, settled: Settled) -> None:
        """The other node has a message, or has not the client any more."""
        move = self._moves.get(settled.client_id)
        if move is None:
            return
        move.on_settled(settled.number, settled.is_there)
        if not settled.is_there:
            self._not_before[settled.client_id] = self._driver.time() + AGAIN_S
            self._stop(settled.client_id)
            self._on_nowhere(settled.client_id)

    def on_moved(self, peer: Destination, moved: Moved) -> None:
        """A message of another node for a client that is here. It is answered when it is on disk."""
        framer = Framer(len(moved.packet))
        (first, body), *_none = framer.split(moved.packet)
        assert first >> 4 == PUBLISH, "only messages are moved"
        packet = decode(first, body, V5)
        assert isinstance(packet, Publish), "only messages are moved"
        is_there = self._core.hand_over(moved.client_id, packet, self._driver.time())
        self._driver.wake()
        task = self._loop.create_task(self._settle(peer, Settled(moved.number, moved.client_id, is_there)))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, peer: Destination, settled: Settled) -> None:
        await self._driver.settled()
        peer.note(settled)

    def _begin(self, client_id: str, peer: Destination) -> None:
        del self._waiting[client_id]
        try:
            self._moves[client_id] = _Move(
                *(client_id, self._core, self._driver, peer),
                on_over=lambda: self._end(client_id),
                on_cut=lambda: self._stop(client_id),
            )
        except ConnectionRefusedError:  # the broker is short of something: later
            self._waiting[client_id] = peer.name

    def _end(self, client_id: str) -> None:
        """All has been moved."""
        del self._moves[client_id]

    def _stop(self, client_id: str) -> None:
        """Let the rest wait for another attempt."""
        move = self._moves.pop(client_id)
        move.stop()
        self._waiting[client_id] = move.to.name
