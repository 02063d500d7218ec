"""An operator's actions on clients and their sessions: list, show, disconnect, ban, end, purge.

`admin_messages` has the actions on retained and delayed messages. HTTP routes and commands use both. Invariant: a call
works in slices that do not block the loop, and its answer has a bounded size; a page's cursor is a name, so that no
state is kept between calls.
"""

import asyncio
import base64
import codecs
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection
from mqttlite.core.message import Delivery
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.event_hub import Link, Listener
from mqttlite.operations.admin_entries import (
    BanEntry,
    ClientDetails,
    ClientEntry,
    DelayedEntry,
    Page,
    QueuedMessage,
    QueuePeek,
    Removal,
    RetainedEntry,
    RetainedMessage,
    SubscriptionEntry,
)
from mqttlite.operations.admin_messages import MAX_PAGE, SLICE, MessageAdmin, published_at
from mqttlite.operations.bans import Ban, BanKind, Bans, address_of
from mqttlite.operations.session_index import SessionIndex
from mqttlite.operations.shared_bans import SharedBans
from mqttlite.wire.constants import NEVER_EXPIRES, VERSION_NAMES

MAX_SCANNED: Final = 20_000
"""Sessions examined for one page. If few match, a page may be empty although another one follows."""

MAX_SUBSCRIPTIONS: Final = 1_000
"""The most subscriptions in the details of a client: a session may have 100,000."""

MAX_PEEK_BYTES: Final = 1_048_576
"""The most bytes of topics and payloads that a peek copies: about a millisecond."""

MAX_PURGED: Final = 100_000
"""The most queued messages that one call drops: about a second next to other work."""

__all__ = [
    "MAX_PAGE",
    "Admin",
    "BanEntry",
    "ClientDetails",
    "ClientEntry",
    "DelayedEntry",
    "Page",
    "QueuePeek",
    "QueuedMessage",
    "Removal",
    "RetainedEntry",
    "RetainedMessage",
    "SubscriptionEntry",
]


class Admin(MessageAdmin, Listener):
    """`links` are the open connections by number, `run` carries out the effects of the core, `now` returns the broker's
    seconds and `wall` converts them to UTC. `read(client_id, first, count)` reads messages of a session's queue that
    are only in the store, from sequence `first` on."""

    def __init__(
        self,
        core: Broker,
        links: Mapping[int, Link],
        run: Callable[[], None],
        now: Callable[[], float],
        wall: Callable[[float], datetime],
        read: Callable[[str, int, int], Awaitable[list[Delivery | None]]],
        ban_file: Path | None = None,
    ) -> None:
        """`ban_file` keeps the bans of one of several nodes."""
        super().__init__(core, run, now, wall)
        self._links: Final = links
        self._read: Final = read
        self._index: Final = SessionIndex(core.sessions)
        self._by_user: Final[dict[str, dict[int, None]]] = {}
        """The numbers of each user's connections."""
        self.bans: Final = Bans(now)
        """The bans in force, to list; `ban` adds one, and `shared_bans` lifts them."""
        self.shared_bans: Final = SharedBans(self.bans, now, wall, self._enforce, ban_file)
        if len(self.bans):
            core.ban_by(self._ban_of)

    # ------------------------------------------------------------------ clients

    async def clients(
        self,
        cursor: str = "",
        limit: int = 100,
        contains: str = "",
        connected: bool | None = None,
        *,
        user: str | None = None,
        has_backlog: bool | None = None,
    ) -> Page[ClientEntry]:
        """Up to `limit` clients with a session, at most `MAX_PAGE`, from the cursor on.

        They can be filtered by a part of the identifier (`contains`), by `connected`, by `user`, and by waiting
        messages (`has_backlog`). A page examines at most `MAX_SCANNED` sessions, so it may have fewer entries although
        another page follows.
        """
        limit = max(1, min(limit, MAX_PAGE))
        names = await self._index.names()
        first = bisect_left(names, cursor)
        found: list[ClientEntry] = []
        for at in range(first, len(names)):
            if len(found) >= limit or at - first >= MAX_SCANNED:
                return Page(found, names[at])
            session = self._core.sessions.get(names[at])
            if (
                session is not None
                and contains in session.client_id
                and (connected is None or connected is (session.outbox is not None))
                and (user is None or user == session.username)
                and (has_backlog is None or has_backlog is (session.queued > 0))
            ):
                found.append(self._entry(session))
            if (at - first) % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        return Page(found, "")

    def connections_of(self, username: str) -> tuple[list[ClientEntry], int]:
        """Up to `MAX_PAGE` connected clients of a user, and how many there are."""
        numbers = self._by_user.get(username, {})
        sessions = [self._links[number].connection.session for number in islice(numbers, MAX_PAGE)]
        return [self._entry(session) for session in sessions if session is not None], len(numbers)

    def addresses_of(self, username: str, client_id: str | None) -> list[str]:
        """The addresses of up to `MAX_PAGE` connections of a user, or of its one with a client identifier."""
        links = [self._links[number] for number in islice(self._by_user.get(username, {}), MAX_PAGE)]
        return [
            link.address.rpartition(":")[0].strip("[]") or link.address
            for link in links
            if client_id is None or link.connection.client_id == client_id
        ]

    def on_connected(self, link: Link) -> None:
        username = link.connection.username
        if username is not None:
            self._by_user.setdefault(username, {})[link.connection.number] = None

    def on_closed(self, link: Link) -> None:
        username = link.connection.username
        numbers = None if username is None else self._by_user.get(username)
        if username is not None and numbers is not None:
            numbers.pop(link.connection.number, None)
            if not numbers:
                del self._by_user[username]

    def client(self, client_id: str) -> ClientDetails | None:
        """The details of one client; None if it has no session."""
        session = self._core.sessions.get(client_id)
        if session is None:
            return None
        link = self._link_of(session)
        proxied = None if link is None else link.proxied_tls
        connection = None if link is None else link.connection
        window = session.window
        outbox = session.outbox
        expiry = session.expiry_interval
        drops = dict(session.drops)
        for reason, messages in {} if outbox is None else outbox.drops.items():
            drops[reason] = drops.get(reason, 0) + messages
        subscriptions = [_subscription(each) for each in islice(session.subscriptions.values(), MAX_SUBSCRIPTIONS)]
        filtered = islice(session.subscriptions.values(), MAX_SUBSCRIPTIONS)
        return ClientDetails(
            entry=self._entry(session),
            session_expiry_s=None if expiry == NEVER_EXPIRES else expiry,
            keep_alive_s=None if link is None else link.connection.keep_alive_s,
            transport=None if link is None else link.transport,
            tls_version=None if link is None else link.tls_version,
            tls_cipher=None if link is None else link.tls_cipher,
            tls_ends_at_proxy=proxied is not None,
            proxied_certificate_name=None if proxied is None else proxied.certificate_name,
            proxied_certificate_verified=proxied is not None and proxied.is_verified,
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
            topic_filters={each.topic_filter: each.qos for each in subscriptions},
            message_filters={
                each.topic_filter.decode(errors="replace"): each.message_filter.expression
                for each in filtered
                if each.message_filter is not None
            },
            last_heard_at=None if link is None else self._wall(link.connection.last_heard),
            keeps=len(session.received),
            queue_stored=session.queue.stored,
            mount_point=session.identity.mount_point.decode(),
            subscriptions=subscriptions,
        )

    def kick(self, client_id: str) -> bool:
        """Close the client's connection (0x98); its session stays. False if it is not connected."""
        kicked = self._core.kick(client_id, self._now())
        self._run()
        return kicked

    def end_session(self, client_id: str) -> bool:
        """Close the client's connection (0x98) and end its session. False if it has none."""
        ended = self._core.end_session(client_id, self._now())
        self._run()
        return ended

    # ------------------------------------------------------------------ bans

    async def ban(
        self, kind: BanKind, value: str, duration_s: float, reason: str = "", by: str = ""
    ) -> tuple[Ban, int]:
        """Ban a client, a user or an address for `duration_s`; return the ban and how many connections it closed.

        With several nodes it holds at all of them. Raises `BanRefused`, `TooManyBans` and `NotAgreed`.
        """
        return await self.shared_bans.add(kind, value, duration_s, reason, by)

    async def _enforce(self, ban: Ban) -> int:
        """Keep somebody out from now on; return how many connections it closed."""
        self._core.ban_by(self._ban_of)
        if ban.kind == "client":
            return int(self.kick(ban.value))
        if ban.kind == "user":
            links = [self._links[number] for number in self._by_user.get(ban.value, {})]
        else:
            links = list(self._links.values())
        closed = 0
        for number, link in enumerate(links, 1):
            connection = link.connection
            if ban.kind == "user" or address_of(link.address) == ban.value:
                closed += self._core.kick(connection.client_id, self._now())
            if number % SLICE == 0:
                self._run()
                await asyncio.sleep(0)
        self._run()
        return closed

    def in_utc(self, ban: Ban) -> BanEntry:
        """The ban with its times in UTC."""
        return BanEntry(
            id=ban.number,
            kind=ban.kind,
            value=ban.value,
            since=self._wall(ban.since),
            until=self._wall(ban.until),
            reason=ban.reason,
            by=ban.by,
            alone=ban.is_alone,
        )

    def _ban_of(self, client_id: str, username: str | None, address: str) -> str:
        """Why a client may not connect or publish now; empty if it may."""
        if not len(self.bans):
            self._core.ban_by(None)
            return ""
        ban = self.bans.of(client_id, username, address)
        if ban is None:
            return ""
        left_s = max(1, round(ban.until - self._now()))
        why = f": {ban.reason}" if ban.reason else ""
        return f"the {ban.kind} is banned for {left_s} s{why}"

    # ------------------------------------------------------------------ queues

    async def peek_queue(self, client_id: str, limit: int = 10) -> QueuePeek | None:
        """The first messages that wait for a client and were never sent: up to `limit`, at most `MAX_PAGE`.

        Their topics and payloads have at most `MAX_PEEK_BYTES` together. None if the client has no session.
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
                    message_id=str(message.number) if message.number else None,
                    published_at=published_at(message),
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
        """Drop up to `MAX_PURGED` messages that wait for a client and were never sent. A dry run only counts them.

        Their publishers got an acknowledgement, so each message is counted as dropped, with the reason `purged`. Sent,
        unacknowledged messages stay. None if the client has no session.
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
            username=session.username,
            peer=None if link is None else link.address,
            listener=None if link is None else link.listener,
            protocol_version=None if connection is None else VERSION_NAMES[connection.version],
            connected_at=None if connection is None else self._wall(connection.connected_at),
            subscriptions=len(session.subscriptions),
            queued=session.queued,
            inflight=session.unacknowledged,
            session_ends_at=None if session.expiry is None else self._wall(session.expiry.at),
        )

    def _link_of(self, session: Session) -> Link | None:
        return None if session.outbox is None else self._links.get(session.outbox.number)


def _blocked_s(connection: Connection, now: float) -> float:
    """How many seconds in all the socket took no bytes, including the current block."""
    return connection.backpressure_s + (now - connection.blocked_at if connection.blocked_at else 0.0)


def payload_as_text(payload: bytes, *, is_cut: bool = False) -> tuple[str, Literal["utf-8", "base64"]]:
    """A payload, or its beginning, as text, or as base64 if it is not UTF-8; with the encoding."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(payload, final=not is_cut), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def _subscription(subscription: Subscription) -> SubscriptionEntry:
    return SubscriptionEntry(
        topic_filter=subscription.topic_filter.decode(errors="replace"),
        qos=subscription.qos,
        share=subscription.share_name.decode(errors="replace"),
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        identifier=subscription.identifier,
        subscribed_at=subscribed_at(subscription),
    )


def subscribed_at(subscription: Subscription) -> datetime | None:
    """When its client first subscribed to its filter, in UTC; None: not known."""
    return datetime.fromtimestamp(subscription.subscribed_at / 1e6, UTC) if subscription.subscribed_at else None
