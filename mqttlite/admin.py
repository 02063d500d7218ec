"""What an operator does with clients, sessions, retained and delayed messages: list, look at, disconnect, end, purge,
remove, cancel.

HTTP and commands are made on top of it. Invariant: a call holds up the loop for one slice of its work at a time, and
its answer has a bounded size; a page's cursor is a name, so that nothing is kept here between two calls.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Generic, TypeVar

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection
from mqttlite.core.message import Delivery, Message
from mqttlite.core.session import Session
from mqttlite.event_hub import Link
from mqttlite.topics.names import check_filter
from mqttlite.wire.constants import NEVER_EXPIRES, VERSION_NAMES

SLICE: Final = 500
"""Sessions or retained messages to look at in one loop iteration: about half a millisecond."""

REMOVE_SLICE: Final = 20
"""Retained messages to remove in one loop iteration: subscribers are told of each."""

MAX_PAGE: Final = 1_000
"""Entries of one page: some hundred kilobytes of JSON."""

MAX_SUBSCRIPTIONS: Final = 1_000
"""Subscriptions that the details of a client name: a session may have 100,000."""

MAX_REMOVED: Final = 10_000
"""Retained messages that one call removes: some seconds beside other work."""

MAX_PEEK_BYTES: Final = 1_048_576
"""Topics and payloads that one look at a queue copies: about a millisecond."""

MAX_PURGED: Final = 100_000
"""Queued messages that one call drops: about a second beside other work."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of many entries, in the order of their names."""

    entries: list[T]
    cursor: str
    """Where the next page begins; empty on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEntry:
    """A client with a session. The fields of the connection are None while it is not connected."""

    client_id: str
    connected: bool
    connection_id: int | None
    username: str | None
    peer: str | None
    listener: str | None
    protocol_version: str | None
    connected_at: datetime | None
    subscriptions: int
    queued: int
    inflight: int
    session_ends_at: datetime | None = None
    """When the session of an offline client expires; None: never, or not while it is connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDetails:
    """All that an operator can know of one client."""

    entry: ClientEntry
    session_expiry_s: int | None
    """None: never."""
    keep_alive_s: int | None
    transport: str | None
    tls_version: str | None
    bytes_received: int
    bytes_sent: int
    blocked: bool
    """Whether its socket takes no bytes now."""
    outbox_bytes: int
    queued_bytes: int
    window: int
    """How many messages it may have unacknowledged; 0 while it is not connected."""
    most_inflight: int
    """How many it had at once since it connected."""
    backpressure_count: int
    """How often its socket took no bytes since it connected."""
    backpressure_s: float
    """For how long in all."""
    drops: Mapping[str, int]
    """Since the client connected, or of its offline session, by reason."""
    topic_filters: Mapping[str, int]
    """The QoS of its subscriptions, of the first `MAX_SUBSCRIPTIONS`."""
    message_filters: Mapping[str, str]
    """By topic filter, the filters of those of them that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that waits for a client and was never sent to it."""

    sequence: int
    """Its number in the session; it stays the same while the message waits."""
    message_id: int | None
    """By which it is known. None: it was never kept, traced or named to its publisher."""
    published_at: datetime | None
    """When the broker took it, as far as its id says."""
    topic: str
    qos: int
    retain: bool
    payload: bytes
    """Its beginning, where the answer has no room for more."""
    payload_bytes: int
    """Of all of it."""
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePeek:
    """The first messages of a queue, in the order in which they will be sent."""

    messages: list[QueuedMessage]
    waiting: int
    """How many there are in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedEntry:
    """A retained message, without its payload."""

    topic: str
    message_id: int | None
    published_at: datetime | None
    """These two as of `QueuedMessage`."""
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedEntry:
    """A message that was published to `$delayed/…` and is not published to its topic yet, without its payload."""

    number: int
    message_id: int | None
    published_at: datetime | None
    """These two as of `QueuedMessage`."""
    topic: str
    due_at: datetime
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Removal:
    """`messages` were removed or dropped, or would be in a dry run; call again unless `complete`."""

    messages: int
    complete: bool


class Admin:
    """`links` are the open connections, `run` carries out what the core wants done, `now` gives the broker's seconds
    `wall` the UTC time of one of them, and `read` what waits for a client in the store alone, from a sequence on."""

    def __init__(
        self,
        core: Broker,
        links: Mapping[int, Link],
        run: Callable[[], None],
        now: Callable[[], float],
        wall: Callable[[float], datetime],
        read: Callable[[str, int, int], Awaitable[list[Delivery | None]]],
    ) -> None:
        self._core: Final = core
        self._links: Final = links
        self._run: Final = run
        self._now: Final = now
        self._wall: Final = wall
        self._read: Final = read

    # ------------------------------------------------------------------ clients

    async def clients(
        self, cursor: str = "", limit: int = 100, contains: str = "", connected: bool | None = None
    ) -> Page[ClientEntry]:
        """Clients with a session, from the cursor on: `limit` of them, `MAX_PAGE` at most.

        With `contains` only those that have it in their identifier, with `connected` only those that are, or are not.

        Sorts all identifiers after the cursor, slice by slice: some 50 ms for 100,000 sessions.
        """
        sessions = self._core.sessions.values()
        slices = (sessions[start : start + SLICE] for start in range(0, len(sessions), SLICE))
        identifiers = (
            [
                each.client_id
                for each in some
                if contains in each.client_id and (connected is None or connected is (each.outbox is not None))
            ]
            for some in slices
        )
        names, next_cursor = await _lowest(identifiers, cursor, limit)
        found = [session for session in map(self._core.sessions.get, names) if session is not None]
        return Page([self._entry(session) for session in found], next_cursor)

    def client(self, client_id: str) -> ClientDetails | None:
        """The details of one client; None without a session of that name."""
        session = self._core.sessions.get(client_id)
        if session is None:
            return None
        link = self._link_of(session)
        connection = None if link is None else link.connection
        window = session.window
        outbox = session.outbox
        expiry = session.expiry_interval
        drops = dict(session.drops)
        for reason, messages in {} if outbox is None else outbox.drops.items():
            drops[reason] = drops.get(reason, 0) + messages
        filters: dict[str, int] = {}
        message_filters: dict[str, str] = {}
        for subscription in session.subscriptions.values():
            if len(filters) >= MAX_SUBSCRIPTIONS:
                break
            name = subscription.topic_filter.decode(errors="replace")
            filters[name] = subscription.qos
            if subscription.message_filter is not None:
                message_filters[name] = subscription.message_filter.expression
        return ClientDetails(
            entry=self._entry(session),
            session_expiry_s=None if expiry == NEVER_EXPIRES else expiry,
            keep_alive_s=None if link is None else link.connection.keep_alive_s,
            transport=None if link is None else link.transport,
            tls_version=None if link is None else link.tls_version,
            bytes_received=0 if link is None else link.connection.bytes_received,
            bytes_sent=0 if outbox is None else outbox.bytes_sent,
            blocked=outbox is not None and outbox.blocked,
            outbox_bytes=0 if link is None else link.connection.outbox.waiting_bytes + link.unsent_bytes,
            queued_bytes=session.queued_bytes,
            window=0 if connection is None else window.quota + len(window.inflight) + len(window.released),
            most_inflight=window.high_water,
            backpressure_count=0 if connection is None else connection.backpressure_count,
            backpressure_s=0.0 if connection is None else _blocked_s(connection, self._now()),
            drops=drops,
            topic_filters=filters,
            message_filters=message_filters,
        )

    def kick(self, client_id: str) -> bool:
        """Close the client's connection (0x98); its session stays. False: it is not connected."""
        kicked = self._core.kick(client_id, self._now())
        self._run()
        return kicked

    def end_session(self, client_id: str) -> bool:
        """Close the client's connection (0x98) and forget its session. False: it has none."""
        ended = self._core.end_session(client_id, self._now())
        self._run()
        return ended

    async def peek_queue(self, client_id: str, limit: int = 10) -> QueuePeek | None:
        """The first messages that wait for a client and were never sent: `limit` of them, `MAX_PAGE` at most.

        Their topics and payloads have `MAX_PEEK_BYTES` together at most. None: the client has no session.
        """
        session = self._core.sessions.get(client_id)
        if session is None:
            return None
        queue = session.queue
        room = MAX_PEEK_BYTES
        found: list[QueuedMessage] = []
        limit = max(1, min(limit, MAX_PAGE))
        first = queue.first
        waiting: list[Delivery | None] = list(islice(queue.deliveries, limit))
        if len(waiting) < limit and queue.stored:
            next_stored = first + len(waiting)
            waiting += await self._read(client_id, next_stored, min(limit - len(waiting), queue.stored))
        for sequence, delivery in enumerate(waiting, first):
            if delivery is None:  # lost, or gone meanwhile
                continue
            message = delivery.message
            room -= len(message.topic)
            if room <= 0:
                break
            found.append(
                QueuedMessage(
                    sequence=sequence,
                    message_id=message.number or None,
                    published_at=_published_at(message),
                    topic=message.topic.decode(),
                    qos=delivery.qos,
                    retain=delivery.retain,
                    payload=message.payload[:room],
                    payload_bytes=len(message.payload),
                    expires_at=self._wall(message.expires_at) if message.expires_at else None,
                )
            )
            room -= len(message.payload)
        return QueuePeek(messages=found, waiting=len(queue))

    async def purge_queue(self, client_id: str, *, dry_run: bool) -> Removal | None:
        """Drop the messages that wait for a client and were never sent, `MAX_PURGED` at most; a dry run only counts.

        Their publishers have an acknowledgement: each message is counted as dropped for the client, with the reason
        `purged`. Messages that were sent and are not acknowledged stay. None: the client has no session.
        """
        session = self._core.sessions.get(client_id)
        if session is None:
            return None
        waiting = len(session.queue)
        if dry_run:
            return Removal(min(waiting, MAX_PURGED), waiting <= MAX_PURGED)
        wanted, purged = min(waiting, MAX_PURGED), 0
        while purged < wanted:
            messages = self._core.purge(client_id, min(SLICE, wanted - purged), self._now())
            self._run()
            if not messages:  # sent meanwhile, or the session ended
                break
            purged += messages
            await asyncio.sleep(0)
        return Removal(purged, not len(session.queue))

    def _entry(self, session: Session) -> ClientEntry:
        link = self._link_of(session)
        connection = None if link is None else link.connection
        return ClientEntry(
            client_id=session.client_id,
            connected=session.outbox is not None,
            connection_id=None if session.outbox is None else session.outbox.number,
            username=None if connection is None else connection.username,
            peer=None if link is None else link.address,
            listener=None if link is None else link.listener,
            protocol_version=None if connection is None else VERSION_NAMES[connection.version],
            connected_at=None if connection is None else self._wall(connection.connected_at),
            subscriptions=len(session.subscriptions),
            queued=session.queued,
            inflight=len(session.inflight) + len(session.released),
            session_ends_at=None if session.expiry is None else self._wall(session.expiry.at),
        )

    def _link_of(self, session: Session) -> Link | None:
        return None if session.outbox is None else self._links.get(session.outbox.number)

    # ------------------------------------------------------------------ retained messages

    async def retained(self, topic_filter: str, cursor: str = "", limit: int = 100) -> Page[RetainedEntry]:
        """The retained messages that a filter matches, from the cursor on: `limit` of them, `MAX_PAGE` at most.

        Raises `TopicFilterInvalid`.
        """
        found: dict[str, Message] = {}

        def slices() -> Iterable[list[str]]:
            search = self._core.router.retained.search(_checked(topic_filter))
            while len(search):
                some = {message.topic.decode(): message for message in search.take(SLICE)}
                found.update(some)
                yield list(some)

        names, next_cursor = await _lowest(slices(), cursor, limit)
        entries = [
            RetainedEntry(
                topic=name,
                message_id=found[name].number or None,
                published_at=_published_at(found[name]),
                qos=found[name].qos,
                payload_bytes=len(found[name].payload),
            )
            for name in names
        ]
        return Page(entries, next_cursor)

    async def remove_retained(self, topic_filter: str, *, dry_run: bool) -> Removal:
        """Remove the retained messages that a filter matches, `MAX_REMOVED` at most; a dry run only counts them.

        Subscribers get the empty message with which a client would remove them. Raises `TopicFilterInvalid`.
        """
        search = self._core.router.retained.search(_checked(topic_filter))
        removed = 0
        while len(search):
            for message in search.take(min(REMOVE_SLICE, MAX_REMOVED - removed)):
                removed += 1
                if not dry_run:
                    self._core.publish(message.topic, b"", 0, True, self._now())
            if not dry_run:
                self._run()
            if removed >= MAX_REMOVED:
                break
            await asyncio.sleep(0)
        return Removal(removed, not len(search))

    # ------------------------------------------------------------------ delayed messages

    def delayed(self, cursor: str = "", limit: int = 100) -> Page[DelayedEntry]:
        """The delayed messages in the order of their numbers, from the cursor on: `limit` of them, `MAX_PAGE` at most.

        Raises `ValueError` for a cursor that is no number.
        """
        limit = max(1, min(limit, MAX_PAGE))
        found = self._core.delayed.page(int(cursor or 0), limit + 1)
        entries = [
            DelayedEntry(
                number=each.number,
                message_id=each.message.number or None,
                published_at=_published_at(each.message),
                topic=each.message.topic.decode(),
                due_at=self._wall(each.at),
                qos=each.message.qos,
                payload_bytes=len(each.message.payload),
            )
            for each in found[:limit]
        ]
        return Page(entries, str(found[limit].number) if len(found) > limit else "")

    def cancel_delayed(self, number: int) -> bool:
        """Drop a delayed message, which counts with the reason `purged`. False: there is none, or it is due."""
        cancelled = self._core.cancel_delayed(number, self._now())
        self._run()
        return cancelled


def _blocked_s(connection: Connection, now: float) -> float:
    """How long a socket took no bytes in all, what goes on included."""
    return connection.backpressure_s + (now - connection.blocked_at if connection.blocked_at else 0.0)


def _checked(topic_filter: str) -> bytes:
    """Raises `TopicFilterInvalid`."""
    checked = topic_filter.encode()
    check_filter(checked)
    return checked


async def _lowest(slices: Iterable[list[str]], cursor: str, limit: int) -> tuple[list[str], str]:
    """The lowest names that are at least the cursor, and the cursor of the next page."""
    limit = max(1, min(limit, MAX_PAGE))
    lowest: list[str] = []
    for names in slices:
        lowest = heapq.nsmallest(limit + 1, [*lowest, *(name for name in names if name >= cursor)])
        await asyncio.sleep(0)
    return lowest[:limit], lowest[limit] if len(lowest) > limit else ""


def _published_at(message: Message) -> datetime | None:
    return datetime.fromtimestamp(message.number / 1e6, UTC) if message.number else None
