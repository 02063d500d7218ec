"""Where queues and streams are: each is at one node, the one where it was made, and all nodes use it.

Each node tells the others which it has, beside its topic filters. If two nodes have made one of the same name, because
they were apart or have the same configuration, the older one stays, and the other node gives its own up: a queue with
its messages, a stream if it is empty. Invariant: while all nodes are connected, they agree on the node of each name.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.outlook import PlannedReceiver
from mqttlite.core.route.relayed import numbers_of
from mqttlite.core.route.routes import MAX_QOS
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX, send_to_node
from mqttlite.extensions.nodes.shares import is_share
from mqttlite.extensions.simple_sink import SimpleSink

GONE: Final = -1
"""In place of what is told of a name: it is there no longer."""

KEPT: Final = b"$place/"
"""How the topic filters begin by which a node remembers what others have. What clients publish to such a topic goes to
that node, and there to nobody."""

FORMER: Final = b"/$former/"
"""Behind such a name, a topic filter follows of what was here under this name."""

MAX_PLACES: Final = 20_000
"""The most queues and streams of another node that are known here. Further ones are that node's alone."""

ROOM: Final = 1_000
"""How many messages may wait for a node when a queue moves more to it."""

_log = logging.getLogger("mqttlite.nodes")


class Feature(Protocol):
    """Queues, or streams. Each has a name, the second level of its topics."""

    elsewhere: Callable[[str], str]
    """The node that has one of a name; empty if no other one has."""

    @property
    def first_level(self) -> bytes: ...
    @property
    def on_changed(self) -> list[Callable[[str], None]]:
        """Each is called when one was made or deleted."""
        ...

    def made(self) -> Mapping[str, tuple[int, bool]]:
        """Those that are here to stay: when each was made, in microseconds of Unix time, and whether its consumers get
        only messages whose topics they may receive."""
        ...

    def filters(self, name: str) -> Iterable[str]:
        """The topic filters of one."""
        ...

    def leave(self, name: str) -> bool:
        """Begin to give one up. False if it cannot move."""
        ...

    def stay(self, name: str) -> None:
        """Do not give it up."""
        ...

    def hand_out(self, name: str, may: Callable[[Message], bool], give: Callable[[Message], None]) -> bool:
        """Hand out messages of one that is given up: `may` says whether there is room for one, and `give` takes it.
        Return whether it is gone."""
        ...


class Place:
    """What a node has told of a name."""

    __slots__ = ("checks_topics", "made_us", "node")

    def __init__(self, made_us: int, checks_topics: bool, node: str) -> None:
        self.made_us: Final = made_us
        self.checks_topics: Final = checks_topics
        self.node: Final = node

    def is_before(self, other: "Place") -> bool:
        """Whether this one stays if there are both."""
        return (self.made_us, self.node) < (other.made_us, other.node)


def is_place(name: bytes) -> bool:
    """Whether news are of a queue or stream."""
    return name.startswith(b"$") and not is_share(name)


class Former(SimpleSink):
    """A `Sink`: takes what other nodes still send for a queue or stream that was here, and passes it on. `session`
    finds the session for the node that has it now."""

    def __init__(self, name: bytes, filters: Iterable[bytes], session: Callable[[bytes], Session | None]) -> None:
        self.filters: Final = tuple(filters)
        self._name: Final = name
        self._session: Final = session

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        return []

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        if not source.identity.is_relay:
            return  # what is published here goes the way of all messages
        session = self._session(self._name)
        if session is None:
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        send_to_node(session, message, numbers_of(self._name), tally)


class Places:
    """`me` is this node. `on_moved` is called with a name (`$queue/<name>`) whose node has changed, and `on_news` when
    there is something to tell."""

    def __init__(
        self,
        me: str,
        features: Iterable[Feature],
        core: Broker,
        on_news: Callable[[], None],
        on_moved: Callable[[bytes], None],
    ) -> None:
        self._me: Final = me
        self._features: Final = {each.first_level: each for each in features}
        self._core: Final = core
        self._on_news: Final = on_news
        self._on_moved: Final = on_moved
        self._here: Final[dict[bytes, Place]] = {}
        self._there: Final[dict[str, dict[bytes, Place]]] = {}
        """By node."""
        self._far: Final[dict[bytes, Place]] = {}
        """Those that are at other nodes, and not here."""
        self._unconfirmed: Final[dict[str, set[bytes]]] = {}
        """By node: what it has told on an earlier connection, and not yet on this one."""
        self._leaving: Final[set[bytes]] = set()
        """Those that move to another node."""
        self._restored: dict[bytes, dict[bytes, None]] = {}
        """The filters of those that had moved before this node was started: the sessions of two nodes may have them."""
        self._former: Final[dict[bytes, Former]] = {}
        """What takes the messages for those that moved."""
        self._stuck: Final[set[bytes]] = set()
        """Those that are here and at another node, and cannot move."""
        self._news: dict[bytes, int] = {}
        for level, feature in self._features.items():
            feature.on_changed.append(partial(self._on_changed, level))
            feature.elsewhere = partial(self._elsewhere, level)
            for name, made in feature.made().items():
                self._here[level + b"/" + name.encode()] = Place(made[0], made[1], me)
        self._restore()

    @property
    def first_levels(self) -> Iterable[bytes]:
        """Of the names, as `$queue`."""
        return self._features.keys()

    def has(self, name: bytes) -> bool:
        """Whether a queue or stream is here."""
        return name in self._here

    def of(self, name: bytes) -> Place | None:
        """The other node that has a queue or stream; None if this one has it, or nobody."""
        return self._far.get(name)

    # ------------------------------------------------------------------ what is here

    def _on_changed(self, level: bytes, name: str) -> None:
        """One was made here, deleted, or begins to leave."""
        full = level + b"/" + name.encode()
        made = self._features[level].made().get(name)
        before = self._here.pop(full, None)
        if made is not None:
            place = self._here[full] = Place(made[0], made[1], self._me)
            self._news[full] = _told(place)
        elif before is not None:
            self._news[full] = GONE
        if self._news:
            self._on_news()
        self._settle(full)
        if before is None and made is not None and full not in self._far:
            self._on_moved(full)

    def _elsewhere(self, level: bytes, name: str) -> str:
        place = self._far.get(level + b"/" + name.encode())
        return "" if place is None else place.node

    def take(self) -> dict[bytes, int]:
        """What has changed here since it was taken, for all other nodes."""
        news, self._news = self._news, {}
        return news

    def current(self) -> list[tuple[bytes, int]]:
        """All that is here."""
        return [(name, _told(place)) for name, place in self._here.items()]

    # ------------------------------------------------------------------ what is at other nodes

    def on_connected(self, node: str) -> None:
        """A node is connected, and will tell all that it has."""
        self._unconfirmed[node] = set(self._there.get(node, ()))

    def on_told(self, node: str, told: Mapping[bytes, int], is_whole: bool) -> dict[bytes, int]:
        """What a node has told: with `is_whole`, all that it has. Return what its session here subscribes to,
        so that it is known after a restart, or no longer: topic filters with a QoS or `GONE`."""
        there = self._there.setdefault(node, {})
        unconfirmed = self._unconfirmed.get(node, set())
        for name, made in told.items():
            unconfirmed.discard(name)
            is_known = name.partition(b"/")[0] in self._features  # else this node has no such feature
            if made == GONE:
                there.pop(name, None)
            elif is_known and (name in there or len(there) < MAX_PLACES):
                there[name] = Place(made >> 1, made & 1 > 0, node)
            self._settle(name)
        if is_whole:
            for name in unconfirmed:
                there.pop(name, None)
                self._settle(name)
            unconfirmed.clear()
        return {each: made for name in told for each, made in self._kept(node, name).items()}

    def _kept(self, node: str, name: bytes) -> dict[bytes, int]:
        place, former = self._far.get(name), self._former.get(name)
        is_there = place is not None and place.node == node
        kept = {KEPT + name: int(place.checks_topics) if place is not None and is_there else GONE}
        for topic_filter in () if former is None else former.filters:
            kept[KEPT + name + FORMER + topic_filter] = 0 if is_there else GONE
        return kept

    def _restore(self) -> None:
        """What other nodes had before this one was started. Those that are here were just made."""
        for session in self._core.sessions.values():
            node = session.client_id.removeprefix(CLIENT_ID_PREFIX)
            if node == session.client_id or not session.identity.is_trusted:
                continue
            for topic_filter, subscription in session.subscriptions.items():
                if topic_filter.startswith(KEPT):
                    name, is_former, bound = topic_filter.removeprefix(KEPT).partition(FORMER)
                    if is_former:
                        self._restored.setdefault(name, {})[bound] = None
                    else:
                        self._there.setdefault(node, {})[name] = Place(0, subscription.qos > 0, node)

    def begin(self) -> None:
        """Give up what was made at this start and is at another node."""
        for there in list(self._there.values()):
            for name in list(there):
                self._settle(name)
        restored, self._restored = self._restored, {}
        for name, filters in restored.items():
            if name in self._far:
                self._begin_former(name, filters)

    def _settle(self, name: bytes) -> None:
        """Find the node that has a queue or stream. Give up one that is here and newer."""
        far: Place | None = None
        for there in self._there.values():
            found = there.get(name)
            if found is not None and (far is None or found.is_before(far)):
                far = found
        here = self._here.get(name)
        if far is not None and here is not None:
            if far.is_before(here):
                self._give_up(name, far.node)
            if name in self._here:
                far = None
        if far is None:
            self._stuck.discard(name)
            before = self._far.pop(name, None)
            self._come_back(name)
        else:
            before = self._far.get(name)
            self._far[name] = far
        if (None if before is None else before.node) != (None if far is None else far.node):
            self._on_moved(name)
        if name in self._leaving:
            self._move(name)

    # ------------------------------------------------------------------ one that is here and elsewhere

    def _give_up(self, name: bytes, node: str) -> None:
        level, _, rest = name.partition(b"/")
        feature = self._features[level]
        filters = [each.encode() for each in feature.filters(rest.decode())]
        if feature.leave(rest.decode()):
            _log.info("%s is also at node %s, where it is older: what is in it moves there", name.decode(), node)
            self._leaving.add(name)
            self._begin_former(name, filters)
        elif name not in self._stuck:
            self._stuck.add(name)
            _log.error("%s cannot move: each node uses its own one, until one of the two is deleted", name.decode())

    def _come_back(self, name: bytes) -> None:
        """No other node has it any more: what has not moved stays."""
        self._end_former(name)
        if name in self._leaving:
            self._leaving.discard(name)
            level, _, rest = name.partition(b"/")
            self._features[level].stay(rest.decode())

    def _end_former(self, name: bytes) -> None:
        former = self._former.pop(name, None)
        if former is not None:
            for topic_filter in former.filters:
                self._core.unbind(topic_filter, former)
            self._core.unname(name, former)

    def _begin_former(self, name: bytes, filters: Iterable[bytes]) -> None:
        self._end_former(name)
        former = self._former[name] = Former(name, filters, self._session_for)
        for topic_filter in former.filters:
            self._core.bind(topic_filter, former, hears_others=True, tells_others=False)
        self._core.name(name, former)

    def _session_for(self, name: bytes) -> Session | None:
        """The session for the node that has it."""
        place = self._far.get(name)
        return None if place is None else self._core.sessions.get(CLIENT_ID_PREFIX + place.node)

    def _move(self, name: bytes) -> None:
        """Move some messages."""
        level, _, rest = name.partition(b"/")
        session = self._session_for(name)
        if session is not None:
            to = session

            def may(message: Message) -> bool:
                return len(to.queue) < ROOM and to.has_room(message, MAX_QOS)

            def give(message: Message) -> None:
                to.deliver(Delivery(message, MAX_QOS, False, numbers_of(name)))

            if self._features[level].hand_out(rest.decode(), may, give):
                self._leaving.discard(name)

    def forget(self, node: str) -> None:
        """A node is lost, with all that it had."""
        for name in self._there.pop(node, {}):
            self._settle(name)

    def tick(self) -> bool:
        """Called several times a second: go on with what moves. Return whether there was something."""
        for node in [node for node in self._there if self._core.sessions.get(CLIENT_ID_PREFIX + node) is None]:
            self.forget(node)
        moving = list(self._leaving)
        for name in moving:
            self._move(name)
        return len(moving) > 0


def _told(place: Place) -> int:
    return place.made_us << 1 | place.checks_topics
