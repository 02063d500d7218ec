"""One session on its way from this node, which drains, to another one (`adopting`).

1. The other node begins it, without subscriptions.
2. What waits here goes there, message by message, as in `moving`, while the session here still gets what is published.
3. When little waits, the other node subscribes. From then on each message comes to it.
4. A fence (`fences`): what was published before has come here. From now on the session is the other node's. The
   subscriptions here end, and the rest of the messages goes there.
5. Nothing waits any more: the session here ends.

Messages that a queue lends to the session stay with the queue: they are not moved, and go back to it. Invariant: a
message that is acknowledged to its publisher is in the session here or there at each moment. One that is published in
step 3 or 4 may be in both, and comes twice then.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.blobs import Adopt, Adopted, Filter, Filters, Moved, Settled
from mqttlite.extensions.nodes.fences import Fences, Other
from mqttlite.extensions.nodes.notes import BLOB_BYTES, NOTE_BYTES
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, waiting_in
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.topics.namespaces import split_share
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode_publish
from mqttlite.wire.packets import Publish

UNDER_WAY: Final = 20
"""How many messages of a session are under way. When no more wait, the other node subscribes."""


class _Step(Enum):
    BEGINS = auto()
    MOVES = auto()
    SUBSCRIBES = auto()
    FENCES = auto()
    ENDS = auto()
    OVER = auto()


class Relocation:
    """`on_given` is called when the session is the other node's. `on_done` is called at the end: with an empty text, or
    with why not everything was moved. The client must not be connected."""

    def __init__(
        self,
        session: Session,
        attempt: int,
        to: Other,
        core: Broker,
        driver: LoopDriver,
        fences: Fences,
        on_given: Callable[["Relocation"], None],
        on_done: Callable[["Relocation", str], None],
    ) -> None:
        self.client_id: Final = session.client_id
        self.attempt: Final = attempt
        """Its number, by which an answer to an earlier one is known."""
        self.to: Final = to
        self.moved: int = 0
        """How many messages have gone."""
        self.is_given: bool = False
        """Whether the session is the other node's."""
        self.is_refused: bool = False
        """Whether the other node has not begun it, so that it has nothing of it."""
        self._core: Final = core
        self._driver: Final = driver
        self._fences: Final = fences
        self._on_given: Final = on_given
        self._on_done: Final = on_done
        self._loop: Final = asyncio.get_running_loop()
        self._identity: Final = session.identity
        self._expiry_interval: Final = session.expiry_interval
        self._connected_at: Final = session.connected_at
        self._local: LocalSession | None = None
        self._has_lent = False
        """Whether a queue has lent messages to the session since it is read."""
        self._under_way: Final[dict[int, Publish]] = {}
        self._step = _Step.BEGINS
        identity = session.identity
        to.note(Adopt(self.client_id, identity.username, identity.mount_point, session.expiry_interval, attempt))

    @property
    def username(self) -> str | None:
        """Of its client."""
        return self._identity.username

    # ------------------------------------------------------------------ what the other node says

    def on_adopted(self, adopted: Adopted) -> None:
        """The other node has begun the session, or subscribes."""
        if adopted.attempt not in (self.attempt, 0):
            return  # it is about an earlier move
        if adopted.refusal:
            self.is_refused = self._step is _Step.BEGINS
            self.stop(adopted.refusal)
        elif self._step is _Step.BEGINS and not adopted.subscribes:
            self._read_session()
        elif self._step is _Step.SUBSCRIBES and adopted.subscribes:
            self._step = _Step.FENCES
            self._fences.begin(self._on_fence)

    def on_settled(self, settled: Settled) -> None:
        """The other node has a message on disk, or has the session no longer."""
        packet = self._under_way.pop(settled.number, None)
        if packet is None or self._local is None:
            return
        if not settled.is_there:
            self.stop("its session there was ended")
            return
        self.moved += 1
        self._local.acknowledge(packet)
        self._loop.call_soon(self._read)

    # ------------------------------------------------------------------ the session here

    def _read_session(self) -> None:
        if self._core.sessions.get(self.client_id) is None:  # it has expired, or an operator has ended it
            self._finish("")
        elif self._connect():
            self._step = _Step.MOVES

    def _connect(self) -> bool:
        """Read the session as its client would."""
        local = LocalSession(self._core, self._driver, self._on_readable, "node", "local", self.to.name)
        client = LocalClient(
            client_id=self.client_id,
            clean_start=False,
            session_expiry_s=self._expiry_interval,
            username=self._identity.username,
            mount_point=self._identity.mount_point,
            is_trusted=True,
        )
        try:
            local.connect(client, UNDER_WAY)
        except ConnectionRefusedError as error:
            self._finish(str(error))
            return False
        self._local = local
        self._session().held_subacks += 1  # so that queues lend it no more
        self._on_readable()
        return True

    def _session(self) -> Session:
        session = self._core.sessions.get(self.client_id)
        assert session is not None, "it is connected"
        return session

    def _on_readable(self) -> None:
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        local = self._local
        if local is None or self._step is _Step.OVER:
            return
        while not local.is_over and (packet := local.receive()) is not None:
            if not isinstance(packet, Publish) or packet.qos == 0:
                continue
            if _is_lent(self._session(), packet.packet_id):
                self._has_lent = True
                continue
            self._under_way[packet.packet_id] = packet
            self.to.note(Moved(packet.packet_id, self.client_id, encode_publish(packet, V5)))
        if local.is_over:
            self._finish("its connection was closed")
            return
        waiting = waiting_in(self._core, self.client_id)
        if self._step is _Step.MOVES and (waiting <= UNDER_WAY or self._has_lent):
            self._step = _Step.SUBSCRIBES
            self._tell_filters()
        elif self._step is _Step.ENDS and not (waiting or self._under_way or self._session().unacknowledged):
            self._step = _Step.OVER
            local.leave()
            self._on_done(self, "")

    def _tell_filters(self) -> None:
        some: list[Filter] = []
        size = 0
        for each in self._session().subscriptions.values():
            message_filter = each.message_filter
            some.append(
                Filter(
                    topic_filter=_as_asked(self._identity.mount_point, each.topic_filter),
                    qos=each.qos,
                    no_local=each.no_local,
                    retain_as_published=each.retain_as_published,
                    identifier=each.identifier,
                    where="" if message_filter is None else message_filter.expression,
                )
            )
            size += NOTE_BYTES + len(each.topic_filter)
            if size >= BLOB_BYTES // 2:
                self.to.note(Filters(self.client_id, some, is_last=False, attempt=self.attempt))
                some, size = [], 0
        self.to.note(Filters(self.client_id, some, is_last=True, attempt=self.attempt))

    def _on_fence(self) -> None:
        local = self._local
        if self._step is not _Step.FENCES or local is None:
            return
        if local.is_over:
            self._finish("its connection was closed")
            return
        self._step = _Step.ENDS
        self.is_given = True
        self._on_given(self)
        for topic_filter in list(self._session().subscriptions):
            self._core.unsubscribe(self.client_id, topic_filter, self._driver.time())
        if self._has_lent:  # they go back, and others get them
            self._under_way.clear()
            local.link.leave(self._expiry_interval)
            self._connect()
        self._driver.wake()
        self._on_readable()

    # ------------------------------------------------------------------ the end

    def stop(self, why: str) -> None:
        """What was not moved stays here: the whole session, if it is not the other node's yet. Harmless at the end."""
        self._finish(why)

    def _finish(self, why: str) -> None:
        if self._step is _Step.OVER:
            return
        self._step = _Step.OVER
        if self._local is not None:
            session = self._core.sessions.get(self.client_id)
            if session is not None:
                session.identity = self._identity
            if not self._local.is_over:
                self._local.link.leave(self._expiry_interval)
            if session is not None:
                session.connected_at = self._connected_at
        self._on_done(self, why)


def _is_lent(session: Session, packet_id: int) -> bool:
    """Whether a message that was sent is kept by its origin."""
    delivery = session.lent(packet_id)
    return delivery is not None and delivery.is_lent


def _as_asked(mount_point: bytes, topic_filter: bytes) -> bytes:
    """A topic filter as the client has named it."""
    rest = split_share(topic_filter)[1]
    share = topic_filter[: len(topic_filter) - len(rest)]
    return share + rest.removeprefix(mount_point)
