"""Where the session of a client is: it stays at the node where it began, and a client that connects to another one is
passed on to it.

A node that has a CONNECT asks all nodes that run, and answers theirs. If nobody has the session, it begins here. Of two
nodes that ask about a client at the same time, the one whose question is the earlier one answers when its own is
answered, so that one session begins: mutual exclusion as in Ricart and Agrawala, "An Optimal Algorithm for Mutual
Exclusion in Computer Networks" (1981). Sessions of one client that began while nodes were apart are compared when they
meet: the newest one stays. Invariant: while all nodes are connected, a client has one session.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CLOSED, CONNECTED, Connection
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.question import Locate
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.adopting import Adopting
from mqttlite.extensions.nodes.blobs import (
    Adopt,
    Adopted,
    Ask,
    Begin,
    Filters,
    Forget,
    Held,
    Moved,
    Settled,
    Told,
    Yours,
)
from mqttlite.extensions.nodes.draining import Drain, Target
from mqttlite.extensions.nodes.moving import Moving
from mqttlite.extensions.nodes.passing import Passing
from mqttlite.extensions.nodes.pipes import Pipes
from mqttlite.net.local_session import waiting_in
from mqttlite.net.loop_driver import LoopDriver

HELD_AT_ONCE: Final = 5_000
"""Of how many sessions a node is told at once, several times a second."""

MEET_S: Final = 3.0
"""How long a client waits at most for a node that runs and is not connected."""

COMING: Final = -1
"""In place of when its client has last connected: a session that is not whole, so that any other one is the newer."""

_log = logging.getLogger("mqttlite.nodes")


class Asked(Target, Protocol):
    """The part of a `Peer` that is used here. `is_near` says that it runs, so that it is worth to wait for it."""

    @property
    def apart_since(self) -> float: ...
    def is_near(self, now: float, /) -> bool: ...


class _Holder(NamedTuple):
    """A node that may have the session of a client. Of several, the greatest one has the newest, which goes on."""

    holds: bool
    connected_us: int
    name: str
    username: str | None


class _Claim:
    """A question that waits for the answers of other nodes."""

    def __init__(self, question: Locate, stamp: int, since: float, waits_for: set[str]) -> None:
        self.question: Final = question
        self.since: Final = since
        self.stamp: Final = stamp
        self.waits_for: Final = waits_for
        self.asked: Final[set[str]] = set()
        """Those of them that have the question. The others get it when they are connected."""
        self.found: Final[list[_Holder]] = []
        self.later: Final[list[tuple[Asked, Ask]]] = []
        """Questions of other nodes that are answered after it."""


class Locating:
    """`peers` are all other nodes by name, `me` is the name of this one. `answer` answers a question of the core."""

    def __init__(
        self,
        me: str,
        peers: Mapping[str, Asked],
        core: Broker,
        driver: LoopDriver,
        answer: Callable[[int, bool], None],
        pipes: Pipes,
        drain: Drain,
    ) -> None:
        self._me: Final = me
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._answer: Final = answer
        self._claims: Final[dict[int, _Claim]] = {}
        self._claims_of: Final[dict[str, list[_Claim]]] = {}
        """The same by client identifier, the earliest one first."""
        self._latest_stamp = 0
        """Of all questions so far, of this node and of others."""
        self._promised: Final[dict[str, set[tuple[str, int]]]] = {}
        """By client identifier: the questions of other nodes, by node and number, that were answered with yes, and
        whose clients have not come yet."""
        self._coming: Final[dict[str, list[Connection]]] = {}
        """Connections that were told to begin a session here, and may not have yet."""
        self.passing: Final = Passing(core, driver, pipes)
        self._begun: Final[list[tuple[Connection, set[str]]]] = []
        """Connections that were told to begin a session here, with the nodes that were asked."""
        self._telling: Final[dict[str, Iterator[Held]]] = {}
        """By node: the sessions of which it is still to be told."""
        self._moving: Final = Moving(peers, core, driver, self._ask_for_newer)
        self._drain: Final = drain
        self.adopting: Final = Adopting(
            *(core, driver),
            on_orphan=self._ask_for_newer,
            on_held=self._on_held,
            may_begin=lambda client_id: not self._holder(client_id).holds,
        )
        self._deferred: Final[dict[str, list[tuple[Asked, Ask]]]] = {}
        """Questions about sessions that move, by client identifier."""
        self._is_leaving = False

    # ------------------------------------------------------------------ a client connects here

    def locate(self, question: Locate) -> None:
        """Find the session of a client."""
        if self._is_leaving:
            return  # it is closed with all others
        if not question.client_id:
            self._send_on(question)
            return
        now = self._driver.time()
        waits_for = {name for name, peer in self._peers.items() if peer.is_connected or peer.is_near(now)}
        self._latest_stamp += 1
        claim = self._claims[question.id] = _Claim(question, self._latest_stamp, now, waits_for)
        self._claims_of.setdefault(question.client_id, []).append(claim)
        for name in waits_for:
            self._ask(claim, self._peers[name])
        self._look(claim)

    def _ask(self, claim: _Claim, peer: Asked) -> None:
        if peer.is_connected:
            claim.asked.add(peer.name)
            peer.note(Ask(claim.question.id, claim.stamp, claim.question.client_id))

    def leave(self) -> None:
        """This broker is about to stop: it takes no clients of others in, and begins no more sessions."""
        self._is_leaving = True

    def on_connected(self, peer: Asked) -> None:
        """A node is connected. Compare what began while the two were apart."""
        self._telling[peer.name] = self._held_since(peer.apart_since)
        self._tell_held(peer.name)  # before messages for former sessions arrive there
        for claim in self._claims.values():
            claim.waits_for.add(peer.name)
            self._ask(claim, peer)

    def _tell_others(self, connection: Connection, asked: set[str]) -> None:
        """Tell nodes that were not asked, for they have come while the client logged in, of its session."""
        session = connection.session
        if session is not None:
            held = self._held(session)
            for name, peer in self._peers.items():
                if peer.is_connected and name not in asked:
                    peer.note(held)
        if connection.state in (CONNECTED, CLOSED):
            self._begun.remove((connection, asked))

    def _tell_held(self, name: str) -> None:
        some = list(islice(self._telling[name], HELD_AT_ONCE))
        for held in some:
            self._peers[name].note(held)
        if len(some) < HELD_AT_ONCE:
            del self._telling[name]

    def on_away(self, name: str) -> None:
        """A node is not connected any more. What it has said does not hold any longer."""
        self._telling.pop(name, None)
        self._moving.on_away(name)
        self.adopting.on_away(name)
        for claim in self._claims.values():
            if name in claim.asked:
                claim.asked.discard(name)
                claim.waits_for.add(name)
            claim.found[:] = [each for each in claim.found if each.name != name]
            claim.later[:] = [each for each in claim.later if each[0].name != name]
        for asks in self._deferred.values():
            asks[:] = [each for each in asks if each[0].name != name]
        for client_id, promises in list(self._promised.items()):
            for promise in [each for each in promises if each[0] == name]:
                self._keep_promise(client_id, promise)

    def tick(self) -> None:
        """Called several times a second: wait no longer for nodes that are away, and forget what is past."""
        self._moving.tick()
        self.adopting.tick()
        now = self._driver.time()
        for claim in list(self._claims.values()):
            for name in list(claim.waits_for):
                peer = self._peers.get(name)
                is_hoped_for = peer is not None and peer.is_near(now) and now - claim.since < MEET_S
                if peer is None or not (peer.is_connected or is_hoped_for):
                    claim.waits_for.discard(name)
            self._look(claim)
        for client_id in list(self._coming):
            self._has_coming(client_id)
        for begun in list(self._begun):
            self._tell_others(*begun)
        for name in list(self._telling):
            self._tell_held(name)

    def _look(self, claim: _Claim) -> None:
        """Go on if all nodes have answered."""
        question = claim.question
        client_id = question.client_id
        if claim.waits_for or self._is_leaving or self._drain.moves(client_id):
            return
        connection = self._core.connections.get(question.number)
        if connection is not None and self._drain.is_on and self._is_here(client_id) and self._drain.hurry(client_id):
            return  # it goes on when the session has moved
        del self._claims[question.id]
        claims = self._claims_of[client_id]
        claims.remove(claim)
        if not claims:
            del self._claims_of[client_id]
        here = self._holder(client_id)
        gone = self._drain.gone(client_id)
        if gone is not None:
            claim.found.append(_Holder(True, gone.connected_us, gone.node, None))
        holders = [*claim.found, here] if here.holds else claim.found
        chosen = None if connection is None else max(holders, default=here)
        for each in claim.found:
            if chosen is None or each.name not in (chosen.name, self._me):
                self._peers[each.name].note(Forget(question.id, client_id))
        self._settle(client_id, holders)
        if connection is not None and chosen is not None:
            if self._drain.is_on and not holders:
                self._send_on(question)
            elif chosen.name == self._me:
                self._coming.setdefault(client_id, []).append(connection)
                self._begun.append((connection, claim.asked))
                self._answer(question.id, True)
            else:
                self.passing.pass_on(connection, question, self._peers[chosen.name])
        for peer, ask in claim.later:
            self._on_ask(peer, ask)

    def _is_here(self, client_id: str) -> bool:
        session = self._core.sessions.get(client_id)
        return session is not None and not session.identity.is_trusted and not self._drain.has_given(client_id)

    def _send_on(self, question: Locate) -> None:
        """This node drains: the client begins its session at another one, or here if there is none."""
        target = self._drain.target()
        connection = self._core.connections.get(question.number)
        if target is None or not self._drain.is_on:
            self._answer(question.id, True)
        elif connection is not None:
            if question.client_id:
                self._drain.send_on(question.client_id, target.name)
            self.passing.pass_on(connection, question, self._peers[target.name])

    def on_free(self, client_id: str) -> None:
        """The session of a client does not move any more: answer what was asked about it."""
        for peer, ask in self._deferred.pop(client_id, ()):
            if peer.is_connected:
                self._on_ask(peer, ask)
        for claim in list(self._claims_of.get(client_id, ())):
            self._look(claim)

    def move_rest(self, client_id: str, node: str) -> None:
        """What waits here in a session that is another node's goes there."""
        self._moving.add(client_id, node)

    def _settle(self, client_id: str, holders: list[_Holder]) -> None:
        """If a client has several sessions, which began while nodes were apart, all but the newest step back."""
        newest = max(holders, default=None)
        for each in holders:
            if newest is not None and each.name != newest.name and newest.connected_us < sys.maxsize:
                held = Held(newest.name, client_id, newest.username, newest.connected_us)
                if each.name == self._me:
                    self._on_held(held)
                else:
                    self._peers[each.name].note(held)

    # ------------------------------------------------------------------ what other nodes say

    def on_note(
        self,
        peer: Asked,
        note: Ask | Told | Begin | Forget | Held | Moved | Settled | Adopt | Filters | Adopted | Yours,
    ) -> None:
        """A note of another node about a client that connects, or about its session."""
        if isinstance(note, Adopt):
            self.adopting.on_adopt(peer, note)
        elif isinstance(note, Filters):
            self.adopting.on_filters(peer, note)
        elif isinstance(note, Adopted):
            self._drain.on_adopted(peer, note)
        elif isinstance(note, Yours):
            self.adopting.on_yours(note)
        elif isinstance(note, Ask):
            self._on_ask(peer, note)
        elif isinstance(note, Told):
            self._on_told(peer, note)
        elif isinstance(note, Begin):
            self._keep_promise(note.client_id, (peer.name, note.number))
            connection = self.passing.take_in(peer, note)
            if connection is not None:
                self._coming.setdefault(note.client_id, []).append(connection)
        elif isinstance(note, Forget):
            self._keep_promise(note.client_id, (peer.name, note.number))
        elif isinstance(note, Held):
            if not (note.connected_us == COMING and self._drain.on_orphan(peer, note.client_id)):
                self._on_held(note)
        elif isinstance(note, Moved):
            self._moving.on_moved(peer, note)
        elif not self._drain.on_settled(note):
            self._moving.on_settled(note)

    def _on_ask(self, peer: Asked, ask: Ask) -> None:
        self._latest_stamp = max(self._latest_stamp, ask.stamp)
        if self._drain.moves(ask.client_id):
            self._deferred.setdefault(ask.client_id, []).append((peer, ask))
            return
        claims = self._claims_of.get(ask.client_id)
        if claims and (claims[0].stamp, self._me) < (ask.stamp, peer.name):
            claims[0].later.append((peer, ask))
            return
        here = self._holder(ask.client_id)
        gone = self._drain.gone(ask.client_id)
        if gone is not None and gone.connected_us > here.connected_us:
            peer.note(Told(ask.number, True, here.username, gone.connected_us, gone.node))
            return
        if here.holds:
            self._promised.setdefault(ask.client_id, set()).add((peer.name, ask.number))
        peer.note(Told(ask.number, here.holds, here.username, here.connected_us))

    def _on_told(self, peer: Asked, told: Told) -> None:
        claim = self._claims.get(told.number)
        if claim is not None and peer.name in claim.waits_for:
            claim.waits_for.discard(peer.name)
            at = told.at or peer.name
            is_known = at == self._me or (at in self._peers and self._peers[at].is_connected)
            if told.holds and is_known:
                claim.found.append(_Holder(True, told.connected_us, at, told.username))
            self._look(claim)

    # ------------------------------------------------------------------ the sessions here

    def _holder(self, client_id: str) -> _Holder:
        """This node, and what it has of a client."""
        if self._is_leaving:
            return _Holder(False, 0, self._me, None)
        session = self._core.sessions.get(client_id)
        if self.adopting.has(client_id):  # it is the client's when all of it is here
            return _Holder(False, 0, self._me, None)
        if session is not None and self._is_here(client_id):
            return _Holder(True, self._connected_us(session), self._me, session.identity.username)
        is_coming = self._has_coming(client_id) or client_id in self._promised
        return _Holder(is_coming, sys.maxsize if is_coming else 0, self._me, None)

    def _connected_us(self, session: Session) -> int:
        if self.adopting.has(session.client_id) or self._drain.has_given(session.client_id):
            return COMING
        at = session.connected_at
        return self._core.effects.numbers.ahead_us + int(at * MICROSECONDS) if at else 0

    def _held_since(self, apart_since: float) -> Iterator[Held]:
        """The sessions whose clients have connected since then, and later."""
        for session in list(self._core.sessions.values()):
            if 0.0 < session.connected_at >= apart_since and not session.identity.is_trusted:
                yield self._held(session)

    def _held(self, session: Session) -> Held:
        return Held(self._me, session.client_id, session.identity.username, self._connected_us(session))

    def _ask_for_newer(self, client_id: str) -> None:
        """Tell all nodes of a former session here, so that the one that has a newer one says so."""
        session = self._core.sessions.get(client_id)
        if session is not None:
            for peer in self._peers.values():
                peer.note(self._held(session))

    def _keep_promise(self, client_id: str, promise: tuple[str, int]) -> None:
        """The client has come, or does not come any more. Harmless when repeated."""
        promises = self._promised.get(client_id)
        if promises is not None:
            promises.discard(promise)
            if not promises:
                del self._promised[client_id]

    def _has_coming(self, client_id: str) -> bool:
        coming = [each for each in self._coming.pop(client_id, ()) if each.state not in (CONNECTED, CLOSED)]
        if coming:
            self._coming[client_id] = coming
        return len(coming) > 0

    def _on_held(self, held: Held) -> None:
        """The client has a session at another node. A session that it has here, and that was connected before, is a
        former one: the client was told that it is gone. What waits in it is moved."""
        client_id = held.client_id
        session = self._core.sessions.get(client_id)
        if held.node == self._me or self.adopting.keeps(held):
            return
        if (
            session is None
            or (session.identity.is_trusted and not self._moving.moves(client_id))
            or session.identity.username != held.username
        ):
            return
        if (self._connected_us(session), self._me) >= (held.connected_us, held.node):
            if held.node in self._peers:
                self._peers[held.node].note(self._held(session))
            return
        if self._moving.moves(client_id):
            self._moving.add(client_id, held.node)
            return
        self.adopting.forget(client_id)
        now = self._driver.time()
        self._core.displace(client_id, now)
        waiting = waiting_in(self._core, client_id)
        if waiting:
            for topic_filter in list(session.subscriptions):
                self._core.unsubscribe(client_id, topic_filter, now)
            _log.info(
                "client %r has a newer session at node %s, to which %d messages that wait here are moved",
                *(client_id, held.node, waiting),
            )
            self._moving.add(client_id, held.node)
        else:
            self._core.end_session(client_id, now)
        self._driver.wake()
