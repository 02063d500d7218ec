"""A node that drains, so that it can be stopped: it takes no new sessions, sends its clients away, and moves their
sessions to other nodes.

`Drain` decides what is done next, and says how far it is; `relocating` moves one session. What cannot move stays, and
is counted with the reason. Invariant: a session moves only while all nodes that may have messages for it are connected.
"""

import logging
import math
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CONNECTED, Connection
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.blobs import Adopted, Held, Load, Settled, Yours
from mqttlite.extensions.nodes.fences import Fences, Other
from mqttlite.extensions.nodes.places import Feature
from mqttlite.extensions.nodes.relocating import Relocation
from mqttlite.net.loop_driver import LoopDriver

KNOWS_DRAIN: Final = 1
"""The `minor` from which on a node takes sessions in, and answers fences."""

MAX_RELOCATIONS: Final = 50
"""How many sessions move at a time. Others wait."""

AWAY_AT_ONCE: Final = 50
"""So few clients may always be sent away at once, several times a second."""

PATIENCE_S: Final = 10.0
"""How long a client with messages of QoS 2 under way is not sent away, so that they end."""

AGAIN_S: Final = 5.0
"""When a session is tried again that could not be moved."""

GONE_S: Final = 10.0
"""How long it is told where a session has gone. A question that was asked before it went is answered in less."""

MAX_NAMED: Final = 100
"""How many queues and streams are named."""

QOS2: Final = "has messages of QoS 2 under way: its client ends them when it connects"
COMING: Final = "is on its way here"
CUT_OFF: Final = "was on its way here when the node that had it went away"
STREAM: Final = "reads a stream"
WILL: Final = "has a will that waits for its time"

DrainStep = Literal["", "draining", "drained"]

_log = logging.getLogger("mqttlite.nodes")


class Left(msgspec.Struct, frozen=True):
    """Sessions that stay here, and why, as the end of a sentence."""

    sessions: int
    reason: str


class DrainState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a node is."""

    node: str
    step: DrainStep
    """`draining`, `drained`: it can be stopped; empty: it takes sessions."""
    clients: int
    """Clients that are connected here."""
    sessions: int
    """Kept sessions that are here."""
    moved: int
    """Sessions that went to other nodes since it began to drain."""
    waiting: int
    """Messages of QoS 1 and 2 for other nodes that they have not acknowledged."""
    waits_for: str
    """Why no session moves now, as a sentence; empty if they do."""
    left: list[Left]
    """Sessions that do not move."""
    stays: list[str]
    """Queues and streams that are here, up to a hundred: nobody gets messages of them while this node is stopped."""


class Target(Other, Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def waiting(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def drain(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def load(self) -> Load: ...


class Coming(Protocol):
    """The part of `Adopting` that is used here."""

    @property
    def coming(self) -> int: ...
    @property
    def cut_off(self) -> int: ...
    def has(self, client_id: str) -> bool: ...


class _Given(NamedTuple):
    """Which node has a session, and the number of the move."""

    node: str
    attempt: int


class Gone(NamedTuple):
    """Where a session has gone, or a client to begin one."""

    node: str
    connected_us: int
    until: float


class Drain:
    """`peers` are all other nodes by name. `deadline_s` is the time in which all clients are sent away, if they are
    many. `adopting` knows which sessions are on their way here. `on_free` is called with a client whose session does
    not move any more, `on_begin` when it begins to drain, and `move_rest` has moved what is left of a session."""

    def __init__(
        self,
        me: str,
        peers: Mapping[str, Target],
        features: Sequence[Feature],
        core: Broker,
        driver: LoopDriver,
        fences: Fences,
        deadline_s: float,
        adopting: Callable[[], Coming],
        on_free: Callable[[str], None],
        on_begin: Callable[[], None],
        move_rest: Callable[[str, str], None],
    ) -> None:
        self._me: Final = me
        self._peers: Final = peers
        self._features: Final = features
        self._core: Final = core
        self._driver: Final = driver
        self._fences: Final = fences
        self._deadline_s: Final = deadline_s
        self._adopting: Final = adopting
        self._on_free: Final = on_free
        self._on_begin: Final = on_begin
        self._move_rest: Final = move_rest
        self.is_on: bool = False
        self._begun_at = 0.0
        self.moved: int = 0
        """How many sessions went to other nodes since the start."""
        self._moved_before = 0
        """How many of them before it began to drain."""
        self._turn = 0
        self._todo: Final[deque[str]] = deque()
        self._looked_at = 0.0
        """When it was last looked for sessions that are still here."""
        self._relocations: Final[dict[str, Relocation]] = {}
        self._latest_attempt = 0
        self._not_before: Final[dict[str, float]] = {}
        """By client identifier: when a session is tried again that could not be moved."""
        self._refused: Final[dict[str, str]] = {}
        """By client identifier: why the session stays."""
        self._gone: Final[dict[str, Gone]] = {}
        self._given: Final[dict[str, _Given]] = {}
        """By client identifier: who has the session, of which something is still here."""

    # ------------------------------------------------------------------ on and off

    def begin(self) -> None:
        """Drain. Harmless when it does already."""
        if not self.is_on:
            self.is_on = True
            self._begun_at = self._driver.time()
            self._moved_before = self.moved
            self._looked_at = 0.0
            self._core.locate_unnamed(True)
            _log.warning("this node drains: it takes no new sessions, and its sessions go to other nodes")
            self._on_begin()

    def end(self) -> None:
        """Take sessions again. Those that went away stay where they are."""
        if self.is_on:
            self.is_on = False
            self._core.locate_unnamed(False)
            self._todo.clear()
            self._refused.clear()
            self._not_before.clear()
            for each in [each for each in self._relocations.values() if not each.is_given]:
                each.stop("it was told to take sessions again")
            self._refused.clear()
            _log.warning("this node takes sessions again")

    @property
    def step(self) -> DrainStep:
        if not self.is_on:
            return ""
        is_moving = self._relocations or self._given or self._movable() or self._adopting().coming
        is_done = not (is_moving or self._clients())
        return "drained" if is_done and not self._waiting() else "draining"

    @property
    def not_ready(self) -> str:
        """Why no clients may come, in words; empty if they may."""
        return "this node drains: clients go to other nodes" if self.is_on else ""

    def state(self) -> DrainState:
        """How far it is."""
        left = Counter(self._refused.values())
        if self.is_on:
            left += Counter({COMING: self._adopting().coming, CUT_OFF: self._adopting().cut_off})
        stays = [
            f"{feature.first_level.decode()}/{name}" for feature in self._features for name in sorted(feature.made())
        ]
        return DrainState(
            node=self._me,
            step=self.step,
            clients=len(self._clients()),
            sessions=sum(1 for each in self._core.sessions.values() if each.durable and not each.identity.is_trusted),
            moved=self.moved - self._moved_before,
            waiting=self._waiting(),
            waits_for=self._obstacle() if self.is_on else "",
            left=[Left(sessions, reason) for reason, sessions in left.most_common()],
            stays=stays[:MAX_NAMED],
        )

    def _waiting(self) -> int:
        return sum(each.waiting for each in self._peers.values())

    def _now_us(self) -> int:
        return self._as_us(self._driver.time())

    def _as_us(self, at: float) -> int:
        return self._core.effects.numbers.ahead_us + int(at * MICROSECONDS) if at else 0

    def _clients(self) -> list[Connection]:
        return [
            each
            for each in self._core.connections.values()
            if each.state == CONNECTED and not each.identity.is_trusted and each.session is not None
        ]

    def _movable(self) -> bool:
        """Whether sessions are to be moved, at once or when they are tried again."""
        return any(
            self._is_own(each) and (each.client_id not in self._refused or each.client_id in self._not_before)
            for each in self._core.sessions.values()
        )

    def _is_own(self, session: Session) -> bool:
        """Whether it is a kept one, and whole."""
        return session.durable and not session.identity.is_trusted and not self._adopting().has(session.client_id)

    # ------------------------------------------------------------------ where to

    def _obstacle(self) -> str:
        """Why no session can move now, as a sentence."""
        for name, peer in sorted(self._peers.items()):
            if not peer.is_connected and not peer.is_lost:
                return f"Node {name} is away, and may have messages for sessions that are here."
            if peer.is_connected and peer.minor < KNOWS_DRAIN:
                return f"Node {name} runs an older version, which cannot take part in this."
        return "" if self._targets() else "No other node takes sessions."

    def _targets(self) -> list[Target]:
        return [
            each
            for _name, each in sorted(self._peers.items())
            if each.is_connected and not each.drain and each.minor >= KNOWS_DRAIN
        ]

    def target(self) -> Target | None:
        """The node that is next to take a session; None if there is none."""
        targets = self._targets()
        self._turn += 1
        return targets[self._turn % len(targets)] if targets else None

    def address_with_room(self) -> str:
        """Where new clients find the node with the fewest clients, of those that have room; empty: there is none, or
        it has no address."""
        targets = [each for each in self._targets() if each.address and not each.load.is_full]
        return min(targets, key=lambda each: each.load.clients).address if targets else ""

    def gone(self, client_id: str) -> Gone | None:
        """Where the session of a client has gone a short time ago."""
        gone = self._gone.get(client_id)
        peer = None if gone is None else self._peers.get(gone.node)
        return gone if peer is not None and peer.is_connected else None

    def send_on(self, client_id: str, node: str) -> None:
        """A client goes to another node, to begin a session there."""
        self._note_gone(client_id, node, sys.maxsize)

    def _note_gone(self, client_id: str, node: str, connected_us: int) -> None:
        self._gone[client_id] = Gone(node, connected_us, self._driver.time() + GONE_S)

    # ------------------------------------------------------------------ sessions

    def moves(self, client_id: str) -> bool:
        """Whether the session of a client is moving, and not the other node's yet."""
        relocation = self._relocations.get(client_id)
        return relocation is not None and not relocation.is_given

    def has_given(self, client_id: str) -> bool:
        """Whether the session of a client is another node's, and what is left of it here goes there."""
        return client_id in self._given

    def hurry(self, client_id: str) -> bool:
        """The client wants to connect: move its session now. False if it cannot be moved."""
        session = self._core.sessions.get(client_id)
        if session is None or self._obstacle() or self._driver.time() < self._not_before.get(client_id, 0.0):
            return False
        return self._begin_one(session)

    def tick(self) -> None:
        """Called several times a second."""
        now = self._driver.time()
        for client_id, gone in list(self._gone.items()):
            if now >= gone.until:
                del self._gone[client_id]
        for client_id in [each for each in self._given if self._core.sessions.get(each) is None]:
            del self._given[client_id]
        for client_id in [each for each in self._not_before if self._core.sessions.get(each) is None]:
            del self._not_before[client_id]
            self._refused.pop(client_id, None)
        if not self.is_on:
            return
        self._send_away(now)
        if now - self._looked_at >= AGAIN_S / 5 and not self._todo:
            self._looked_at = now
            for client_id in [each for each in self._refused if each not in self._not_before]:
                del self._refused[client_id]
            self._todo.extend(
                each.client_id
                for each in self._core.sessions.values()
                if self._is_own(each) and each.client_id not in self._given
            )
        self._go_on()

    def _send_away(self, now: float) -> None:
        """Disconnect some clients. They find another node, or are passed on to it."""
        clients = [each for each in self._clients() if not self._is_busy(each, now)]
        steps_left = max(1.0, (self._begun_at + self._deadline_s - now) * 4)
        target = self.target()
        if target is None or self._obstacle():
            return
        for connection in clients[: max(AWAY_AT_ONCE, math.ceil(len(clients) / steps_left))]:
            self._core.send_away(connection, target.address, now)
        self._driver.wake()

    def _is_busy(self, connection: Connection, now: float) -> bool:
        session = connection.session
        assert session is not None, "it is connected"
        since = max(self._begun_at, session.connected_at)
        return session.durable and now - since < PATIENCE_S and _has_qos2(session)

    def _go_on(self) -> None:
        """Begin to move what can move."""
        now = self._driver.time()
        while self.is_on and self._todo and len(self._relocations) < MAX_RELOCATIONS:
            if self._obstacle():
                return
            client_id = self._todo.popleft()
            session = self._core.sessions.get(client_id)
            if session is None or session.outbox is not None or client_id in self._relocations:
                continue
            if now >= self._not_before.get(client_id, 0.0):
                self._begin_one(session)

    def _begin_one(self, session: Session) -> bool:
        client_id = session.client_id
        if client_id in self._relocations:
            return True
        if session.outbox is not None or session.identity.is_trusted or self._adopting().has(client_id):
            return False
        self._not_before.pop(client_id, None)
        why = self._why_it_stays(session)
        target = self.target()
        if why or target is None:
            if why:
                self._refused[client_id] = why
            return False
        self._refused.pop(client_id, None)
        self._latest_attempt = max(self._latest_attempt + 1, self._now_us())  # greater than before the start, too
        self._relocations[client_id] = Relocation(
            *(session, self._latest_attempt, target, self._core, self._driver, self._fences),
            on_given=self._on_given,
            on_done=self._on_done,
        )
        return True

    def _why_it_stays(self, session: Session) -> str:
        if _has_qos2(session):
            return QOS2
        if session.will is not None:
            return WILL
        for each in session.subscriptions.values():
            if each.share_name == b"" and each.topic_filter.startswith(b"$stream/"):
                return STREAM
        return ""

    def _on_given(self, relocation: Relocation) -> None:
        """A session is another node's."""
        client_id = relocation.client_id
        self._given[client_id] = _Given(relocation.to.name, relocation.attempt)
        now_us = self._now_us()
        self._note_gone(client_id, relocation.to.name, now_us)
        relocation.to.note(Yours(client_id, now_us, relocation.attempt))
        self.moved += 1
        self._on_free(client_id)

    def _on_done(self, relocation: Relocation, why: str) -> None:
        client_id = relocation.client_id
        del self._relocations[client_id]
        if why and relocation.is_given:
            self._move_rest(client_id, relocation.to.name)
        elif why:
            _log.warning("the session of client %r stays here: node %s: %s", client_id, relocation.to.name, why)
            self._refused[client_id] = f"could not be moved: {why}"
            self._not_before[client_id] = self._driver.time() + AGAIN_S
        else:
            self._given.pop(client_id, None)
        if not (relocation.is_given or relocation.is_refused):
            self._take_back(relocation)
        self._on_free(client_id)
        self._go_on()

    def _take_back(self, relocation: Relocation) -> None:
        """The session stays here, or has ended here: what has gone to a node comes back, or ends as well."""
        session = self._core.sessions.get(relocation.client_id)
        connected_us = self._now_us() if session is None else self._as_us(session.connected_at)
        relocation.to.note(Held(self._me, relocation.client_id, relocation.username, connected_us))

    # ------------------------------------------------------------------ what other nodes say

    def on_adopted(self, peer: Other, adopted: Adopted) -> None:
        """A node has taken a session in, or not."""
        relocation = self._relocations.get(adopted.client_id)
        if relocation is not None and relocation.to is peer:
            relocation.on_adopted(adopted)

    def on_settled(self, settled: Settled) -> bool:
        """A node has a message. False if it is not of a session that moves."""
        relocation = self._relocations.get(settled.client_id)
        if relocation is not None:
            relocation.on_settled(settled)
        return relocation is not None

    def on_orphan(self, peer: Other, client_id: str) -> bool:
        """A node asks for the newer session of a client that has moved there. False if it has not."""
        given = self._given.get(client_id)
        if given is None or given.node != peer.name:
            return False
        peer.note(Yours(client_id, self._now_us(), given.attempt))
        return True

    def on_connected(self, peer: Other) -> None:
        """A node is connected again: it may not have heard that a session is its own."""
        for client_id in [client_id for client_id, given in self._given.items() if given.node == peer.name]:
            self.on_orphan(peer, client_id)

    def on_away(self, name: str) -> None:
        """A node is not connected any more."""
        for each in [each for each in self._relocations.values() if each.to.name == name]:
            each.stop("it is away")


def _has_qos2(session: Session) -> bool:
    """Whether it has messages of QoS 2 of which the client may have seen a part of the exchange."""
    window = session.window
    return (
        len(session.received) > 0
        or len(window.released) > 0
        or any(each.qos == 2 for each in window.resend.values())
        or any(each.qos == 2 for each in window.inflight.by_id().values())
    )
