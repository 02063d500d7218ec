"""Where the session of a client is: it stays at the node where it began, and a client that connects to another one is
passed on to it.

A node that has a CONNECT asks all nodes it is connected to, and answers theirs. If nobody has the session, it begins
here. Of two nodes that ask about a client at the same time, the one whose question is the earlier one answers when its
own is answered, so that one session begins: mutual exclusion as in Ricart and Agrawala, "An Optimal Algorithm for
Mutual Exclusion in Computer Networks" (1981). Invariant: while all nodes are connected, a client has one session.
"""

import logging
from asyncio import Transport
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CLOSED, CONNECTED, Connection
from mqttlite.core.question import Locate
from mqttlite.extensions.nodes.blobs import Ask, Begin, Bytes, End, Forget, Note, Room, Surplus, Told
from mqttlite.extensions.nodes.pipes import ClientEnd, PipeEnd, SessionEnd
from mqttlite.net.link import Link, LinkDriver
from mqttlite.net.local_session import waiting_in

NOBODY: Final = 0
KEPT: Final = 1
ONLINE: Final = 2

_log = logging.getLogger("mqttlite.nodes")


class Asked(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    def note(self, note: Note) -> None: ...


class TakesIn(Protocol):
    """The part of a `Listener` that is used here."""

    @property
    def name(self) -> str: ...
    def take_in(
        self,
        transport: Transport,
        address: str,
        verified_name: str | None,
        tls_version: str | None,
        tls_cipher: str | None,
    ) -> Link | None: ...


class _Holder(NamedTuple):
    """A node that has the session of a client; the best one is the greatest."""

    holds: int
    waiting: int
    is_here: bool
    name: str


class _Claim:
    """A question that waits for the answers of other nodes."""

    def __init__(self, question: Locate, stamp: int, waits_for: set[str]) -> None:
        self.question: Final = question
        self.stamp: Final = stamp
        self.waits_for: Final = waits_for
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
        driver: LinkDriver,
        answer: Callable[[int, bool], None],
    ) -> None:
        self._me: Final = me
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._answer: Final = answer
        self._listeners: Mapping[str, TakesIn] = {}
        """Where clients of other nodes come in."""
        self._places: Mapping[str, str] = {}
        """Their keys by the name of the listener."""
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
        self._pipes: Final[dict[tuple[str, int], PipeEnd]] = {}
        self._latest_pipe = 0
        self.passed_on: Final[dict[str, int]] = {}
        """How many clients here have their session at each node."""

    def serve_at(self, listeners: Mapping[str, TakesIn]) -> None:
        """Take clients in at these listeners, whose keys are the same on all nodes."""
        self._listeners = listeners
        self._places = {each.name: key for key, each in listeners.items()}

    # ------------------------------------------------------------------ a client connects here

    def locate(self, question: Locate) -> None:
        """Find the session of a client."""
        waits_for = {name for name, peer in self._peers.items() if peer.is_connected}
        self._latest_stamp += 1
        claim = self._claims[question.id] = _Claim(question, self._latest_stamp, waits_for)
        self._claims_of.setdefault(question.client_id, []).append(claim)
        for name in waits_for:
            self._peers[name].note(Ask(question.id, claim.stamp, question.client_id))
        self._look(claim)

    def on_away(self, name: str) -> None:
        """A node is not connected any more."""
        for claim in list(self._claims.values()):
            claim.found[:] = [each for each in claim.found if each.name != name]
            claim.later[:] = [each for each in claim.later if each[0].name != name]
            claim.waits_for.discard(name)
            self._look(claim)
        for client_id, promises in list(self._promised.items()):
            for promise in [each for each in promises if each[0] == name]:
                self._keep_promise(client_id, promise)
        for key in [key for key in self._pipes if key[0] == name]:
            self._pipes[key].on_end()

    def tick(self) -> None:
        """Called several times a second: forget what is past."""
        for client_id in list(self._coming):
            self._has_coming(client_id)

    def _look(self, claim: _Claim) -> None:
        """Go on if all nodes have answered."""
        if claim.waits_for:
            return
        question = claim.question
        client_id = question.client_id
        del self._claims[question.id]
        claims = self._claims_of[client_id]
        claims.remove(claim)
        if not claims:
            del self._claims_of[client_id]
        connection = self._core.connections.get(question.number)
        chosen = None if connection is None else self._choose(claim)
        for each in claim.found:
            if each is not chosen:
                self._peers[each.name].note(Forget(question.id, client_id))
        if connection is not None:
            if chosen is None or chosen.is_here:
                self._coming.setdefault(client_id, []).append(connection)
                self._answer(question.id, True)
            else:
                self._pass_on(connection, question, self._peers[chosen.name])
        for peer, ask in claim.later:
            self._on_ask(peer, ask)

    def _choose(self, claim: _Claim) -> _Holder | None:
        """Of the nodes that have the session, the one that goes on with it; None if there is none."""
        client_id = claim.question.client_id
        holders = list(claim.found)
        here = self._holder(client_id)
        if here.holds:
            holders.append(here)
        best = max(holders, default=None)
        for each in holders:
            if each is not best:
                if each.is_here:
                    self._end_surplus(client_id)
                else:
                    self._peers[each.name].note(Surplus(client_id))
        return best

    def _pass_on(self, connection: Connection, question: Locate, peer: Asked) -> None:
        link = self._driver.links[question.number]
        assert isinstance(link, Link), "a client with a socket"
        data = self._core.give_up(connection, self._driver.time())
        self._driver.wake()
        if link.gone:
            peer.note(Forget(question.id, question.client_id))
            return
        self._latest_pipe += 2
        pipe = self._latest_pipe + (self._me > peer.name)
        key = peer.name, pipe
        peer.note(
            Begin(
                *(pipe, question.id, question.client_id, self._places[link.listener], link.address),
                *(connection.peer.identity.username, link.tls_version, link.tls_cipher),
            )
        )
        self.passed_on[peer.name] = self.passed_on.get(peer.name, 0) + 1
        end = self._pipes[key] = ClientEnd(pipe, peer.note, link, lambda: self._on_client_gone(key))
        end.flow.send(data)
        _log.info("client %s is passed on to node %s, which has its session", question.client_id, peer.name)

    def _on_client_gone(self, key: tuple[str, int]) -> None:
        if self._pipes.pop(key, None) is not None:
            self.passed_on[key[0]] -= 1

    # ------------------------------------------------------------------ what other nodes say

    def on_notes(self, peer: Asked, notes: Sequence[Note]) -> None:
        """Notes of another node, in order."""
        for note in notes:
            if isinstance(note, Bytes):
                end = self._pipes.get((peer.name, note.pipe))
                if end is not None:  # it may have ended at this end
                    end.on_bytes(note.data)
            elif isinstance(note, Room):
                end = self._pipes.get((peer.name, note.pipe))
                if end is not None:
                    end.flow.on_room(note.size)
            elif isinstance(note, Ask):
                self._on_ask(peer, note)
            elif isinstance(note, Told):
                self._on_told(peer, note)
            elif isinstance(note, Begin):
                self._on_begin(peer, note)
            elif isinstance(note, End):
                end = self._pipes.get((peer.name, note.pipe))
                if end is not None:
                    end.on_end()
            elif isinstance(note, Forget):
                self._keep_promise(note.client_id, (peer.name, note.number))
            else:
                self._end_surplus(note.client_id)

    def _on_ask(self, peer: Asked, ask: Ask) -> None:
        self._latest_stamp = max(self._latest_stamp, ask.stamp)
        claims = self._claims_of.get(ask.client_id)
        if claims and (claims[0].stamp, self._me) < (ask.stamp, peer.name):
            claims[0].later.append((peer, ask))
            return
        here = self._holder(ask.client_id)
        if here.holds:
            self._promised.setdefault(ask.client_id, set()).add((peer.name, ask.number))
        peer.note(Told(ask.number, here.holds, here.waiting))

    def _on_told(self, peer: Asked, told: Told) -> None:
        claim = self._claims.get(told.number)
        if claim is not None and peer.name in claim.waits_for:
            claim.waits_for.discard(peer.name)
            if told.holds:
                claim.found.append(_Holder(told.holds, told.waiting, False, peer.name))
            self._look(claim)

    def _on_begin(self, peer: Asked, begin: Begin) -> None:
        """A client of another node comes to its session here."""
        key = peer.name, begin.pipe
        self._keep_promise(begin.client_id, (peer.name, begin.number))
        listener = self._listeners.get(begin.listener)
        end = SessionEnd(begin.pipe, peer.note, lambda: self._on_session_gone(key))
        link = None
        if listener is not None:
            link = listener.take_in(end, begin.address, begin.verified_name, begin.tls_version, begin.tls_cipher)
        if link is None:
            _log.warning(
                "client %s of node %s is turned away: %s",
                *(begin.client_id, peer.name),
                f"there is no listener {begin.listener!r} here" if listener is None else "its listener has no room",
            )
            peer.note(End(begin.pipe))
            return
        self._pipes[key] = end
        self._coming.setdefault(begin.client_id, []).append(link.connection)

    def _on_session_gone(self, key: tuple[str, int]) -> None:
        self._pipes.pop(key, None)

    # ------------------------------------------------------------------ the sessions here

    def _holder(self, client_id: str) -> _Holder:
        session = self._core.sessions.get(client_id)
        if session is not None and not session.identity.is_trusted:
            holds = KEPT if session.outbox is None else ONLINE
            return _Holder(holds, waiting_in(self._core, client_id), True, self._me)
        is_coming = self._has_coming(client_id) or client_id in self._promised
        return _Holder(ONLINE if is_coming else NOBODY, 0, True, self._me)

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

    def _end_surplus(self, client_id: str) -> None:
        """The client has another session at another node, and is connected there."""
        session = self._core.sessions.get(client_id)
        if session is None or session.outbox is not None:
            return
        waiting = waiting_in(self._core, client_id)
        if waiting:
            _log.warning(
                "client %s has a session here too, in which %d messages wait: it began while the nodes were apart",
                *(client_id, waiting),
            )
            return
        self._core.end_session(client_id, self._driver.time())
        self._driver.wake()
