"""One other node: what is subscribed there, what waits for it, and the connection to it.

What waits is in a kept session of this broker, `$node/<name>`, whose subscriptions are the topic filters of the other
node. Both nodes have one for the other, and while they are connected, what the broker here writes to that session is
read by the broker there as if it came from its session for this node, and the other way round: messages and
acknowledgements, under the same packet identifiers. So a message of QoS 1 or 2 stays in the session here until the
other node has it on disk, and comes again after a loss; one of QoS 2 comes once.

Invariant: while a connection is open, the other node has got each byte up to `Data` number `handled`, in order; a gap
ends the connection.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.message import Message
from mqttlite.extensions.nodes.blobs import NO_LOAD, VERSION, Blob, Close, Data, Hello, Note, Notes, Open
from mqttlite.extensions.nodes.carrier import MAX_BLOB_BYTES
from mqttlite.extensions.nodes.heard import Heard
from mqttlite.extensions.nodes.news import Beginning, News, NewsItem
from mqttlite.extensions.nodes.node_state import NodeState
from mqttlite.extensions.nodes.notes import NoteBook
from mqttlite.extensions.nodes.own_answers import OwnAnswers
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.extensions.nodes.window import Receipt, Window
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalClient, LocalLink
from mqttlite.net.local_session import waiting_in
from mqttlite.wire.constants import PUBREL
from mqttlite.wire.packets import Ack

SILENT_S: Final = 3.0
"""A node of which nothing is heard for so long is away."""

KEEP_ALIVE_S: Final = 0.5
"""How long a connection is silent at most."""

NOTES_WAITING_BYTES: Final = 16 * 1_048_576
"""How many bytes of notes may wait for a node: of as many clients as fill 256 pipes. With more the connection ends."""

COPY_AGAIN_S: Final = 10.0
"""How often all retained messages are sent at most, because one could not be."""

OPEN_AGAIN_S: Final = 1.0
"""How long a node waits for the answer when it opens a connection."""

MORE_BYTES: Final = 131_072
"""By how much a packet from another node may be larger than `limits.max_packet_bytes`: that node has added properties,
or a mount point to its topic."""

UNHANDLED_BYTES: Final = 1_048_576
"""While the broker has more bytes of the other node to handle, it is not told that they are handled."""

_log = logging.getLogger("mqttlite.nodes")


class Peer:
    """It is given what comes from the node, and `tick`; after each `wake` its `blobs` are sent."""

    def __init__(
        self,
        name: str,
        me: str,
        run: int,
        core: Broker,
        driver: LinkDriver,
        keep_s: int,
        wake: Callable[[], None],
        beginning: Callable[[], Beginning],
        draw: Callable[[], int],
        on_notes: Callable[["Peer", list[Note]], None],
        on_places: Callable[[str, dict[bytes, int], bool], dict[bytes, int]],
        on_away: Callable[[str], None],
        on_connected: Callable[["Peer"], None],
    ) -> None:
        """`run` is that of this node; `beginning` is what is subscribed here; `draw` draws a number; `wake` has `blobs`
        called soon; `on_notes` is called with what it says about clients, `on_places` with what queues and streams are
        there (as `Places.on_told`), and `on_away` at the end of a connection, with its name."""
        self.name: Final = name
        self.is_connected: bool = False
        self.reason: str = "It was not heard of since this broker started."
        self.away_since: float = driver.time()
        """By the clock of the loop."""
        self.apart_since: float = 0.0
        """Since when clients may have begun sessions here and there: always, unless it has run on."""
        self.sent_bytes: int = 0
        self.received_bytes: int = 0
        self.connects: int = 0
        self.minor: int = 0
        """Which notes it knows (`blobs.MINOR`)."""
        self.release: str = ""
        self.drain: str = ""
        """As in `blobs.Hello`."""
        self.address: str = ""
        """Where clients find it, if it says so."""
        self.load = NO_LOAD
        self.news: Final = News()
        self._me: Final = me
        self._run: Final = run
        self._core: Final = core
        self._driver: Final = driver
        self._keep_s: Final = keep_s
        self._wake: Final = wake
        self._beginning: Final = beginning
        self._draw: Final = draw
        self._on_notes: Final = on_notes
        self._on_away: Final = on_away
        self._on_connected: Final = on_connected
        self._notes: Final = NoteBook()
        self._its_run = 0
        self._heard_at = -SILENT_S
        self._data_at = 0.0
        """When something came on the connection."""
        self._connection = 0
        """The number of the connection that is open, or that this node tries to open."""
        self._opened_at = -OPEN_AGAIN_S
        self._link: LocalLink | None = None
        self._control: Final[list[Blob]] = []
        """Blobs that go out first."""
        self._answers: Final = OwnAnswers()
        self._heard: Final = Heard(name, self._answers, on_places)
        self._is_whole_told = False
        self._packets = b""
        """What the other node is to get, in pieces."""
        self._is_cut = False
        """Whether the latest piece may have ended within a packet: the other node can add none of its own there."""
        self._window: Final = Window()
        self._receipt: Final = Receipt()
        self._said_at = 0.0
        self._speaks = False
        """Whether the next blob is sent even if it is empty."""
        self._lacks_copies = False
        """Whether a copy of a retained message was dropped since all were sent."""
        self._copied_at = 0.0
        self._is_new = False
        """Whether the session here has begun since the other node was told so and has answered."""

    @property
    def client_id(self) -> str:
        """That of the session for it."""
        return CLIENT_ID_PREFIX + self.name

    @property
    def waiting(self) -> int:
        """Messages of QoS 1 and 2 that it has not acknowledged."""
        return waiting_in(self._core, self.client_id)

    @property
    def has_met(self) -> bool:
        """Whether it does not run, or each of the two knows what was subscribed at the other when they connected."""
        if self._its_run == 0:
            return True
        is_known_there = self._is_whole_told and self.news.taken >= self.news.whole_after
        return self.is_connected and self._heard.is_whole and is_known_there

    def is_near(self, now: float) -> bool:
        """Whether it runs: it was heard of a short time ago, and has not said goodbye."""
        return now - self._heard_at < SILENT_S

    @property
    def is_lost(self) -> bool:
        """Whether it is away, and nothing waits for it any more."""
        return not self.is_connected and self._core.sessions.get(self.client_id) is None

    @property
    def subscriptions(self) -> int:
        """Topic filters that are subscribed there."""
        session = self._core.sessions.get(self.client_id)
        return 0 if session is None else len(session.subscriptions)

    def view(self, passed_on: int) -> NodeState:
        """How it stands now."""
        return NodeState(
            name=self.name,
            state="connected" if self.is_connected else "away",
            reason="" if self.is_connected else self.reason,
            waiting=self.waiting,
            filters=self.subscriptions,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            connects=self.connects,
            passed_on=passed_on,
            drain=self.drain if self.is_connected else "",
            clients=self.load.clients,
            sessions=self.load.sessions,
            received_per_s=self.load.received_per_s,
            sent_per_s=self.load.sent_per_s,
            release=self.release,
        )

    # ------------------------------------------------------------------ the connection

    def on_hello(self, hello: Hello, now: float) -> bool:
        """It runs, or ends. Return whether it has started since it was heard of."""
        run = hello.run
        if self._was_replaced(run, now):
            return False
        self.minor, self.release, self.drain, self.address = hello.minor, hello.release, hello.drain, hello.address
        self.load = hello.load
        if hello.is_leaving:
            if run == self._its_run:
                self._heard_at = now - SILENT_S
                self.end("It was stopped.")
            return False
        has_started = run != self._its_run
        if has_started:
            self.end("It started again.")
            self._its_run = run
            self.apart_since = 0.0
        self._heard_at = now
        self._open_if_due(now)
        return has_started

    def _open_if_due(self, now: float) -> None:
        """The node with the smaller name opens the connection."""
        if self._link is None and self._me < self.name and now - self._opened_at >= OPEN_AGAIN_S:
            self._opened_at = now
            self._connection = self._draw()
            self._put(self._open(is_answer=False))

    def on_open(self, blob: Open, now: float) -> None:
        """A connection that it opens, or that it accepts."""
        if self._was_replaced(blob.run, now):
            return
        self._heard_at = now
        has_started = blob.run != self._its_run
        self._its_run = blob.run
        if blob.is_answer:
            if self._link is None and blob.connection == self._connection:
                if has_started:
                    self.apart_since = 0.0
                self._begin(blob, now)
            return
        self.end("It has opened a new connection.")
        if has_started:
            self.apart_since = 0.0
        self._control.clear()
        self._connection = blob.connection
        self._put(self._open(is_answer=True))
        self._begin(blob, now)

    def _was_replaced(self, run: int, now: float) -> bool:
        """Whether a later run is connected: another machine of the node serves, and this one stood still until now."""
        return run < self._its_run and self._link is not None and self.is_near(now)

    def on_close(self, blob: Close) -> None:
        """It has ended the connection."""
        if blob.connection == self._connection and self._link is not None:
            self._leave(blob.why)

    def end(self, why: str, told: str = "") -> None:
        """End the connection, if there is one, and tell the other node: sentences."""
        if self._link is not None:
            self._put(Close(self._me, self._connection, told or f"It ended the connection: {why}"))
            self._leave(why)

    def _open(self, *, is_answer: bool) -> Open:
        limits = self._core.limits
        self._is_new |= self._core.sessions.get(self.client_id) is None
        return Open(
            VERSION,
            *(self._me, self._run, self._connection, is_answer, self._is_new),
            receive_maximum=limits.receive_maximum,
            max_packet_bytes=limits.max_packet_bytes,
        )

    def _begin(self, other: Open, now: float) -> None:
        try:
            link = self._link = self.connect(other.receive_maximum, other.max_packet_bytes)
        except ConnectionRefusedError as error:
            self.reason = f"This broker has no room for its session: {error}"
            self._put(Close(self._me, self._connection, self.reason))
            return
        self.is_connected = True
        self.connects += 1
        self._notes.begin()
        self._window.begin()
        self._receipt.begin()
        self._answers.begin()
        self._said_at = self._data_at = now
        session = link.connection.session
        assert session is not None, "it is connected"
        self._heard.begin(session.subscriptions)
        if other.is_new:  # a message under one of these identifiers is a new one
            for packet_id in session.received.all():
                self._answers.expect_pubcomp(packet_id)
                link.send(Ack(PUBREL, packet_id))
        self.news.begin(self._beginning())
        self._is_whole_told = False
        self._send_copies(now)
        _log.info("node %s is connected", self.name)
        self._on_connected(self)
        self._wake()

    def _send_copies(self, now: float) -> None:
        """Send it all retained messages."""
        self._lacks_copies = False
        self._copied_at = now
        self._core.send_copies(self.client_id, now)
        self._driver.wake()

    def copy(self, message: Message) -> None:
        """Send it a message that was retained here, while it is connected. Otherwise it gets all when it is."""
        if self.is_connected and not self._core.send_copy(self.client_id, message):
            self._lacks_copies = True

    def connect(self, receive_maximum: int, max_packet_bytes: int) -> LocalLink:
        """Connect to the session here. Raises `ConnectionRefusedError` if the broker has no room for it."""
        link = LocalLink(self._core, self._driver, self._wake, "node", "local", self.name)
        client = LocalClient(
            client_id=self.client_id,
            clean_start=False,
            session_expiry_s=self._keep_s,
            is_trusted=True,
            is_relay=True,
        )
        limit = self._core.limits.max_packet_bytes
        # Without a Maximum Packet Size, many messages are written at once.
        link.connect(client, receive_maximum, max_packet_bytes if max_packet_bytes < limit else None)
        link.connection.framer.max_packet_size = limit + MORE_BYTES
        return link

    def _leave(self, why: str) -> None:
        """The connection has ended. The session stays."""
        link, self._link = self._link, None
        assert link is not None, "there is a connection"
        if not link.gone:
            link.leave()
        self.is_connected = False
        self.reason = why
        self.load = NO_LOAD
        self.away_since = self.apart_since = self._driver.time()
        self.news.end()
        self._packets = b""
        self._is_cut = False
        self._window.begin()
        self._heard.end()
        _log.warning("node %s is away: %s", self.name, why)
        self._on_away(self.name)
        self._wake()

    def tick(self, now: float) -> None:
        """Called several times a second."""
        link = self._link
        if link is None:
            if now - self._heard_at < SILENT_S:
                self._open_if_due(now)
            return
        if link.gone:
            self.end(link.connection.close_detail or "The broker ended the session.")
        elif now - self._data_at >= SILENT_S:
            self.end(f"It was silent for {SILENT_S:g} s.")
        elif self._notes.waiting_bytes > NOTES_WAITING_BYTES:
            self.end("It did not take what its clients are sent as fast as it came.")
        else:
            self._take(link)
            if self._lacks_copies and now - self._copied_at >= COPY_AGAIN_S:
                self._send_copies(now)
            if now - self._said_at >= KEEP_ALIVE_S:
                self._speaks = True
                self._wake()

    # ------------------------------------------------------------------ to the other node

    def tell(self, news: Iterable[NewsItem]) -> None:
        """Tell it what is subscribed here."""
        if self._link is not None:
            has_room = self.news.put(news)
            self._wake()
            if not has_room:
                self.end("It did not take topic filters as fast as they changed.")

    def note(self, note: Note) -> None:
        """Tell it something about a client that connects, while it is connected."""
        if self.is_connected:
            self._notes.put(note)
            self._wake()

    def blobs(self, now: float) -> Iterable[Blob]:
        """What is to be sent now."""
        control, self._control[:] = list(self._control), ()
        yield from control
        link = self._link
        if link is None:
            return
        yield from self._notes.take(self._me, self._connection)
        self._read(link)
        self._take(link)
        while self._link is link and self._has_more():
            yield self._next(now)
            self._read(link)
        if link.gone and self._link is link:
            self.end(link.connection.close_detail or "The broker ended the session.")
            control, self._control[:] = list(self._control), ()
            yield from control

    def _has_more(self) -> bool:
        """Whether there is something to say, and room for it."""
        if self._packets and self._window.has_room:
            return True
        return self._may_tell_news or self._speaks or self._receipt.owes

    @property
    def _may_tell_news(self) -> bool:
        """Whether there are news, and the next blob can have them."""
        has_news = self.news.waits or not self._is_whole_told
        return has_news and not self._is_cut and self._window.has_room_for_news

    def _next(self, now: float) -> Data:
        may_tell_news = self._may_tell_news
        news = self.news.take() if may_tell_news else []
        packets = b""
        if self._window.has_room:
            packets, self._packets = self._packets[:MAX_BLOB_BYTES], self._packets[MAX_BLOB_BYTES:]
            self._is_cut = len(self._packets) > 0
        told = self.news.sent
        is_whole = may_tell_news and not self._is_whole_told and told >= self.news.whole_after
        self._is_whole_told |= is_whole
        number = self._window.send(len(packets), told)
        self.sent_bytes += len(packets)
        self._receipt.told()
        self._said_at = now
        self._speaks = False
        return Data(
            *(self._me, self._connection, number, self._receipt.kept, is_whole, news, packets),
            notes=self._notes.sent,
            handled=self._receipt.handled,
        )

    def _read(self, link: LocalLink) -> None:
        """Take what the broker has written, if there is room for it."""
        if not self._packets and self._window.has_room:
            packets = link.take()
            self._packets = self._answers.taken_out(packets) if self._answers.due else packets

    # ------------------------------------------------------------------ from the other node

    def on_data(self, blob: Data, now: float) -> None:
        """A part of what it tells."""
        link = self._link
        if link is None or blob.connection != self._connection:  # it has missed the end
            self._put(Close(self._me, blob.connection, "It does not know the connection any more."))
            return
        self._data_at = now
        has_news = len(blob.news) > 0 or blob.is_whole
        if not self._receipt.take(blob.number, len(blob.packets), has_news):
            self.end(f"Blob {self._receipt.received + 1} was lost.")
            return
        if not self._notes.is_whole(blob.notes):
            self.end("Its latest notes were lost.")
            return
        self._is_new &= blob.taken == 0
        self._window.on_answer(blob.taken, blob.handled)
        self.news.taken = self._window.news_kept
        self._wake()
        self._heard.hear(link, blob)
        if blob.packets:
            self.received_bytes += len(blob.packets)
            link.feed(blob.packets)
        if link.gone:
            self.end(link.connection.close_detail or "The broker ended the session.")
        else:
            self._take(link)

    def on_notes(self, blob: Notes, now: float) -> None:
        """What it says about clients that connect."""
        if self._link is None or blob.connection != self._connection:
            self._put(Close(self._me, blob.connection, "It does not know the connection any more."))
            return
        self._data_at = now
        if not self._notes.is_next(blob.number):
            self.end("Some of its notes were lost.")
            return
        self._on_notes(self, blob.notes)

    def _take(self, link: LocalLink) -> None:
        """Tell the other node what was handled, unless the broker is behind, and which of its news are on disk."""
        framer = link.connection.framer
        is_behind = framer.kept_bytes > UNHANDLED_BYTES and not framer.missing_bytes
        if not is_behind and self._receipt.on_handled(self._answers.kept(self._receipt.received)):
            self._wake()

    def _put(self, blob: Blob) -> None:
        self._control.append(blob)
        self._wake()
