"""Queues and streams of other nodes, as clients of this one use them.

`Far` stands between the core and the features: a subscription or message for something that is here goes to the
feature, and one for something at another node goes there. A subscription makes its client a `FarClient`; what is
published waits in the session for the node (`peer`), as all messages for it do. Invariant: each subscription is with
the feature or with one far client.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.log_changes import LoadedOfLog
from mqttlite.core.message import Message
from mqttlite.core.namespace import Namespace
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.route.tally import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED_CODE,
    POLICY_REFUSES,
    QUEUED,
    Tally,
)
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.extensions.nodes.blobs import End, Leave, Note, Reach, Reached, Still
from mqttlite.extensions.nodes.far_clients import Asked, FarClient, FarSession, client_id_of
from mqttlite.extensions.nodes.notes import BLOB_BYTES, NOTE_BYTES
from mqttlite.extensions.nodes.pipes import Pipes
from mqttlite.extensions.nodes.places import Feature, Places
from mqttlite.extensions.nodes.sessions import CLIENT_ID_PREFIX, send_to_node
from mqttlite.extensions.simple_sink import SimpleSink
from mqttlite.net.link import LinkDriver
from mqttlite.topics.namespaces import ParsedTopic, Syntax
from mqttlite.wire.properties import Properties

_FOR_CONSUMERS: Final = frozenset({b"$ack", b"$nack", b"$extend"})
_PACKET_ID_DIGITS: Final = 5

_ACKS: Final = "acks"
"""The user property of a message that is appended to a stream together with acknowledgements. Only the node of the
stream knows whether they hold."""


class Neighbour(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    def note(self, note: Note) -> None: ...


class Far:
    """`peers` are all other nodes by name. `on_answer` is called when a SUBSCRIBE at another node was answered,
    and `refuse` with the client, the filter, the reason code and a sentence when it was refused: it returns whether the
    client is told."""

    def __init__(
        self,
        me: str,
        peers: Mapping[str, Neighbour],
        features: Sequence[Feature],
        core: Broker,
        driver: LinkDriver,
        pipes: Pipes,
        keep_s: int,
        on_news: Callable[[], None],
        on_answer: Callable[[], None],
        refuse: Callable[[str, bytes, int, str], bool],
    ) -> None:
        self._peers: Final = peers
        self._core: Final = core
        self._driver: Final = driver
        self._pipes: Final = pipes
        self._keep_s: Final = keep_s
        self._on_answer: Final = on_answer
        self._refuse: Final = refuse
        self._members: Final[dict[bytes, dict[tuple[str, bytes], tuple[Session, Subscription]]]] = {}
        """All subscriptions to queues and streams: by name, then by client and filter."""
        self._clients: Final[dict[tuple[str, str], FarClient]] = {}
        """By node and client."""
        self._sinks: Final[dict[bytes, FarSink]] = {}
        self._inner: Final[dict[bytes, Namespace]] = {}
        self._asked: Asked | None = None
        self.places: Final = Places(me, features, core, on_news, self._on_moved)
        self._take_over()
        self.places.begin()

    def _take_over(self) -> None:
        """Stand before the features, and find the subscriptions of restored sessions."""
        for namespace in self._core.served:
            if namespace.syntax.first_level in self.places.first_levels:
                self._inner[namespace.syntax.first_level] = namespace
                self._core.serve(_FarNamespace(namespace, self))
        for session in self._core.sessions.values():
            for subscription in session.subscriptions.values():
                parsed = self._core.namespaces.parse_filter(subscription.topic_filter)
                if parsed.has_members:
                    self._members_of(parsed.target)[_key(subscription)] = session, subscription

    def _members_of(self, target: bytes) -> dict[tuple[str, bytes], tuple[Session, Subscription]]:
        return self._members.setdefault(target, {})

    def tick(self) -> None:
        """Called several times a second."""
        self._core.effects.now = self._driver.time()
        for client in list(self._clients.values()):
            if client.is_done:
                self._end(client)
            else:
                client.open()  # its pipe may have ended
        if self.places.tick():
            self._driver.wake()

    # ------------------------------------------------------------------ subscriptions here

    def admit(
        self,
        inner: Namespace,
        session: Session,
        parsed: ParsedTopic,
        expression: str,
        properties: Sequence[tuple[str, str]],
    ) -> str:
        """As `Namespace.admit`."""
        self._asked = None
        is_of_node = session.client_id.startswith(CLIENT_ID_PREFIX)
        if is_of_node and not self.places.has(parsed.target):
            return f"{parsed.target.decode()} is not at this node"  # a client of another node makes nothing here
        if self.places.of(parsed.target) is None:
            return inner.admit(session, parsed, expression, properties)
        self._asked = Asked(expression, list(properties))
        return ""

    def add(self, inner: Namespace, session: Session, subscription: Subscription) -> None:
        """As `Namespace.add`."""
        target = self._target_of(subscription)
        self._members_of(target)[_key(subscription)] = session, subscription
        asked, self._asked = self._asked, None
        if self.places.of(target) is None:
            inner.add(session, subscription)
        else:
            self._want(target, session, subscription, asked)

    def remove(self, inner: Namespace, subscription: Subscription) -> None:
        """As `Namespace.remove`."""
        target = self._target_of(subscription)
        members = self._members.get(target, {})
        known = members.get(_key(subscription))
        if known is None or known[1] is not subscription:
            inner.remove(subscription)
            return
        del members[_key(subscription)]
        if not members:
            del self._members[target]
        place = self.places.of(target)
        if place is None:
            inner.remove(subscription)
        else:
            self._unwant(place.node, subscription)

    def _target_of(self, subscription: Subscription) -> bytes:
        return self._core.namespaces.parse_filter(subscription.topic_filter).target

    def _want(self, target: bytes, session: Session, subscription: Subscription, asked: Asked | None) -> None:
        place = self.places.of(target)
        assert place is not None, "it is at another node"
        key = place.node, session.client_id
        client = self._clients.get(key)
        if client is not None and client.session is not session:  # the client has begun a new one
            self._end(client)
            client = None
        if client is None:
            client = self._clients[key] = self._new_client(place.node, session)
            session.pull_with(client)
        client.want(subscription, asked, place.checks_topics)

    def _new_client(self, node: str, session: Session) -> FarClient:
        peers = self._peers

        def begin_pipe(client: FarClient) -> int:
            pipe = self._pipes.draw(node)
            self._pipes.add(node, pipe, client)
            return pipe

        def put(note: Note) -> None:
            if node in peers:  # else it is lost
                peers[node].note(note)

        return FarClient(
            *(node, session, self._core, self._driver, put, begin_pipe),
            end_pipe=lambda pipe: self._on_end(node, pipe),
            on_answer=self._on_answer,
            on_refused=self._on_refused,
            is_reachable=lambda: node in peers and peers[node].is_connected,
        )

    def _on_refused(self, session: Session, topic_filter: bytes, code: int, reason: str) -> bool:
        """Another node has refused a subscription. Return whether the client is told."""
        if not self._refuse(session.client_id, topic_filter, code, reason):
            return False
        self._core.unsubscribe(session.client_id, topic_filter, self._driver.time())
        return True

    def _on_end(self, node: str, pipe: int) -> None:
        self._pipes.remove(node, pipe)

    def _unwant(self, node: str, subscription: Subscription) -> None:
        client = self._clients.get((node, subscription.client_id))
        if client is not None:
            client.unwant(subscription.topic_filter)
            if client.is_done:
                self._end(client)

    def _end(self, client: FarClient) -> None:
        client.close()
        del self._clients[client.node, client.session.client_id]
        with suppress(ValueError):
            client.session.pull_no_more(client)
        if client.node in self._peers:
            self._peers[client.node].note(Leave(client.session.client_id))

    def awaited(self, client_id: str) -> list[str]:
        """The nodes that have not answered a SUBSCRIBE of a client yet."""
        return [
            node
            for node, peer in self._peers.items()
            if peer.is_connected
            and (client := self._clients.get((node, client_id))) is not None
            and client.awaits_answer
        ]

    def command(self, node: str, client_id: str, message: Message) -> bool:
        """Send the command of a consumer the way of its acknowledgements, in order with them. False if it consumes from
        nothing there."""
        client = self._clients.get((node, client_id))
        return client is not None and client.command(message)

    def ack_id(self, node: str, client_id: str, packet_id: int) -> str:
        """The `ack-id` of a message that a client got from a node under a packet identifier; empty if not known."""
        client = self._clients.get((node, client_id))
        return "" if client is None else client.ack_id(packet_id)

    def check(self) -> None:
        """Other rules are in force: end what clients may no longer consume, and begin again what they may."""
        for target, members in list(self._members.items()):
            place = self.places.of(target)
            if place is not None:
                for session, subscription in list(members.values()):
                    client = self._clients.get((place.node, session.client_id))
                    if not self._core.permissions.may_subscribe(session, target):
                        self._unwant(place.node, subscription)
                    elif client is None or not client.wants(subscription):
                        self._want(target, session, subscription, None)

    # ------------------------------------------------------------------ a queue or stream is elsewhere now

    def _on_moved(self, target: bytes) -> None:
        """A queue or stream is at another node, or here, or nowhere."""
        sink = self._sinks.pop(target, None)
        if sink is not None:
            self._core.unbind(target + b"/#", sink)
        place = self.places.of(target)
        inner = self._inner[target.partition(b"/")[0]]
        if place is not None:
            sink = self._sinks[target] = FarSink(target, inner.syntax, place.node, self, self._core)
            self._core.bind(target + b"/#", sink, hears_others=True, is_alone=True)
        for session, subscription in list(self._members.get(target, {}).values()):
            for client in [each for each in self._clients_of(session.client_id) if each.wants(subscription)]:
                self._unwant(client.node, subscription)
            if place is not None:
                inner.remove(subscription)
                self._want(target, session, subscription, None)
            elif self.places.has(target):
                self._bring_home(inner, session, subscription)
        self._driver.wake()

    def _bring_home(self, inner: Namespace, session: Session, subscription: Subscription) -> None:
        parsed = self._core.namespaces.parse_filter(subscription.topic_filter)
        if not inner.admit(session, parsed, "", ()):
            inner.add(session, subscription)

    def _clients_of(self, client_id: str) -> Iterator[FarClient]:
        for node in self._peers:
            client = self._clients.get((node, client_id))
            if client is not None:
                yield client

    # ------------------------------------------------------------------ other nodes

    def on_connected(self, node: str) -> None:
        """A node is connected."""
        self.places.on_connected(node)
        self._ask_who_is_left(node)
        for client in [each for each in self._clients.values() if each.node == node]:
            client.open()

    def _ask_who_is_left(self, node: str) -> None:
        """Clients may have ended their sessions while the two nodes did not hear each other."""
        prefix = client_id_of(node, "")
        left = [
            each.client_id.removeprefix(prefix)
            for each in self._core.sessions.values()
            if each.outbox is None and each.client_id.startswith(prefix)
        ]
        some: list[str] = []
        size = 0
        for client_id in left:
            some.append(client_id)
            size += NOTE_BYTES + 4 * len(client_id)
            if size >= BLOB_BYTES // 2:
                self._peers[node].note(Still(some))
                some, size = [], 0
        if some:
            self._peers[node].note(Still(some))

    def on_note(self, peer: Neighbour, note: Reach | Reached | Leave | Still) -> None:
        """A client of another node consumes from something here, or from nothing any more; or one of this node can
        begin there."""
        name = peer.name
        if isinstance(note, Reached):
            client = self._pipes.get(name, note.pipe)
            if isinstance(client, FarClient):
                client.on_reached(note)
            return
        if isinstance(note, Still):
            for client_id in note.client_ids:
                if (name, client_id) not in self._clients:
                    peer.note(Leave(client_id))
            return
        if isinstance(note, Leave):
            self._core.end_session(client_id_of(name, note.client_id), self._driver.time())
            self._driver.wake()
            return
        try:
            end = FarSession(
                *(name, note, self._keep_s, self._core, self._driver, peer.note),
                on_over=lambda: self._on_end(name, note.pipe),
            )
        except (ConnectionRefusedError, ValueError) as error:
            peer.note(Reached(note.pipe, [], refusal=str(error)))
            peer.note(End(note.pipe))
            return
        self._pipes.add(name, note.pipe, end)
        end.begin()


class _FarNamespace:
    """Implements `Namespace`, before that of a feature."""

    def __init__(self, inner: Namespace, far: Far) -> None:
        self._inner: Final = inner
        self._far: Final = far

    @property
    def syntax(self) -> Syntax:
        return self._inner.syntax

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        return self._far.admit(self._inner, session, parsed, expression, properties)

    def missing(self, parsed: ParsedTopic) -> str:
        return "" if self._far.places.of(parsed.target) is not None else self._inner.missing(parsed)

    def add(self, session: Session, subscription: Subscription) -> None:
        self._far.add(self._inner, session, subscription)

    def remove(self, subscription: Subscription) -> None:
        self._far.remove(self._inner, subscription)

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        return self._inner.keep_invalid(sinks, message, reason)

    def refuse_ephemeral(self, sinks: list[Sink], policy: str) -> list[Sink]:
        return self._inner.refuse_ephemeral(sinks, policy)

    def restore(self, change: LoadedOfLog) -> None:
        self._inner.restore(change)

    def restored(self) -> None:
        self._inner.restored()


class FarSink(SimpleSink):
    """A `Sink`: what is published to a queue or stream of another node goes there."""

    def __init__(self, target: bytes, syntax: Syntax, node: str, far: Far, core: Broker) -> None:
        self._syntax: Final = syntax
        self._shown: Final = target.decode()
        self._node: Final = node
        self._far: Final = far
        self._core: Final = core

    def _session(self) -> Session | None:
        return self._core.sessions.get(CLIENT_ID_PREFIX + self._node)

    def has_room(self, message: Message, qos: int) -> bool:
        session = self._session()
        return session is None or session.has_room(message, qos)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        return [planned_sink(self._shown, QUEUED, "", f"it is at node {self._node}")]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        action = message.topic.partition(b"/")[2].partition(b"/")[2].partition(b"/")[0]
        session = self._session()
        if not (self._syntax.takes_messages or action.startswith(b"$")):
            tally.code, tally.refusal = NO_MATCHING_SUBSCRIBERS, self._syntax.name_refusal
            return
        if session is None or (source.identity.mount_point and action not in _FOR_CONSUMERS):
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        if action in _FOR_CONSUMERS:
            message = self._with_ack_ids(message, source)
            if self._far.command(self._node, source.client_id, message):
                tally.sent += 1
                return
        elif any(key == _ACKS for key, _ in message.properties.user_properties):
            tally.code = POLICY_REFUSES
            tally.refusal = f"acks: publish that at node {self._node}, which has {self._shown}"
            return
        elif not self._may_answer(message, source):
            tally.code = NOT_AUTHORIZED_CODE
            tally.refusal = "an answer goes to a plain topic to which the publisher of the command may publish"
            return
        send_to_node(session, message, (), tally)

    def _may_answer(self, message: Message, source: Source) -> bool:
        """Whether the publisher of a command may publish to the topic for the answer. The other node does not ask."""
        levels = message.topic.split(b"/", 3)
        if len(levels) < 3 or not levels[2].startswith(b"$"):
            return True
        wanted = (message.properties.response_topic or "").encode() or b"".join(levels[3:])
        return not wanted or self._core.permissions.may_publish(source, wanted)

    def _with_ack_ids(self, message: Message, source: Source) -> Message:
        """A command of a consumer, with an `ack-id` in place of each packet identifier of this node."""
        correlation = message.properties.correlation_data
        if correlation is not None:
            named = self._ack_id(correlation, source)
            if named == correlation:
                return message
            return self._changed(message, message.payload, Properties(correlation_data=named))
        lines = []
        for line in message.payload.split(b"\n"):
            given, space, seconds = line.strip().partition(b" ")
            lines.append(self._ack_id(given, source) + space + seconds)
        payload = b"\n".join(lines)
        return message if payload == message.payload else self._changed(message, payload, message.properties)

    def _ack_id(self, given: bytes, source: Source) -> bytes:
        if len(given) > _PACKET_ID_DIGITS or not given.isdigit():
            return given
        return self._far.ack_id(self._node, source.client_id, int(given)).encode() or given

    def _changed(self, message: Message, payload: bytes, properties: Properties) -> Message:
        changed = Message(message.topic, payload, message.qos, False, properties, message.expires_at)
        self._core.effects.identify(changed)
        return changed


def _key(subscription: Subscription) -> tuple[str, bytes]:
    return subscription.client_id, subscription.topic_filter
