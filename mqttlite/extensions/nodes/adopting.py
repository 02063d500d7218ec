"""Sessions that come here from nodes that drain.

Such a session begins without subscriptions, gets what waits for it as messages of `moving`, and subscribes at the end.
Until the other node says that it is done, the session there is the client's. Invariant: what of a session came here and
was not finished goes to the session that its client has.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.identity import Identity
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.route.requested_filters import PROPERTY as FILTER_PROPERTY
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.blobs import Adopt, Adopted, Filter, Filters, Held, Note, Yours
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.wire.constants import NEVER_EXPIRES
from mqttlite.wire.packets import Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, describe

AGAIN_S: Final = 2.0
"""How often it is asked who has the newer session of a client whose move was not finished."""

NO_RETAINED: Final = 2
"""Retain Handling: the client had them at the other node."""

_log = logging.getLogger("mqttlite.nodes")


class Origin(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def name(self) -> str: ...
    def note(self, note: Note) -> None: ...


class _Adoption:
    """One session, and the node from which it comes."""

    def __init__(self, adopt: Adopt, node: str) -> None:
        self.adopt: Final = adopt
        self.node: Final = node
        self.filters: Final[list[Filter]] = []
        self.is_orphan = False
        """Whether the two nodes have parted since it began."""
        self.asked_at = 0.0
        self.subscribing: _Subscribing | None = None
        self.held: Held | None = None
        """What was said of the client's whole session while this one subscribed."""

    def is_of(self, attempt: int) -> bool:
        """Whether a note with this number is about it."""
        return attempt in (self.adopt.attempt, 0)


class Adopting:
    """`on_orphan` is called now and then with a client whose session is not whole here, because the two nodes have
    parted, and `on_held` with what was kept for a session while it subscribed. `may_begin` says whether the client has
    no session here."""

    def __init__(
        self,
        core: Broker,
        driver: LoopDriver,
        on_orphan: Callable[[str], None],
        on_held: Callable[[Held], None],
        may_begin: Callable[[str], bool],
    ) -> None:
        self._core: Final = core
        self._driver: Final = driver
        self._on_orphan: Final = on_orphan
        self._on_held: Final = on_held
        self._may_begin: Final = may_begin
        self._adoptions: Final[dict[str, _Adoption]] = {}
        self._answers: Final[set[asyncio.Task[None]]] = set()

    def has(self, client_id: str) -> bool:
        """Whether the session of a client is on its way here."""
        return client_id in self._adoptions

    @property
    def coming(self) -> int:
        """How many sessions are on their way here."""
        return len(self._adoptions) - self.cut_off

    @property
    def cut_off(self) -> int:
        """How many were, from nodes that have parted from this one."""
        return sum(1 for each in self._adoptions.values() if each.is_orphan)

    def keeps(self, held: Held) -> bool:
        """Whether the session subscribes now. What another node has of it is looked at when that is over."""
        adoption = self._adoptions.get(held.client_id)
        if adoption is None or adoption.subscribing is None:
            return False
        if adoption.held is None or adoption.held.connected_us <= held.connected_us:
            adoption.held = held
        return True

    def forget(self, client_id: str) -> None:
        """The client has another session, to which goes what has come."""
        self._adoptions.pop(client_id, None)

    def tick(self) -> None:
        """Called several times a second."""
        now = self._driver.time()
        for client_id, each in list(self._adoptions.items()):
            if self._core.sessions.get(client_id) is None:  # it has expired, or an operator has ended it
                del self._adoptions[client_id]
            elif each.is_orphan and now - each.asked_at >= AGAIN_S:
                each.asked_at = now
                self._on_orphan(client_id)

    def on_away(self, name: str) -> None:
        """A node is not connected any more: it may not go on with what it has begun."""
        for each in self._adoptions.values():
            each.is_orphan |= each.node == name

    def on_adopt(self, peer: Origin, adopt: Adopt) -> None:
        """A session begins to come, or does so again."""
        client_id = adopt.client_id
        earlier = self._adoptions.get(client_id)
        if earlier is None and not self._may_begin(client_id):
            peer.note(Adopted(client_id, False, "the client has a session there", adopt.attempt))
            return
        if earlier is not None and earlier.subscribing is not None:
            earlier.subscribing.stop()
            earlier.subscribing = None
        refusal = self._begin(adopt)
        if refusal:
            peer.note(Adopted(client_id, False, refusal, adopt.attempt))
            if earlier is not None and earlier.held is not None:
                self._on_held(earlier.held)
            return
        self._adoptions[client_id] = _Adoption(adopt, peer.name)
        self._answer(peer, Adopted(client_id, False, attempt=adopt.attempt))

    def _begin(self, adopt: Adopt) -> str:
        """Begin the session, and say why not."""
        local = LocalSession(self._core, self._driver, lambda: None, "node", "local", "node")
        refusal = _connect(local, adopt)
        if not refusal:
            _leave(local, adopt)
            session = self._session(adopt.client_id)
            session.connected_at = 0.0
            for topic_filter in list(session.subscriptions):  # of an earlier move
                self._core.unsubscribe(adopt.client_id, topic_filter, self._driver.time())
            self._driver.wake()
        return refusal

    def on_filters(self, peer: Origin, filters: Filters) -> None:
        """What the session subscribes to. With the last ones it does so."""
        adoption = self._adoptions.get(filters.client_id)
        if adoption is None or adoption.node != peer.name or not adoption.is_of(filters.attempt):
            peer.note(Adopted(filters.client_id, True, "its session is not on its way there", filters.attempt))
            return
        adoption.filters.extend(filters.filters)
        if filters.is_last:
            adoption.subscribing = _Subscribing(
                *(self._core, self._driver, adoption.adopt, list(adoption.filters)),
                on_done=lambda refusal: self._on_subscribed(peer, adoption, refusal),
            )
            adoption.filters.clear()

    def _on_subscribed(self, peer: Origin, adoption: _Adoption, refusal: str) -> None:
        adoption.subscribing = None
        adopt, held = adoption.adopt, adoption.held
        session = self._core.sessions.get(adopt.client_id)
        if session is not None:
            session.connected_at = 0.0
            if session.outbox is None:  # also if an operator has closed the connection
                session.identity = Identity(adopt.username, adopt.mount_point)
        self._answer(peer, Adopted(adopt.client_id, True, refusal, adopt.attempt))
        if held is not None and self._adoptions.get(adopt.client_id) is adoption:
            self._on_held(held)

    def on_yours(self, yours: Yours) -> None:
        """The session is here."""
        adoption = self._adoptions.get(yours.client_id)
        if adoption is not None and adoption.is_of(yours.attempt):
            del self._adoptions[yours.client_id]
            session = self._core.sessions.get(yours.client_id)
            if session is not None and yours.connected_us:
                ahead_us = self._core.effects.numbers.ahead_us
                session.connected_at = (yours.connected_us - ahead_us) / MICROSECONDS

    def _session(self, client_id: str) -> Session:
        session = self._core.sessions.get(client_id)
        assert session is not None, "it was begun"
        return session

    def _answer(self, peer: Origin, adopted: Adopted) -> None:
        """Say it when all is on disk."""
        task = asyncio.get_running_loop().create_task(self._answer_when_settled(peer, adopted))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer_when_settled(self, peer: Origin, adopted: Adopted) -> None:
        await self._driver.settled()
        peer.note(adopted)


class _Subscribing:
    """The subscriptions of one session. `on_done` is called once all nodes know them, with why one was refused."""

    def __init__(
        self,
        core: Broker,
        driver: LoopDriver,
        adopt: Adopt,
        filters: list[Filter],
        on_done: Callable[[str], None],
    ) -> None:
        self._adopt: Final = adopt
        self._on_done: Final = on_done
        self._loop: Final = asyncio.get_running_loop()
        self._is_over = False
        self._unanswered: Final[dict[int, Filter]] = {}
        self._refusal = ""
        self._local: Final = LocalSession(core, driver, self._on_readable, "node", "local", "node")
        refusal = _connect(self._local, adopt)
        if refusal:
            self._is_over = True
            self._loop.call_soon(on_done, refusal)
            return
        for packet_id, each in enumerate(filters, 1):
            self._unanswered[packet_id] = each
            properties = Properties(
                user_properties=[(FILTER_PROPERTY, each.where)] if each.where else [],
                subscription_identifiers=[each.identifier] if each.identifier else [],
            )
            request = SubscriptionRequest(
                *(each.topic_filter, each.qos, each.no_local, each.retain_as_published, NO_RETAINED)
            )
            self._local.link.send(Subscribe(packet_id, (request,), properties))
        self._on_readable()

    def _on_readable(self) -> None:
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        if self._is_over:
            return
        while (packet := self._local.receive()) is not None:
            if isinstance(packet, Suback):
                each = self._unanswered.pop(packet.packet_id)
                if packet.reason_codes[0] >= SUBACK_FAILURE:
                    why = packet.properties.reason_string or describe(packet.reason_codes[0])
                    self._refusal = self._refusal or f"{each.topic_filter.decode()}: {why}"
        if self._unanswered and not self._local.is_over:
            return
        self.stop()
        self._on_done("its connection was closed" if self._unanswered else self._refusal)

    def stop(self) -> None:
        """Leave the session to its client."""
        if not self._is_over:
            self._is_over = True
            _leave(self._local, self._adopt)


def _connect(local: LocalSession, adopt: Adopt) -> str:
    """Connect to the session, as the program, and say why not."""
    expiry = adopt.expiry_interval
    client = LocalClient(
        client_id=adopt.client_id,
        clean_start=False,
        session_expiry_s=expiry - 1 if expiry == NEVER_EXPIRES else expiry + 1,  # `_leave` changes it
        username=adopt.username,
        mount_point=adopt.mount_point,
        is_trusted=True,
    )
    try:
        local.connect(client, 1)
    except ConnectionRefusedError as error:
        return str(error)
    return ""


def _leave(local: LocalSession, adopt: Adopt) -> None:
    """Leave the session to its client. The change of the expiry has the store keep whose it is."""
    session = local.link.connection.session
    if session is not None:
        session.identity = Identity(adopt.username, adopt.mount_point)
    if not local.is_over:
        local.link.leave(adopt.expiry_interval)
