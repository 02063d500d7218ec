"""One look at all connections and sessions: what they hold and did, and who of them holds and did the most.

It is taken a slice at a time, so that it holds up the loop as little with a hundred thousand clients as with ten.
Nothing is counted for it where messages pass. Invariant: what it keeps of single clients is `RANKED` of each kind, but
for the bytes of each connection, by which the next census tells who is greedy now.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection
from mqttlite.core.session import Session
from mqttlite.telemetry.counters import Totals
from mqttlite.telemetry.intervals import Link
from mqttlite.wire.constants import VERSION_NAMES

SLICE: Final = 100
"""Connections and sessions to look at in one pass of the loop: less than half a millisecond."""

RANKED: Final = 20
"""Clients of each ranking: as many as anybody looks at."""

NO_VERSION: Final = "none"
"""The protocol version of a connection that has yet to send its CONNECT."""


class Door(Link, Protocol):
    """What a connection comes through, and how much waits in it."""

    @property
    def unsent_bytes(self) -> int: ...


Kind = tuple[str, str, str]
"""Listener, transport and protocol version."""


class Ranking:
    """Those with the highest values of one kind; who has none is not among them."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Door | None, Session | None]] = []
        self._order = 0

    def offer(self, value: int, door: Door | None, session: Session | None) -> None:
        heap = self._heap
        if value <= 0 or (len(heap) == RANKED and value <= heap[0][0]):
            return
        self._order -= 1  # of equal ones the first stays, and doors are never compared
        if len(heap) == RANKED:
            heapq.heapreplace(heap, (value, self._order, door, session))
        else:
            heapq.heappush(heap, (value, self._order, door, session))

    def highest(self) -> list[tuple[int, Door | None, Session | None]]:
        """The highest first."""
        return [(value, door, session) for value, _, door, session in sorted(self._heap, reverse=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One of a ranking. Of a client that is away there is only what its session holds."""

    client_id: str
    value: int
    connection_id: int | None
    peer: str | None
    listener: str | None
    bytes: int
    """Received and sent since the former census, or since it connected."""
    outbox_bytes: int
    blocked: bool
    queued: int
    inflight: int
    dropped: int


class Snapshot:
    """Call `step` until it says that all were seen, then `rankings` once. `former` is what each connection had moved
    at an earlier census."""

    def __init__(
        self, core: Broker, doors: Sequence[Door], ended: Totals, at: float, former: Mapping[int, int] | None = None
    ) -> None:
        self.at: Final = at
        self.totals: Final = ended.copy()
        self.totals.add_drops(core.router.drops.by_reason)
        self.connections: Final[dict[Kind, int]] = {}
        self.moved_bytes: Final[dict[int, int]] = {}
        """What each connection received and sent, by its number."""
        self.blocked = 0
        """Connections whose sockets take no bytes for now."""
        self.outbox_bytes = 0
        self.inflight = 0
        self.queued = 0
        self.queued_bytes = 0
        self.rankings: dict[str, list[Ranked]] = {}
        """Once all were seen. By `bytes` since `former` (or since they connected), `outbox` bytes that wait, messages
        that wait in the `queue`, and `drops`."""
        self._rankings: Final = {name: Ranking() for name in ("bytes", "outbox", "queue", "drops")}
        self._former: Final = {} if former is None else former
        self._doors: Sequence[Door] = doors
        self._sessions = core.sessions.values()
        self._door_of: dict[Session, Door] = {}
        self._at = 0

    def step(self) -> bool:
        """Look at the next of them; True when there are no more."""
        start, self._at = self._at, self._at + SLICE
        for door in self._doors[start : self._at]:
            self._add_door(door)
        for session in self._sessions[max(0, start - len(self._doors)) : max(0, self._at - len(self._doors))]:
            self._add_session(session)
        if self._at < len(self._doors) + len(self._sessions):
            return False
        self._finish()
        return True

    def _add_door(self, door: Door) -> None:
        connection = door.connection
        outbox = connection.outbox
        self.totals.add(connection)
        kind = door.listener, door.transport, version_of(connection)
        self.connections[kind] = self.connections.get(kind, 0) + 1
        moved = self.moved_bytes[connection.number] = connection.bytes_received + outbox.bytes_sent
        session = connection.session
        self._rankings["bytes"].offer(moved - self._former.get(connection.number, 0), door, session)
        waiting = outbox.waiting_bytes + door.unsent_bytes
        if waiting:
            self.outbox_bytes += waiting
            self._rankings["outbox"].offer(waiting, door, session)
        if outbox.blocked:
            self.blocked += 1
        if session is not None:
            if session.queued:
                self._door_of[session] = door
            if session.drops or outbox.drops:
                self._rankings["drops"].offer(_sum(session.drops) + _sum(outbox.drops), door, session)

    def _add_session(self, session: Session) -> None:
        self.inflight += len(session.inflight) + len(session.released)
        queued = session.queued
        if queued:
            self.queued += queued
            self.queued_bytes += session.queued_bytes
            self._rankings["queue"].offer(queued, self._door_of.get(session), session)
        if session.outbox is None and session.drops:  # else its connection tells what was dropped
            self.totals.add_drops(session.drops)
            self._rankings["drops"].offer(_sum(session.drops), None, session)

    def _finish(self) -> None:
        """Say who was ranked, and let go of everybody: a census may be kept for long."""
        self.rankings = {
            name: [self._ranked(*each) for each in ranking.highest()] for name, ranking in self._rankings.items()
        }
        self._rankings.clear()
        self._door_of.clear()
        self._doors = []
        self._sessions = []

    def _ranked(self, value: int, door: Door | None, session: Session | None) -> Ranked:
        connection = None if door is None else door.connection
        number = None if connection is None else connection.number
        dropped = 0 if session is None else _sum(session.drops)
        return Ranked(
            client_id=session.client_id if session is not None else "" if connection is None else connection.client_id,
            value=value,
            connection_id=number,
            peer=None if door is None else door.address,
            listener=None if door is None else door.listener,
            bytes=0 if number is None else self.moved_bytes[number] - self._former.get(number, 0),
            outbox_bytes=0 if door is None else door.connection.outbox.waiting_bytes + door.unsent_bytes,
            blocked=connection is not None and connection.outbox.blocked,
            queued=0 if session is None else session.queued,
            inflight=0 if session is None else len(session.inflight) + len(session.released),
            dropped=dropped + (0 if connection is None else _sum(connection.outbox.drops)),
        )


class Comings:
    """Who came in and went, since the start."""

    def __init__(self) -> None:
        self.ended: Final = Totals()
        """What connections counted that are over."""
        self.connected: Final[dict[Kind, int]] = {}
        self.disconnected: Final[dict[str, int]] = {}
        """By close reason."""
        self.refused: Final[dict[tuple[str, str], int]] = {}
        """Connections that ended before they were accepted, by listener and close reason."""

    def on_connected(self, door: Door) -> None:
        """A client was accepted."""
        kind = door.listener, door.transport, version_of(door.connection)
        self.connected[kind] = self.connected.get(kind, 0) + 1

    def on_closed(self, door: Door) -> None:
        """A connection is over, and in no later census."""
        connection = door.connection
        self.ended.add(connection)
        reason = str(connection.close_reason)
        if connection.accepted:
            self.disconnected[reason] = self.disconnected.get(reason, 0) + 1
        else:
            refused = door.listener, reason
            self.refused[refused] = self.refused.get(refused, 0) + 1


def version_of(connection: Connection) -> str:
    """`3.1`, `3.1.1`, `5.0`, or `NO_VERSION`."""
    return VERSION_NAMES[connection.version] if connection.version else NO_VERSION


def _sum(drops: Mapping[str, int]) -> int:
    return sum(drops.values())
