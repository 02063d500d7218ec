"""The state of the core at one moment: the only source of `$SYS`, the metrics and the status page.

A snapshot visits all connections and sessions in slices, so that it does not block the loop even with a hundred
thousand clients. Messages cost nothing. Invariant: it keeps only `RANKED` clients of each ranking, and one number for
each connection, from which the next snapshot ranks the most active ones.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.reasons import HoldReason
from mqttlite.core.session.session import Session
from mqttlite.event_hub import Link
from mqttlite.telemetry.counters import ConnectionCounters, Kind, Totals, kind_of

SLICE: Final = 100
"""Connections and sessions to look at in one loop iteration: less than half a millisecond."""

RANKED: Final = 20
"""Clients of each ranking: as many as anybody reads."""

INTERVAL_S: Final = 1.0
"""The least time between two snapshots of which rates are made."""

RANKINGS: Final = ("bytes", "outbox", "queue", "inflight", "drops")
"""By bytes moved since the previous snapshot, bytes that wait, messages that wait, unacknowledged messages, and
messages dropped."""

CLOCK_S: Final = 0.001
"""The resolution of the loop's clock, and so the least interval that is measured."""

_RATES: Final = ("messages_received", "messages_sent", "bytes_received", "bytes_sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A client in a ranking. The fields of the connection are None or 0 for a client that is offline."""

    client_id: str
    value: int
    connection_id: int | None
    peer: str | None
    listener: str | None
    bytes: int
    """Received and sent since the previous snapshot, or since it connected."""
    outbox_bytes: int
    blocked: bool
    queued: int
    inflight: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Counters are since the start, and never fall from one snapshot to the next."""

    at: float
    """In the broker's seconds."""
    totals: Totals
    opened: int
    """Connections."""
    connected: Mapping[Kind, int]
    disconnected: Mapping[str, int]
    refused: Mapping[tuple[str, str], int]
    denied: Mapping[str, int]
    """Messages, or topic filters, by the action that was denied."""
    filtered: int
    """Messages that filters kept from a receiver: each receiver counts."""
    jailed: Mapping[str, int]
    refused_in_jail: int
    sessions_expired: int

    connections: Mapping[Kind, int]
    blocked: int
    """Connections whose sockets take no bytes now."""
    online: int
    most_online: int
    sessions: int
    subscriptions: int
    shared_subscriptions: int
    retained: int
    retained_bytes: int
    tombstones: int
    retained_outdated: int
    own_retained: int
    """Retained messages of the broker's own, which `retained` leaves out."""
    queued: int
    queued_bytes: int
    inflight: int
    outbox_bytes: int
    memory_bytes: int
    """What the memory account says is held for clients."""
    memory_limit_bytes: int
    sheds: int
    """How often a client lost the QoS 0 messages that waited for it because memory was short."""
    overload_stage: int
    overload_load: float
    slowed: int
    """Connections that are not read now because they sent more than the overload lets them."""
    slowed_ever: int
    """How often that was so."""
    held_back: int
    """Messages that waited at their publishers because the queue of a receiver that reads was full."""
    connects_shed: int
    """Connections that were refused for the overload."""
    over_quota: int
    """Connections that are not read now because their clients are over a quota."""
    quota_refusals: Mapping[str, int]
    """Subscriptions refused, and messages dropped, because a quota was used up, by its name."""
    over_quota_ever: int
    """How often that was so, or ended the connection."""
    rankings: Mapping[str, list[Ranked]]

    interval_s: float
    """The time since the previous snapshot, from which `growth` and the ranking by bytes are measured."""
    growth: Mapping[str, int]
    """By how much some totals grew in that time."""


class Ranking:
    """The highest values of one kind; a value of 0 has no rank."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Link | None, Session | None]] = []
        self._order = 0

    def offer(self, value: int, link: Link | None, session: Session | None) -> None:
        heap = self._heap
        if value <= 0 or (len(heap) == RANKED and value <= heap[0][0]):
            return
        self._order -= 1  # of equal values the first stays, and links are never compared
        if len(heap) == RANKED:
            heapq.heapreplace(heap, (value, self._order, link, session))
        else:
            heapq.heappush(heap, (value, self._order, link, session))

    def highest(self) -> list[tuple[int, Link | None, Session | None]]:
        """The highest first."""
        return [(value, link, session) for value, _, link, session in sorted(self._heap, reverse=True)]


class Collection:
    """A snapshot in the making: call `step` until it is true, then `result` once."""

    def __init__(
        self,
        core: Broker,
        links: Sequence[Link],
        counters: ConnectionCounters,
        at: float,
        previous_bytes: Mapping[int, int] | None = None,
    ) -> None:
        self.at: Final = at
        self.totals: Final = counters.ended.copy()
        self.totals.add_drops(core.router.drops.by_reason)
        self.moved_bytes: Final[dict[int, int]] = {}
        """What each connection received and sent, by its number."""
        self._core: Final = core
        self._counters: Final = counters
        self._previous_bytes: Final = {} if previous_bytes is None else previous_bytes
        self._links: Final = links
        self._sessions: Final = core.sessions.values()
        self._connections: Final[dict[Kind, int]] = {}
        self._blocked = 0
        self._slowed = 0
        self._over_quota = 0
        self._outbox_bytes = 0
        self._inflight = 0
        self._queued = 0
        self._queued_bytes = 0
        self._rankings: Final = {name: Ranking() for name in RANKINGS}
        self._link_of: Final[dict[Session, Link]] = {}
        self._at = 0

    def step(self) -> bool:
        """Look at the next slice; whether all was seen."""
        start, self._at = self._at, self._at + SLICE
        links = len(self._links)
        for link in self._links[start : self._at]:
            self._add_link(link)
        for session in self._sessions[max(0, start - links) : max(0, self._at - links)]:
            self._add_session(session)
        return self._at >= links + len(self._sessions)

    def result(self, interval_s: float, previous: Totals) -> Snapshot:
        """`previous` are the totals of `interval_s` before."""
        core, counters = self._core, self._counters
        return Snapshot(
            at=self.at,
            totals=self.totals,
            opened=core.opened,
            connected=dict(counters.connected),
            disconnected=dict(counters.disconnected),
            refused=dict(counters.refused),
            denied=dict(core.permissions.denied),
            filtered=core.router.drops.filtered,
            jailed=dict(counters.jailed),
            refused_in_jail=counters.refused_in_jail,
            sessions_expired=core.sessions.expired,
            connections=self._connections,
            blocked=self._blocked,
            online=core.online,
            most_online=max(core.online, counters.most_online),
            sessions=len(core.sessions),
            subscriptions=core.subscriptions,
            shared_subscriptions=core.shared_subscriptions,
            retained=len(core.router.retained),
            retained_bytes=core.router.retained.size_bytes,
            tombstones=core.router.retained.order.tombstones,
            retained_outdated=core.router.retained.order.outdated,
            own_retained=core.router.retained.own,
            queued=self._queued,
            queued_bytes=self._queued_bytes,
            inflight=self._inflight,
            outbox_bytes=self._outbox_bytes,
            memory_bytes=core.effects.memory.used,
            memory_limit_bytes=core.limits.max_memory_bytes,
            sheds=core.effects.memory.sheds,
            overload_stage=core.overload.stage,
            overload_load=core.overload.load,
            slowed=self._slowed,
            slowed_ever=core.overload.credits.held,
            held_back=core.effects.held_back,
            connects_shed=core.overload.connects_refused,
            over_quota=self._over_quota,
            quota_refusals=dict(core.throttling.refused),
            over_quota_ever=core.throttling.held,
            rankings={
                name: [self._ranked(*each) for each in ranking.highest()] for name, ranking in self._rankings.items()
            },
            interval_s=interval_s,
            growth={name: getattr(self.totals, name) - getattr(previous, name) for name in _RATES},
        )

    def _add_link(self, link: Link) -> None:
        connection = link.connection
        outbox = connection.outbox
        self.totals.add(connection)
        kind = kind_of(link)
        self._connections[kind] = self._connections.get(kind, 0) + 1
        moved = self.moved_bytes[connection.number] = connection.bytes_received + outbox.bytes_sent
        session = connection.session
        self._rankings["bytes"].offer(moved - self._previous_bytes.get(connection.number, 0), link, session)
        waiting = outbox.waiting_bytes + link.unsent_bytes
        if waiting:
            self._outbox_bytes += waiting
            self._rankings["outbox"].offer(waiting, link, session)
        if outbox.blocked:
            self._blocked += 1
        if connection.hold_reasons & HoldReason.OVERLOAD:
            self._slowed += 1
        if connection.hold_reasons & HoldReason.RATE:
            self._over_quota += 1
        if session is not None:
            if session.queued or session.unacknowledged:
                self._link_of[session] = link
            if session.drops or outbox.drops:
                self._rankings["drops"].offer(_sum(session.drops) + _sum(outbox.drops), link, session)

    def _add_session(self, session: Session) -> None:
        unacknowledged = session.unacknowledged
        if unacknowledged:
            self._inflight += unacknowledged
            self._rankings["inflight"].offer(unacknowledged, self._link_of.get(session), session)
        queued = session.queued
        if queued:
            self._queued += queued
            self._queued_bytes += session.queued_bytes
            self._rankings["queue"].offer(queued, self._link_of.get(session), session)
        if session.outbox is None and session.drops:  # else its connection has counted them
            self.totals.add_drops(session.drops)
            self._rankings["drops"].offer(_sum(session.drops), None, session)

    def _ranked(self, value: int, link: Link | None, session: Session | None) -> Ranked:
        connection = None if link is None else link.connection
        number = None if connection is None else connection.number
        dropped = 0 if session is None else _sum(session.drops)
        return Ranked(
            client_id=session.client_id if session is not None else "" if connection is None else connection.client_id,
            value=value,
            connection_id=number,
            peer=None if link is None else link.address,
            listener=None if link is None else link.listener,
            bytes=0 if number is None else self.moved_bytes[number] - self._previous_bytes.get(number, 0),
            outbox_bytes=0 if link is None else link.connection.outbox.waiting_bytes + link.unsent_bytes,
            blocked=connection is not None and connection.outbox.blocked,
            queued=0 if session is None else session.queued,
            inflight=0 if session is None else session.unacknowledged,
            dropped=dropped + (0 if connection is None else _sum(connection.outbox.drops)),
        )


class Snapshots:
    """Takes snapshots, one at a time; `links` gives all connections whose end `counters` has not heard of, and `clock`
    the broker's seconds."""

    def __init__(
        self,
        core: Broker,
        links: Callable[[], Sequence[Link]],
        counters: ConnectionCounters,
        clock: Callable[[], float],
    ) -> None:
        self.latest: Snapshot | None = None
        self.cost_s: float = 0.0
        """How much of a processor's time the latest one took."""
        self._core: Final = core
        self._links: Final = links
        self._counters: Final = counters
        self._clock: Final = clock
        self._started_at: Final = clock()
        self._latest_bytes: dict[int, int] = {}
        self._previous: Snapshot | None = None
        """The snapshot that growth is measured from."""
        self._previous_bytes: dict[int, int] = {}
        self._under_way: asyncio.Task[Snapshot] | None = None

    async def take(self, max_age_s: float = 0.0) -> Snapshot:
        """The latest snapshot if it is younger than that, else a new one; all who ask meanwhile get the same."""
        latest = self.latest
        if latest is not None and self._clock() - latest.at < max_age_s:
            return latest
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._take())
        return await asyncio.shield(self._under_way)  # one caller's cancellation does not take it from the others

    async def stop(self) -> None:
        """Cancel the snapshot that is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    def begin(self) -> Collection:
        """Start a snapshot; `finish` it once its last step is done."""
        latest = self.latest
        now = self._clock()
        if latest is not None and now - latest.at >= INTERVAL_S:
            self._previous, self._previous_bytes = latest, self._latest_bytes
        return Collection(self._core, self._links(), self._counters, now, self._previous_bytes)

    def finish(self, collection: Collection) -> Snapshot:
        """The snapshot whose parts are collected."""
        if self.latest is not None:
            collection.totals.raise_to(self.latest.totals)
        previous = self._previous
        interval_s = max(CLOCK_S, collection.at - (self._started_at if previous is None else previous.at))
        self.latest = collection.result(interval_s, Totals() if previous is None else previous.totals)
        self._latest_bytes = collection.moved_bytes
        return self.latest

    async def _take(self) -> Snapshot:
        try:
            cost_s = 0.0
            collection = self.begin()
            is_done = False
            while not is_done:
                started = time.thread_time()  # a busy machine makes it no dearer
                is_done = collection.step()
                cost_s += time.thread_time() - started
                if not is_done:
                    await asyncio.sleep(0)
            self.cost_s = cost_s
            return self.finish(collection)
        finally:
            self._under_way = None


def _sum(drops: Mapping[str, int]) -> int:
    return sum(drops.values())
