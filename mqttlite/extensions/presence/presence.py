"""Publishes the presence of topics: subscribers, retained below `$SYS/broker/presence/`, and joins and leaves below
`$SYS/broker/presence_events/`.

Events of the hub only mark what to check; the published state is read from the core at the time of the check. So no
client that left stays in a list, and short visits are not published. Invariant: each client is reported at most once a
second for a topic, and an iteration of the event loop spends at most `SLICE_S` here.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Protocol

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.session.session import Session
from mqttlite.event_hub import Link, Listener
from mqttlite.extensions.presence.members import Member, Members, Subjects, Topic
from mqttlite.extensions.presence.topics import PRESENCE, PRESENCE_EVENTS
from mqttlite.telemetry.figures import Values
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.topics.retained import Search

LOOK_S: Final = 0.2
"""The delay after the first change, so that changes in that time are published together."""

QUIET_S: Final = 1.0
"""The least interval between two reports about the same client in a topic."""

SLICE_S: Final = 0.004
"""The most time for checks in one loop iteration, as in the publish queue."""

NAMED: Final = 200
"""The most client names in one message, some 20 KB. The counts include all clients."""

MAX_TOUCHED: Final = 100_000
"""The most subscriptions waiting for a check. If more change at once, some are checked immediately."""

SEARCHED: Final = 100
"""Topics to check in one step of a search."""

MAX_WAITING: Final = 1_000
"""With this many messages waiting to be published, topics wait."""

UNACCEPTED: Final = 0x80

_log = logging.getLogger("mqttlite")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A client that subscribes to the topic."""

    client_id: str
    user: str | None
    since: datetime


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The subscribers of a topic: `count` clients, of which `members` names the first `NAMED`."""

    topic: str
    count: int
    members: list[Person]
    at: datetime


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The clients that joined and left a topic since the latest event. Each list names up to `NAMED`; the counts
    include all."""

    topic: str
    count: int
    joined: list[Person]
    joined_count: int
    left: list[Person]
    left_count: int
    at: datetime


class Handle(Protocol):
    def cancel(self) -> None: ...


class TopicPresence(Listener):
    """`now` gives the broker's seconds and `wall` the UTC time of one of them."""

    def __init__(
        self,
        core: Broker,
        queue: PublishQueue,
        subjects: Subjects,
        now: Callable[[], float],
        wall: Callable[[float], datetime],
        *,
        call_later: Callable[[float, Callable[[], None]], Handle] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._core: Final = core
        self._queue: Final = queue
        self._now: Final = now
        self._wall: Final = wall
        self._call_later: Final[Callable[[float, Callable[[], None]], Handle]] = (
            asyncio.get_running_loop().call_later if call_later is None else call_later
        )
        self._clock: Final = clock
        self.members: Final = Members(subjects)
        self.events: int = 0
        """How many were published."""
        self._touched: Final[dict[tuple[str, bytes], None]] = {}
        """Subscriptions to look at, by client and filter."""
        self._clients: Final[dict[str, None]] = {}
        """Clients to look at, with all their filters."""
        self._filters: Final[list[bytes]] = []
        """Those of the first of them that are left."""
        self._sessions: list[Session] = []
        """Sessions whose clients are to be looked at, if they are connected."""
        self._changed_filters: Final[dict[bytes, None]] = {}
        """Filters whose topics are to be searched for."""
        self._searches: Final[deque[Search[Topic]]] = deque()
        self._changed: Final[dict[bytes, Topic]] = {}
        """Topics to tell about, by name."""
        self._waiting: Final[dict[bytes, Topic]] = {}
        """Topics to publish at the next check."""
        self._told: Final[dict[bytes, Topic]] = {}
        """Topics with clients that were reported in the last second."""
        self._timer: Handle | None = None
        self._is_looking = False
        self._was_full = False

    # ------------------------------------------------------------------ what happens

    def on_connected(self, link: Link) -> None:
        session = self._core.sessions.get(link.connection.client_id)
        if session is not None and session.subscriptions:
            self._clients[session.client_id] = None
            self._schedule()

    def on_closed(self, link: Link) -> None:
        if self.members.filters_of(link.connection.client_id):
            self._clients[link.connection.client_id] = None
            self._schedule()

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        if reason_code < UNACCEPTED and not existing:
            self._touch(connection, topic_filter)

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        self._touch(connection, topic_filter)

    def on_policies(self, subjects: Subjects) -> None:
        """Rules or policies changed, or are set for the first time: check everything."""
        self.members.use(subjects)
        self.members.add_named()
        self._sessions = self._core.sessions.values()
        self._changed.update((topic.name, topic) for topic in self.members.all_topics())
        self._schedule()

    def stop(self) -> None:
        """Stop to publish, because clients now leave only since the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = _Never()

    def figures(self) -> Mapping[str, Values]:
        """How much there is, by the names in the manifest."""
        members = self.members
        return {
            "presence_topics": members.topics,
            "presence_subscriptions": members.memberships,
            "presence_events": self.events,
            "presence_left_out": members.left_out,
        }

    def _touch(self, connection: int, topic_filter: bytes) -> None:
        found = self._core.connections.get(connection)
        if found is not None:
            if len(self._touched) >= MAX_TOUCHED:
                self._look_at_one()
            self._touched[(found.client_id, topic_filter)] = None
            self._schedule()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._call_later(LOOK_S, self._look)

    # ------------------------------------------------------------------ looking

    def _look(self) -> None:
        """Check for a slice of time, and schedule the rest."""
        self._timer = None
        if not self._is_looking:
            self._is_looking = True
            self._changed.update(self._waiting)
            self._waiting.clear()
            until = self._now() - QUIET_S
            for topic in [each for each in self._told.values() if each.forget_told(until)]:
                del self._told[topic.name]
        ends_at = self._clock() + SLICE_S
        while self._step():
            if self._clock() >= ends_at:
                self._timer = self._call_later(0.0, self._look)
                return
        self._is_looking = False
        if self._waiting or self._told:
            self._schedule()
        if self.members.left_out and not self._was_full:
            self._was_full = True
            _log.warning(
                "presence: a limit is reached, and some topics or clients are left out "
                "(mqttlite_presence_left_out_total counts them)"
            )

    def _step(self) -> bool:
        """Do one step: subscriptions first, then topics. False if there is nothing to do."""
        if self._touched:
            self._look_at_one()
        elif self._filters or self._clients:
            self._look_at_client()
        elif self._sessions:
            for session in self._sessions[-SEARCHED:]:
                if session.outbox is not None:
                    self._clients[session.client_id] = None
            del self._sessions[-SEARCHED:]
        elif self._changed_filters:
            topic_filter = next(iter(self._changed_filters))
            del self._changed_filters[topic_filter]
            self._searches.append(self.members.search(topic_filter))
        elif self._searches:
            search = self._searches[0]
            self._changed.update((topic.name, topic) for topic in search.take(SEARCHED))
            if not len(search):
                self._searches.popleft()
        elif self._changed:
            topic = self._changed.pop(next(iter(self._changed)))
            if len(self._queue) >= MAX_WAITING or not self._tell(topic):
                self._waiting[topic.name] = topic
        else:
            return False
        return True

    def _look_at_one(self) -> None:
        client_id, topic_filter = next(iter(self._touched))
        del self._touched[(client_id, topic_filter)]
        self._look_at(client_id, topic_filter)

    def _look_at_client(self) -> None:
        client_id = next(iter(self._clients))
        if not self._filters:
            session = self._core.sessions.get(client_id)
            self._filters.extend(self.members.filters_of(client_id))
            self._filters.extend(() if session is None else session.subscriptions)
        for topic_filter in self._filters[-SEARCHED:]:
            self._look_at(client_id, topic_filter)
        del self._filters[-SEARCHED:]
        if not self._filters:
            del self._clients[client_id]

    def _look_at(self, client_id: str, topic_filter: bytes) -> None:
        """Check whether a client now subscribes with a filter, and note the topics that may have changed."""
        session = self._core.sessions.get(client_id)
        subscribes = (
            session is not None
            and session.outbox is not None
            and not session.identity.is_trusted
            and topic_filter in session.subscriptions
            and self.members.is_relevant(topic_filter)
        )
        if subscribes == self.members.holds(client_id, topic_filter):
            return
        if subscribes:
            changed = self.members.add(client_id, topic_filter, self._now())
        else:
            changed = self.members.remove(client_id, topic_filter)
        if isinstance(changed, Topic):
            self._changed[changed.name] = changed
        elif changed is not None:
            self._changed_filters[changed] = None

    # ------------------------------------------------------------------ telling

    def _tell(self, topic: Topic) -> bool:
        """Publish the changes of a topic. False if it must wait."""
        if not self.members.is_here(topic):
            return True
        now = self._now()
        if not self.members.has_presence(topic):
            self._forget(topic)
            return True
        found = self.members.now_in(topic, self._member)
        if isinstance(found, int):
            is_done = self._tell_number(topic, found, now)
        elif topic.known is None:
            is_done = self._tell_names(topic, dict(found), now)
        else:
            is_done = self._tell_change(topic, topic.known, found, now)
        if topic.is_wanted:
            return is_done
        if is_done and not topic.told_at:
            self._forget(topic)
            return True
        return False

    def _forget(self, topic: Topic) -> None:
        self._queue.put(PRESENCE + topic.name, b"", retain=True)
        self.members.forget(topic)
        self._told.pop(topic.name, None)

    def _tell_number(self, topic: Topic, count: int, now: float) -> bool:
        """Publish the number for a topic with many clients."""
        if topic.known is None and count == topic.count:
            return True
        if topic.number_told_at and now < topic.number_told_at + QUIET_S:
            return False
        topic.told_at.clear()
        self._note_told(topic, None, count, now, [], [])
        return True

    def _tell_names(self, topic: Topic, members: dict[str, Member], now: float) -> bool:
        """Publish the names for a topic that had many clients and now has few."""
        if now < topic.number_told_at + QUIET_S:
            return False
        self._note_told(topic, members, len(members), now, [], [])
        return True

    def _tell_change(self, topic: Topic, known: dict[str, Member], members: Mapping[str, Member], now: float) -> bool:
        """Publish the joins and leaves of a topic whose clients are known by name, except clients that were reported
        lately."""
        told_at = topic.told_at
        topic.forget_told(now - QUIET_S)
        came = [each for client_id, each in members.items() if client_id not in known]
        gone = [each for client_id, each in known.items() if client_id not in members]
        joined = [each for each in came if each.client_id not in told_at]
        left = [each for each in gone if each.client_id not in told_at]
        if joined or left or not topic.is_told:
            for each in (*joined, *left):
                told_at[each.client_id] = now
            if told_at:
                self._told[topic.name] = topic
            names = {**known, **{each.client_id: each for each in joined}}
            for each in left:
                del names[each.client_id]
            self._note_told(topic, names, len(names), now, joined, left)
        return len(came) == len(joined) and len(gone) == len(left)

    def _note_told(
        self,
        topic: Topic,
        known: dict[str, Member] | None,
        count: int,
        now: float,
        joined: list[Member],
        left: list[Member],
    ) -> None:
        """Publish the snapshot of a topic and its changes: by name, or only as numbers."""
        grown = count - topic.count
        joined_count, left_count = len(joined), len(left)
        if not joined and not left:
            joined_count, left_count = max(0, grown), max(0, -grown)
        if known is None or topic.known is None:
            topic.number_told_at = now
        self.members.note_told(topic, known, count)
        if joined_count or left_count:
            self._publish_event(topic, (joined, joined_count), (left, left_count), now)
        first = sorted((known or {}).values(), key=lambda each: each.since)[:NAMED]
        snapshot = Snapshot(topic=_text(topic), count=count, members=self._people(first), at=self._wall(now))
        self._queue.put(PRESENCE + topic.name, msgspec.json.encode(snapshot), retain=True)

    def _publish_event(
        self, topic: Topic, joined: tuple[list[Member], int], left: tuple[list[Member], int], now: float
    ) -> None:
        name = PRESENCE_EVENTS + topic.name
        if not self._core.has_subscribers(name):
            return
        event = Event(
            topic=_text(topic),
            count=topic.count,
            joined=self._people(joined[0][:NAMED]),
            joined_count=joined[1],
            left=self._people(left[0][:NAMED]),
            left_count=left[1],
            at=self._wall(now),
        )
        self.events += 1
        self._queue.put(name, msgspec.json.encode(event))

    def _member(self, client_id: str, topic: bytes, since: float) -> Member | None:
        session = self._core.sessions.get(client_id)
        if session is None or session.outbox is None or not self._core.permissions.may_receive(session, topic):
            return None
        return Member(client_id, session.username, since)

    def _people(self, members: list[Member]) -> list[Person]:
        return [Person(client_id=each.client_id, user=each.username, since=self._wall(each.since)) for each in members]


class _Never:
    """A timer that does not come."""

    def cancel(self) -> None:
        """There is nothing to cancel."""


def _text(topic: Topic) -> str:
    return topic.name.decode(errors="replace")
