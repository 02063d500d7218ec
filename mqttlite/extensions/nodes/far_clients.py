"""Clients that consume from queues and streams of other nodes.

For each client and node there is a pipe (`pipes`), through which MQTT 5.0 packets pass. At the node of the queue or
stream it is a session like any other (`FarSession`), which gets and acknowledges messages, and is paced by its window.
At the node of the client its messages are lent to the client's session, and each acknowledgement of the client goes
back (`FarClient`). So no message is kept twice, and leases, attempts, groups and positions are those of one node.

Invariant: a message is acknowledged at its node only after the client has acknowledged it.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

from mqttlite.core.broker import Broker
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.relayed import number_of
from mqttlite.core.route.requested_filters import PROPERTY as FILTER_PROPERTY
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.nodes.blobs import End, Note, Reach, Reached
from mqttlite.extensions.nodes.notes import BLOB_BYTES, NOTE_BYTES
from mqttlite.extensions.nodes.pipes import Flow
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalClient, LocalLink, packet_at
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import (
    Ack,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
)
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, ReasonCode

KEEP_S: Final = 60
"""How long the session of a client at the node of a queue or stream is kept at least while the two nodes are apart."""

MAX_ACK_IDS: Final = 1_000
"""For how many messages of a client the `ack-id` is known here, so that it can name them by packet identifiers."""

ACK_ID: Final = "ack-id"

AGAIN_S: Final = 10.0
"""When a node that had no room for the session of a client is asked again."""

_NO_PROPERTIES: Final[list[tuple[str, str]]] = []

_log = logging.getLogger("mqttlite.nodes")


class Asked(NamedTuple):
    """What a SUBSCRIBE asks for beside its filter."""

    expression: str
    properties: list[tuple[str, str]]

    def told(self) -> list[tuple[str, str]]:
        """As user properties."""
        told = [each for each in self.properties if each[0] != FILTER_PROPERTY]
        return [*told, (FILTER_PROPERTY, self.expression)] if self.expression else told


class _Wanted:
    """One subscription of the client to something at the node."""

    __slots__ = ("asked", "checks_topics", "is_new", "number", "subscription")

    def __init__(self, subscription: Subscription, asked: Asked | None, checks_topics: bool) -> None:
        self.subscription: Final = subscription
        self.number: Final = number_of(subscription.topic_filter)
        """The subscription identifier in the pipe: the same for a filter after a restart."""
        self.asked: Final = asked
        """None: it is not from a SUBSCRIBE of now, and so not known."""
        self.is_new: bool = asked is not None
        """Whether the other node is to be told even if it has one with this filter."""
        self.checks_topics: Final = checks_topics


class _Lent:
    """An `Origin`: one message that the client has."""

    __slots__ = ("_client", "_flow", "_packet_id")
    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, client: "FarClient", flow: Flow, packet_id: int) -> None:
        self._client: Final = client
        self._flow: Final = flow
        self._packet_id: Final = packet_id

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        self._client.on_settled(self._flow, self._packet_id, reason_code)

    def returned(self, delivery: Delivery) -> bool:
        return True  # the pipe ends, too, and with it the attempt


class FarClient:
    """A `Puller` and a `PipeEnd`: a client here, and what it consumes at one other node. `begin_pipe` gives the number
    of a new pipe, and `end_pipe` is called at its end. `on_answer` is called when a SUBSCRIBE was answered, and
    `on_refused` before, when it was refused: it returns whether the client is told. `is_reachable` says whether the
    node is connected."""

    def __init__(
        self,
        node: str,
        session: Session,
        core: Broker,
        driver: LinkDriver,
        put: Callable[[Note], None],
        begin_pipe: Callable[["FarClient"], int],
        end_pipe: Callable[[int], None],
        on_answer: Callable[[], None],
        on_refused: Callable[[Session, bytes, int, str], bool],
        is_reachable: Callable[[], bool],
    ) -> None:
        self.node: Final = node
        self.session: Final = session
        self._core: Final = core
        self._driver: Final = driver
        self._put: Final = put
        self._begin_pipe: Final = begin_pipe
        self._end_pipe: Final = end_pipe
        self._on_answer: Final = on_answer
        self._on_refused: Final = on_refused
        self._is_reachable: Final = is_reachable
        self._flow: Flow | None = None
        self._is_connected = False
        self._bytes = b""
        self._wanted: Final[dict[bytes, _Wanted]] = {}
        self._unanswered: Final[dict[int, bytes]] = {}
        """Filters by the packet identifier of their SUBSCRIBE."""
        self._pending: Final[deque[Publish]] = deque()
        """Messages for which the client has no room."""
        self._reached: list[bytes] = []
        """What the session there subscribes to, as far as it was told."""
        self._again_at = 0.0
        """When a pipe that was refused is tried again."""
        self._lent = 0
        """How many messages the client has not acknowledged."""
        self._packet_id = 0
        self._ack_ids: Final[OrderedDict[int, str]] = OrderedDict()
        """By packet identifier here, the latest last."""

    @property
    def is_done(self) -> bool:
        """Whether the client wants nothing there, and has acknowledged what it got."""
        return not self._wanted and not self._lent

    @property
    def awaits_answer(self) -> bool:
        """Whether the other node has not answered a SUBSCRIBE yet."""
        return len(self._unanswered) > 0 or (self._flow is not None and not self._is_connected)

    @property
    def flow(self) -> Flow:
        """As `PipeEnd`."""
        assert self._flow is not None, "the pipe is open"
        return self._flow

    def ack_id(self, packet_id: int) -> str:
        """The `ack-id` of a message that the client got under a packet identifier; empty if it is not known."""
        return self._ack_ids.get(packet_id, "")

    def wants(self, subscription: Subscription) -> bool:
        """Whether it consumes by that subscription."""
        wanted = self._wanted.get(subscription.topic_filter)
        return wanted is not None and wanted.subscription is subscription

    # ------------------------------------------------------------------ what it wants

    def want(self, subscription: Subscription, asked: Asked | None, checks_topics: bool) -> None:
        """The client subscribes, or does so again."""
        wanted = self._wanted[subscription.topic_filter] = _Wanted(subscription, asked, checks_topics)
        if self._is_connected:
            self._subscribe(wanted)
        else:
            self.open()

    def unwant(self, topic_filter: bytes) -> None:
        """It does so no longer."""
        if self._wanted.pop(topic_filter, None) is not None and self._is_connected:
            self._send(Unsubscribe(self._next_packet_id(), (topic_filter,)))

    def open(self) -> None:
        """Begin the pipe, if the client is connected and there is none. Called when the other node is connected,
        and several times a second."""
        session = self.session
        if self._flow is not None or session.outbox is None or not self._wanted or not self._is_reachable():
            return
        if self._driver.time() < self._again_at:
            return
        pipe = self._begin_pipe(self)
        self._flow = Flow(pipe, self._put, lambda _is_full: None)
        identity = session.identity
        self._put(
            Reach(
                *(pipe, session.client_id, identity.username, identity.mount_point),
                keep_s=max(session.expiry_interval, KEEP_S),
                receive_maximum=max(1, session.window.size),
            )
        )

    def close(self) -> None:
        """End the pipe. What the client has not acknowledged goes back."""
        flow, self._flow = self._flow, None
        if flow is not None:
            flow.put(End(flow.pipe))
            self._forget(flow)

    def on_end(self) -> None:
        """As `PipeEnd`: the other node has ended it, or is out of reach."""
        flow, self._flow = self._flow, None
        if flow is not None:
            self._forget(flow)

    def _forget(self, flow: Flow) -> None:
        self._end_pipe(flow.pipe)
        self._is_connected = False
        self._bytes = b""
        self._reached = []
        self._pending.clear()
        self._lent = 0
        self._unanswered.clear()
        self._ack_ids.clear()
        self._on_answer()

    # ------------------------------------------------------------------ from the other node

    def on_bytes(self, data: bytes) -> None:
        """As `PipeEnd`."""
        flow = self._flow
        assert flow is not None, "the pipe is open"
        flow.took(len(data))
        self._core.effects.now = self._driver.time()
        data = self._bytes + data
        start = 0
        while self._flow is flow:
            size = packet_size(data, start) if len(data) - start >= 2 else 0
            if size == 0 or start + size > len(data):
                break
            self._take(packet_at(data, start, start + size))
            start += size
        if self._flow is flow:
            self._bytes = data[start:]
            flow.hold(len(self._pending) > self.session.window.size)
        self._driver.wake()

    def on_reached(self, reached: Reached) -> None:
        """The client has a session there, or a part of what that subscribes to was told."""
        if reached.refusal:
            self._on_no_session(reached.refusal)
            return
        self._reached += reached.filters
        if not reached.is_whole:
            return
        filters, self._reached = self._reached, []
        self._is_connected = True
        for topic_filter in filters:
            if topic_filter not in self._wanted:
                self._send(Unsubscribe(self._next_packet_id(), (topic_filter,)))
        for wanted in self._wanted.values():
            if wanted.is_new or wanted.subscription.topic_filter not in filters:
                self._subscribe(wanted)
        self._on_answer()

    def _on_no_session(self, why: str) -> None:
        """The other node has no room for its session."""
        self._again_at = self._driver.time() + AGAIN_S
        _log.warning("client %r has no session at node %s: %s", self.session.client_id, self.node, why)
        for wanted in [each for each in self._wanted.values() if each.is_new]:
            wanted.is_new = False
            topic_filter = wanted.subscription.topic_filter
            self._on_refused(self.session, topic_filter, ReasonCode.QUOTA_EXCEEDED, f"node {self.node}: {why}")

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if self._pending or not self.session.can_borrow:
                self._pending.append(packet)
            else:
                self._deliver(packet)
        elif isinstance(packet, Suback | Unsuback):
            topic_filter = self._unanswered.pop(packet.packet_id, b"")
            wanted = self._wanted.get(topic_filter)
            if wanted is not None and isinstance(packet, Suback):
                wanted.is_new = False
            code, reason = packet.reason_codes[0], packet.properties.reason_string or ""
            if code >= SUBACK_FAILURE and not self._on_refused(self.session, topic_filter, code, reason):
                _log.warning(
                    "client %r gets nothing of %r at node %s, which answered with 0x%02x: %s",
                    *(self.session.client_id, topic_filter.decode(), self.node, code, reason or "no reason"),
                )
            self._on_answer()

    def _subscribe(self, wanted: _Wanted) -> None:
        subscription = wanted.subscription
        properties = Properties(
            user_properties=_NO_PROPERTIES if wanted.asked is None else wanted.asked.told(),
            subscription_identifiers=[wanted.number],
        )
        packet_id = self._next_packet_id()
        self._unanswered[packet_id] = subscription.topic_filter
        request = SubscriptionRequest(subscription.topic_filter, subscription.qos)
        self._send(Subscribe(packet_id, (request,), properties))

    # ------------------------------------------------------------------ messages

    def on_room(self) -> None:
        """Implements `Puller`: also when the client has connected."""
        if self._flow is None:
            self.open()
            return
        if not self._wanted:
            self._pending.clear()  # they go back at the end of the session there
        while self._pending and self.session.can_borrow:
            self._deliver(self._pending.popleft())
        self._flow.hold(len(self._pending) > self.session.window.size)

    def on_gone(self) -> None:
        """Implements `Puller`: the client is not connected any more."""
        self.close()

    def _deliver(self, packet: Publish) -> None:
        """Send a message to the client. It has room for one."""
        flow, session = self._flow, self.session
        assert flow is not None, "the message came by it"
        properties = packet.properties
        numbers, properties.subscription_identifiers = properties.subscription_identifiers, []
        by = [each for each in self._wanted.values() if each.number in numbers]
        identifiers = tuple([each.subscription.identifier for each in by if each.subscription.identifier])
        expiry = properties.message_expiry_interval
        message = Message(
            session.identity.mount_point + packet.topic,
            *(packet.payload, packet.qos, False, properties),
            0.0 if expiry is None else self._core.effects.now + expiry,
        )
        if any(each.checks_topics for each in by) and not session.may_receive(message.topic):
            self._refuse(packet, by)
        elif packet.qos == 0:
            session.deliver_qos0(Delivery(message, 0, False, identifiers))
        else:
            packet_id = session.lend(Delivery(message, 1, False, identifiers, _Lent(self, flow, packet.packet_id)))
            if packet_id == 0:
                self._acknowledge(flow, packet.packet_id, ReasonCode.PACKET_TOO_LARGE)
                return
            self._lent += 1
            ack_id = next((value for key, value in properties.user_properties if key == ACK_ID), "")
            if ack_id:
                self._ack_ids[packet_id] = ack_id
                self._ack_ids.move_to_end(packet_id)
                if len(self._ack_ids) > MAX_ACK_IDS:
                    self._ack_ids.popitem(last=False)

    def _refuse(self, packet: Publish, by: list[_Wanted]) -> None:
        """The client may not have a message of its queue: it gets no more of that, and others get it."""
        for wanted in by:
            self.unwant(wanted.subscription.topic_filter)
        if packet.qos and self._flow is not None:
            self._acknowledge(self._flow, packet.packet_id, ReasonCode.NOT_AUTHORIZED)

    def on_settled(self, flow: Flow, packet_id: int, reason_code: int) -> None:
        """The client has acknowledged a message, which came by that pipe."""
        if self._flow is flow:
            self._lent -= 1
            self._acknowledge(flow, packet_id, reason_code)

    def _acknowledge(self, flow: Flow, packet_id: int, reason_code: int) -> None:
        if self._flow is flow:
            flow.send(encode(Ack(PUBACK, packet_id, reason_code), V5))

    def command(self, message: Message) -> bool:
        """Send a command about messages of this connection. False if there is none."""
        if not self._is_connected:
            return False
        self._send(Publish(message.topic, message.payload, 1, False, False, self._next_packet_id(), message.properties))
        return True

    def _send(self, packet: Packet) -> None:
        self.flow.send(encode(packet, V5))

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id


class FarSession:
    """A `PipeEnd`: the session here of a client of another node. Raises `ConnectionRefusedError` if the broker has no
    room for it, and `ValueError` for a client identifier that is too long. `on_over` is called at the end."""

    def __init__(
        self,
        node: str,
        reach: Reach,
        keep_s: int,
        core: Broker,
        driver: LinkDriver,
        put: Callable[[Note], None],
        on_over: Callable[[], None],
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._on_over: Final = on_over
        self._is_full = False
        self._is_called = False
        self._is_over = False
        self._link: Final = LocalLink(core, driver, self._on_readable, "node", "local", node)
        self.flow: Final = Flow(reach.pipe, put, self._on_full)
        client = LocalClient(
            client_id=client_id_of(node, reach.client_id),
            clean_start=False,
            session_expiry_s=min(reach.keep_s, keep_s),
            username=reach.username,
            mount_point=reach.mount_point,
            is_trusted=True,
        )
        self._link.connect(client, reach.receive_maximum)

    def begin(self) -> None:
        """Tell the other node that it is there, before its first bytes."""
        session = self._link.connection.session
        assert session is not None, "it is connected"
        filters: list[bytes] = []
        size = 0
        for topic_filter in session.subscriptions:
            filters.append(topic_filter)
            size += NOTE_BYTES + len(topic_filter)
            if size >= BLOB_BYTES // 2:
                self.flow.put(Reached(self.flow.pipe, filters, is_whole=False))
                filters, size = [], 0
        self.flow.put(Reached(self.flow.pipe, filters))

    def _on_readable(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_called = False
        if self._is_over:
            return
        if not self._is_full:
            packets = self._link.take()
            if packets:
                self.flow.send(packets)
        if self._link.gone:
            self.flow.put(End(self.flow.pipe))
            self._end()

    def on_bytes(self, data: bytes) -> None:
        """As `PipeEnd`."""
        self.flow.took(len(data))
        self._link.feed(data)

    def on_end(self) -> None:
        """As `PipeEnd`. The session stays for a time."""
        if not self._link.gone:
            self._link.leave()
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._on_over()

    def _on_full(self, is_full: bool) -> None:
        self._is_full = is_full
        self._on_readable()


def client_id_of(node: str, client_id: str) -> str:
    """That of the session here of a client of another node."""
    return f"{CLIENT_ID_PREFIX}{node}/{client_id}"
