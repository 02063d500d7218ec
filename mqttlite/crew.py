"""The hall of a broker with several workers: what one of them needs beside the rooms of every broker.

Connections whose clients are at home with another worker go there, and those come from there whose home is here; what
the cores have for each other goes through the fabric.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from mqttlite.cluster.envelope import read_traveller, write_traveller
from mqttlite.cluster.fabric import Fabric
from mqttlite.cluster.handoff import Handoff, Origin
from mqttlite.cluster.membership import Membership
from mqttlite.core.broker import Broker as Core
from mqttlite.core.forwards import Move
from mqttlite.net.link import PLAIN, Link, about
from mqttlite.net.listeners import Listener
from mqttlite.net.turns import Turns

SPOKESMAN: Final = 0
"""The worker that says below `$SYS` what all of them count, and listens on what cannot be shared."""

_log = logging.getLogger("mqttlite")


class Crew:
    """`on_status` is given what another worker counts, `on_lost` is called when one is gone."""

    def __init__(
        self,
        membership: Membership,
        core: Core,
        turns: Turns,
        listeners: list[Listener],
        on_status: Callable[[int, bytes], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._membership: Final = membership
        self._listeners: Final = listeners
        self._on_lost: Final = on_lost
        self._core: Final = core
        self._turns: Final = turns
        self._handoffs: dict[int, Handoff] = {}
        self._stopping = False
        self.fabric: Final = Fabric(
            membership,
            core,
            has_room=self._has_room,
            on_change=turns.wake,
            on_status=on_status,
            on_lost=self._on_worker_lost,
        )

    async def start(self) -> None:
        """Take the sockets to the other workers."""
        await self.fabric.start()
        self._handoffs = {
            worker: Handoff(sock, partial(self._adopt, worker)) for worker, sock in self._membership.handoff.items()
        }
        lifeline = self._membership.lifeline
        if lifeline is not None:
            asyncio.get_running_loop().add_reader(lifeline.fileno(), self._on_orphaned, lifeline)

    def report(self, status: bytes) -> None:
        """Tell the spokesman what is counted here."""
        self.fabric.send_status(SPOKESMAN, status)

    def move(self, link: Link, move: Move) -> None:
        """Send a connection to its client's home, or to where its messages go."""
        number = next(at for at, listener in enumerate(self._listeners) if listener.holds(link))
        listener = self._listeners[number]
        traveller = None if move.traveller is None else write_traveller(move.traveller)
        origin = Origin(number, link.address, link.identity, link.tls_version, link.tls_cipher, traveller)
        try:
            sock = listener.give_away(link)
        except OSError as error:  # no file left for it
            _log.warning("%s: cannot go on at worker %d: %s", link.address, move.worker, error, extra=about(link))
            link.abort()
            moved = False
        else:
            moved = self._handoffs[move.worker].send(sock, origin, move.data)
        if move.traveller is not None and not moved:
            self._core.stay(move.traveller)
            link.traveller = move.traveller
            listener.lose(link)

    def is_leaving(self) -> None:
        """From now on it is no surprise when another worker is gone, and nobody goes there."""
        self._stopping = True
        self._turns.max_leaving = 0

    def stop(self) -> None:
        self._stopping = True
        for handoff in self._handoffs.values():
            handoff.close()
        lifeline = self._membership.lifeline
        if lifeline is not None:
            asyncio.get_running_loop().remove_reader(lifeline.fileno())
            lifeline.close()
        self.fabric.stop()

    def _has_room(self) -> bool:
        return not self._stopping and all(
            listener.has_room for listener in self._listeners if listener.transport in PLAIN
        )

    def _adopt(self, worker: int, sock: socket.socket | None, origin: Origin, data: bytes) -> None:
        listener = self._listeners[origin.listener]
        link = listener.link()
        link.address = origin.address
        link.identity = origin.identity
        link.tls_version = origin.tls_version
        link.tls_cipher = origin.tls_cipher
        link.early = data
        if origin.traveller is not None:
            link.traveller = read_traveller(origin.traveller)
            self._core.expect(link.traveller, worker, asyncio.get_running_loop().time())
        if sock is None:
            listener.lose(link)
        else:
            listener.adopt(link, sock)

    def _on_orphaned(self, lifeline: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(lifeline.fileno())
        if not self._stopping:
            _log.error("the process that started the workers is gone: the broker stops")
            self._on_lost()

    def _on_worker_lost(self, worker: int) -> None:
        if not self._stopping:
            _log.error("worker %d is gone: the broker stops, for it is only a part of itself", worker)
            asyncio.get_running_loop().call_soon(self._on_lost)
