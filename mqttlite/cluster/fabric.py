"""What workers tell each other, over a Unix socket for each pair: in order, and each thing once.

What is for one worker in one pass of the loop leaves with one write. A worker that reads slowly is no reason to keep
more and more for it: `is_jammed` asks not to be given more. Invariant: `tell` is done when every other worker has
noted it, or is gone.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast, final

from mqttlite.cluster.envelope import (
    BYE,
    READY,
    STATUS,
    envelope,
    read,
    wanted,
    write,
    write_interests,
    write_told,
)
from mqttlite.cluster.membership import Membership
from mqttlite.cluster.pieces import Pieces
from mqttlite.core.broker import Broker
from mqttlite.core.forwards import (
    Arrival,
    Batch,
    Claim,
    Forward,
    Interest,
    Located,
    Outcome,
    Outgoing,
    Passage,
    Release,
    Stream,
)

WRITE_BUFFER_BYTES: Final = 1_048_576
"""What may wait for another worker before whoever sends to it is held up."""

LONG_BYTES: Final = 16_384
"""What is so long costs more to copy than to be written by itself."""

READ_BYTES: Final = 65_536
"""How much of a worker's last words is read at once."""

MAX_POSTPONED: Final = 10_000
"""Messages whose outcome at another worker may be waited for before no more are taken."""

_log = logging.getLogger("mqttlite.cluster")


@final
class Fabric:
    """One worker's end. `has_room` says whether connections of other workers may come. `on_change` is called when
    something came in or is no longer jammed, `on_lost` when another worker is gone without a goodbye, `on_status` with
    what another says of itself."""

    def __init__(
        self,
        membership: Membership,
        core: Broker,
        *,
        has_room: Callable[[], bool],
        on_change: Callable[[], None],
        on_status: Callable[[int, bytes], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self.index: Final = membership.index
        self.core: Final = core
        self.has_room: Final = has_room
        self.on_change: Final = on_change
        self.on_status: Final = on_status
        self._on_lost: Final = on_lost
        self._sockets: Final = membership.fabric
        self._loop: Final = asyncio.get_running_loop()
        self._peers: Final[dict[int, Peer]] = {}
        self._serial = 0
        self._told: Final[dict[int, tuple[asyncio.Future[None], set[int]]]] = {}
        """Who has yet to note what was told, by serial number."""
        self._leaving: Final[set[int]] = set()
        self._ready: Final[set[int]] = set()
        self._all_ready: Final = asyncio.Event()

    async def start(self) -> None:
        """Take the sockets."""
        for worker, sock in self._sockets.items():
            peer = Peer(worker, self, self._loop, sock)
            self._peers[worker] = peer
            await self._take(sock, peer)

    async def _take(self, sock: socket.socket, peer: "Peer") -> None:
        await self._loop.create_unix_connection(lambda: cast(asyncio.BaseProtocol, peer), sock=sock)

    def stop(self) -> None:
        """Say goodbye, and close the sockets once what was sent is written."""
        for peer in list(self._peers.values()):
            peer.write([envelope(BYE)])
            peer.close()

    # ------------------------------------------------------------------ out

    def tell(self, interests: list[Interest]) -> asyncio.Future[None]:
        """Tell every other worker; done when all have noted it."""
        self._serial += 1
        done: asyncio.Future[None] = self._loop.create_future()
        waiting = set(self._peers)
        if waiting:
            self._told[self._serial] = done, waiting
        else:
            done.set_result(None)
        data = write_interests(self._serial, interests)
        for peer in self._peers.values():
            peer.write([data])
        return done

    def send(self, outgoing: list[Outgoing]) -> None:
        """Send to those whom it is for, where they are still there."""
        pieces: dict[int, list[bytes]] = {worker: [] for worker in self._peers}
        for each in outgoing:
            written = write(each)
            for worker in each.workers if isinstance(each, Batch) else [each.worker]:
                if worker in pieces:
                    pieces[worker] += written
        for worker, those in pieces.items():
            if those:
                self._peers[worker].write(those)

    def send_status(self, worker: int, status: bytes) -> None:
        if worker in self._peers:
            self._peers[worker].write([envelope(STATUS, status)])

    async def all_ready(self) -> None:
        """Say that we are ready, and wait until all are, or one has left before it was."""
        for peer in self._peers.values():
            peer.write([envelope(READY)])
        self._note_ready(self.index)
        await self._all_ready.wait()

    @property
    def is_jammed(self) -> bool:
        """Whether whoever sends to other workers should wait."""
        if self.core.postponed > MAX_POSTPONED:
            return True
        return any(peer.is_full for peer in self._peers.values())

    # ------------------------------------------------------------------ in

    def on_told(self, worker: int, serial: int) -> None:
        done, waiting = self._told[serial]
        waiting.discard(worker)
        if not waiting:
            del self._told[serial]
            if not done.done():  # who waited may have been cancelled
                done.set_result(None)

    def on_ready(self, worker: int) -> None:
        self._note_ready(worker)

    def on_bye(self, worker: int) -> None:
        self._leaving.add(worker)

    def on_lost(self, worker: int) -> None:
        """A worker is gone, and takes no more notes."""
        del self._peers[worker]
        for serial, (_done, waiting) in list(self._told.items()):
            if worker in waiting:
                self.on_told(worker, serial)
        self._all_ready.set()  # nobody needs to wait for one that will not come
        self.core.on_gone(worker, self._loop.time())
        self.on_change()
        if worker not in self._leaving:
            self._on_lost(worker)

    def _note_ready(self, worker: int) -> None:
        self._ready.add(worker)
        if len(self._ready) == len(self._sockets) + 1:
            self._all_ready.set()


@final
class Peer:
    """The socket to one other worker. An `asyncio.Protocol` by its methods, as `Link` is."""

    def __init__(self, worker: int, fabric: Fabric, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._worker: Final = worker
        self._fabric: Final = fabric
        self._loop: Final = loop
        self._sock: Final = sock
        self._transport: asyncio.Transport
        self._pieces: Final = Pieces()
        self._answers: Final[list[bytes]] = []
        self.is_full = False
        self._is_unreadable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES, WRITE_BUFFER_BYTES // 4)

    def write(self, pieces: list[bytes]) -> None:
        if len(pieces[-1]) > LONG_BYTES:
            self._transport.writelines(pieces)
        else:
            self._transport.write(b"".join(pieces))

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        data = self._pieces.add(data)
        try:
            at = read(self._worker, data, self)
        except Exception:  # both ends are ours: what one of us cannot read, nobody should go on with
            _log.exception("what worker %d sent cannot be read", self._worker)
            self._is_unreadable = True
            self._transport.abort()
            return
        rest = data[at:]
        self._pieces.keep(rest, wanted(rest))
        if self._answers:
            if not self._transport.is_closing():
                self.write(self._answers)
            self._answers.clear()
        self._fabric.on_change()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._fabric.on_change()

    def eof_received(self) -> None:
        """The other end is closed, and the transport closes."""

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:  # a write failed, and what the other said before it left is yet to be read
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)  # and nothing that it says from now on
                while not self._is_unreadable and (data := self._sock.recv(READ_BYTES)):
                    self.data_received(data)
        self._fabric.on_lost(self._worker)

    # ------------------------------------------------------------------ as a `Receiver`

    def on_batch(self, batch: Batch) -> None:
        self._fabric.core.on_batch(batch, self._loop.time())

    def on_stream(self, stream: Stream) -> None:
        self._fabric.core.on_stream(stream, self._loop.time())

    def on_forward(self, forward: Forward) -> None:
        self._fabric.core.on_forward(forward, self._loop.time())

    def on_outcome(self, outcome: Outcome) -> None:
        self._fabric.core.on_outcome(outcome, self._loop.time())

    def on_claim(self, claim: Claim) -> None:
        self._fabric.core.on_claim(claim, self._loop.time())

    def on_located(self, located: Located) -> None:
        self._fabric.core.on_located(located, self._loop.time())

    def on_release(self, release: Release) -> None:
        self._fabric.core.on_release(release)

    def on_passage(self, passage: Passage) -> None:
        self._fabric.core.on_passage(passage, self._fabric.has_room(), self._loop.time())

    def on_arrival(self, arrival: Arrival) -> None:
        self._fabric.core.on_arrival(arrival)

    def on_interests(self, serial: int, interests: list[Interest]) -> None:
        for interest in interests:
            self._fabric.core.on_interest(self._worker, interest)
        self._answers.append(write_told(serial))

    def on_told(self, serial: int) -> None:
        self._fabric.on_told(self._worker, serial)

    def on_status(self, status: bytes) -> None:
        self._fabric.on_status(self._worker, status)

    def on_ready(self) -> None:
        self._fabric.on_ready(self._worker)

    def on_bye(self) -> None:
        self._fabric.on_bye(self._worker)
