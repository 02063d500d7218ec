"""Fences: a node learns that all messages which were on the way to it at a moment have come.

A node that is asked puts a marker into its session for the other node, behind all that waits there. The marker is a
message of QoS 1 that nobody subscribes to, so its acknowledgement comes when all before it has its receivers there.
Invariant: a fence is passed only when each node that may have something has answered.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.message import Delivery, Message
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.blobs import Fence, Fenced, Note
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.net.link import LinkDriver
from mqttlite.wire.properties import NONE

TOPIC: Final = b"$node/fence"
"""Of the marker. Nobody is told who subscribes below `$`, so nobody gets it."""


class Other(Protocol):
    """The part of a `Peer` that is used here. `is_lost`: nothing waits there for this node any more."""

    @property
    def name(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def is_lost(self) -> bool: ...
    def note(self, note: Note) -> None: ...


class _Open:
    """A fence that is not passed."""

    def __init__(self, missing: set[str], on_passed: Callable[[], None]) -> None:
        self.missing: Final = missing
        self.on_passed: Final = on_passed


class Fences:
    """`peers` are all other nodes by name."""

    def __init__(self, peers: Mapping[str, Other], core: Broker, driver: LinkDriver) -> None:
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._latest = 0
        self._open: Final[dict[int, _Open]] = {}
        self._markers: Final[dict[str, _Markers]] = {}

    # ------------------------------------------------------------------ of this node

    def begin(self, on_passed: Callable[[], None]) -> None:
        """Have a function called when all that is on the way here now has come."""
        missing = {name for name, peer in self._peers.items() if not peer.is_lost}
        self._latest += 1
        self._open[self._latest] = _Open(missing, on_passed)
        for name in missing:
            self._peers[name].note(Fence(self._latest))
        self._look(self._latest)

    def on_connected(self, peer: Other) -> None:
        """A node is connected: it is asked again."""
        for number, each in self._open.items():
            if peer.name in each.missing:
                peer.note(Fence(number))

    def tick(self) -> None:
        """Called several times a second: nodes that are lost have nothing any more."""
        for number, each in list(self._open.items()):
            each.missing.difference_update([name for name in each.missing if self._is_lost(name)])
            self._look(number)

    def _is_lost(self, name: str) -> bool:
        return name not in self._peers or self._peers[name].is_lost

    def on_fenced(self, peer: Other, fenced: Fenced) -> None:
        """A node has answered."""
        each = self._open.get(fenced.number)
        if each is not None:
            each.missing.discard(peer.name)
            self._look(fenced.number)

    def _look(self, number: int) -> None:
        if not self._open[number].missing:
            self._open.pop(number).on_passed()

    # ------------------------------------------------------------------ of other nodes

    def on_fence(self, peer: Other, fence: Fence) -> None:
        """Another node asks."""
        session = self._core.sessions.get(CLIENT_ID_PREFIX + peer.name)
        if session is None:
            peer.note(Fenced(fence.number))
            return
        markers = self._markers.get(peer.name)
        if markers is None or markers.session is not session:
            markers = self._markers[peer.name] = _Markers(session, peer)
            session.pull_with(markers)
        markers.waiting.append(fence.number)
        self._core.effects.now = self._driver.time()
        session.fill()
        self._driver.wake()


class _Markers:
    """A `Puller`: the markers that wait for their turn in the session for one node."""

    def __init__(self, session: Session, peer: Other) -> None:
        self.session: Final = session
        self._peer: Final = peer
        self.waiting: Final[list[int]] = []

    def on_room(self) -> None:
        """As `Puller`: nothing waits before them."""
        while self.waiting and self.session.can_borrow:
            number = self.waiting.pop(0)
            marker = Message(TOPIC, b"", 1, False, NONE, 0.0)
            origin = _Marker(partial(self._peer.note, Fenced(number)))
            self.session.lend(Delivery(marker, 1, False, (), origin))

    def on_gone(self) -> None:
        """As `Puller`: the node is away, and asks again when it is back."""
        self.waiting.clear()


class _Marker:
    """An `Origin`."""

    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, on_settled: Callable[[], None]) -> None:
        self._on_settled: Final = on_settled

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        """As `Origin`."""
        self._on_settled()

    def returned(self, delivery: Delivery) -> bool:
        """As `Origin`: the other node asks again."""
        return True
