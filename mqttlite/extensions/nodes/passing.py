"""`Passing`: passes the bytes of a client to the node that has its session, and takes in those of other nodes.

`locating` says where a session is. Invariant: a client that is passed on has no connection in the core of this node.
"""

import logging
from asyncio import Transport
from collections.abc import Mapping
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection
from mqttlite.core.question import Locate
from mqttlite.extensions.nodes.blobs import Begin, End
from mqttlite.extensions.nodes.draining import Target
from mqttlite.extensions.nodes.pipes import ClientEnd, Flow, Pipes, SessionEnd
from mqttlite.net.link import Link, about
from mqttlite.net.loop_driver import LoopDriver

_log = logging.getLogger("mqttlite.nodes")


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


class Passing:
    """Clients between this node and others."""

    def __init__(self, core: Broker, driver: LoopDriver, pipes: Pipes) -> None:
        self._core: Final = core
        self._driver: Final = driver
        self._pipes: Final = pipes
        self._listeners: Mapping[str, TakesIn] = {}
        """Where clients of other nodes come in."""
        self._places: Mapping[str, str] = {}
        """Their keys by the name of the listener."""
        self.passed_on: Final[dict[str, int]] = {}
        """How many clients here have their session at each node."""

    def serve_at(self, listeners: Mapping[str, TakesIn]) -> None:
        """Take clients in at these listeners, whose keys are the same on all nodes."""
        self._listeners = listeners
        self._places = {each.name: key for key, each in listeners.items()}

    def pass_on(self, connection: Connection, question: Locate, peer: Target) -> None:
        """The session of a client is at another node: let go of its connection here, and pass its bytes on."""
        link = self._driver.links[question.number]
        assert isinstance(link, Link), "a client with a socket"
        data = self._core.give_up(connection, self._driver.time())
        self._driver.wake()
        name = peer.name
        pipe = self._pipes.draw(name)
        peer.note(
            Begin(
                *(pipe, question.id, question.client_id, self._places[link.listener], link.address),
                *(connection.peer.identity.username, link.tls_version, link.tls_cipher),
            )
        )
        _log.info("client %r is passed on to node %s", question.client_id, peer.name, extra=about(link))
        if link.gone:  # it has said what it wanted to say
            Flow(pipe, peer.note, lambda _is_full: None).send(data)
            peer.note(End(pipe))
            return
        self.passed_on[name] = self.passed_on.get(name, 0) + 1
        end = ClientEnd(pipe, peer.note, link, lambda: self._on_client_gone(name, pipe))
        self._pipes.add(name, pipe, end)
        end.flow.send(data)

    def _on_client_gone(self, name: str, pipe: int) -> None:
        if self._pipes.remove(name, pipe):
            self.passed_on[name] -= 1

    def take_in(self, peer: Target, begin: Begin) -> Connection | None:
        """A client of another node comes to its session here. None: it is turned away."""
        name, pipe = peer.name, begin.pipe
        listener = self._listeners.get(begin.listener)
        end = SessionEnd(pipe, peer.note, lambda: self._on_session_gone(name, pipe))
        link = None
        if listener is not None:
            link = listener.take_in(end, begin.address, begin.verified_name, begin.tls_version, begin.tls_cipher)
        if link is None:
            _log.warning(
                "client %r of node %s is turned away: %s",
                *(begin.client_id, peer.name),
                f"there is no listener {begin.listener!r} here" if listener is None else "its listener has no room",
            )
            peer.note(End(begin.pipe))
            return None
        self._pipes.add(name, pipe, end)
        return link.connection

    def _on_session_gone(self, name: str, pipe: int) -> None:
        self._pipes.remove(name, pipe)
