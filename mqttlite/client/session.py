"""The state that outlives one connection of a client: messages in flight, identifiers received, subscriptions, and
requests that wait for an answer.

No socket and no clock here. Invariants: a QoS 2 message is put into the inbox once [MQTT-4.3.3-10]; a message of a
stream or queue that nobody reads yet is not acknowledged.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, final

from mqttlite.client.errors import MqttError, SubscribeRefused
from mqttlite.client.inbox import Inbox
from mqttlite.client.inflight import PacketIds, Window
from mqttlite.client.limits import ServerLimits
from mqttlite.client.message import Message
from mqttlite.client.receipts import Receipt, Receipts
from mqttlite.client.topics import matches
from mqttlite.wire.constants import PACKET_NAMES, PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.encode import encode, encode_ack
from mqttlite.wire.errors import ProtocolError, ReceiveMaximumExceeded, TopicAliasInvalid
from mqttlite.wire.packets import Ack, Packet, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

Answer: TypeAlias = Suback | Unsuback

FIRST_READER_IDENTIFIER: Final = 0xF00_0000
"""Subscription identifiers from here to the highest one (0xFFF_FFFF) are those of readers: programs begin with 1."""

_log: Final = logging.getLogger("mqttlite.client")


class Reader(Protocol):
    """Takes the messages of one subscription, and has them acknowledged. None of these may raise."""

    def on_message(self, packet: Publish, receipt: Receipt, /) -> None: ...
    def on_former(self, packet: Publish, receipt: Receipt, /) -> None:
        """SUBACK came, and before it this message of a former subscription to the same filter."""

    def on_connection_lost(self) -> None: ...
    def on_end(self, error: MqttError, /) -> None: ...


class Place(Protocol):
    """Where messages of some topics go in place of the program's inbox. It may not raise."""

    @property
    def is_awaited(self) -> bool: ...
    def put(self, message: Message, /) -> None: ...
    def end(self, error: MqttError, /) -> None: ...


@final
class _Registered:
    """A reader and the filter to which it subscribes."""

    __slots__ = ("identifier", "is_subscribed", "reader", "topic_filter")

    def __init__(self, reader: Reader, topic_filter: bytes, identifier: int) -> None:
        self.reader: Final = reader
        self.topic_filter: Final = topic_filter
        self.identifier: Final = identifier
        self.is_subscribed = False
        """Whether its SUBACK came: messages before it are those of a former subscription."""


@final
class _Question:
    """A SUBSCRIBE or UNSUBSCRIBE that waits for its answer; asked again in the next connection if this one ends.

    One that is `ours` was not asked by the program: it brings subscriptions back that a server lost.
    """

    __slots__ = ("answer", "frame", "ours", "packet")

    def __init__(self, packet: Subscribe | Unsubscribe, frame: bytes, ours: bool) -> None:
        self.packet: Final = packet
        self.frame: Final = frame
        self.ours: Final = ours
        self.answer: Final[asyncio.Future[Answer]] = asyncio.get_running_loop().create_future()


@final
class Session:
    """Feeds on packets; answers through `write` while there is a connection."""

    def __init__(
        self,
        version: int,
        receive_maximum: int,
        inbox: Inbox,
        on_room: Callable[[], None],
        on_refused: Callable[[MqttError], None],
    ) -> None:
        self._version: Final = version
        self._on_refused: Final = on_refused
        self._receive_maximum: Final = receive_maximum
        self._inbox: Final = inbox
        self._ids: Final = PacketIds()
        self.window: Final = Window(self._ids, version, on_room)
        self._questions: dict[int, _Question] = {}
        self.authenticating = False
        """Whether the program waits for an AUTH."""
        self._received: set[int] = set()  # QoS 2 identifiers between PUBLISH and PUBREL
        self.receipts: Final = Receipts(version, receive_maximum, self._received.discard)
        self._readers: Final[dict[Reader, _Registered]] = {}
        self._by_identifier: Final[dict[int, _Registered]] = {}
        self._held: list[tuple[int, Publish]] = []
        """Messages of a kept session for readers that are not there yet, with the subscription identifiers."""
        self._places: Final[dict[str, Place]] = {}
        """By the topic of which they take the messages."""
        self._filtered: Final[list[tuple[str, Inbox]]] = []
        """Inboxes of their own, with the filters of their messages."""
        self._subscriptions: dict[bytes, tuple[SubscriptionRequest, Properties]] = {}
        self._write: Callable[[bytes], object] | None = None
        self._limits = ServerLimits()

    @property
    def full(self) -> bool:
        """Whether the next PUBLISH must wait for the program."""
        awaiting_answer = (
            bool(self.window.unacknowledged or self._questions)
            or self.authenticating
            or any(place.is_awaited for place in self._places.values())
        )
        is_full = self._inbox.is_full(awaiting_answer=awaiting_answer)
        for _filter, inbox in self._filtered:
            is_full = inbox.is_full(awaiting_answer=awaiting_answer) or is_full
        return is_full

    def suspend(self) -> None:
        """The connection is gone."""
        self._write = None
        self.window.suspend()
        self.receipts.suspend()
        self._held.clear()  # the server sends them again
        for reader in list(self._readers):
            reader.on_connection_lost()

    def resume(self, write: Callable[[bytes], object], limits: ServerLimits, *, session_present: bool) -> None:
        """A connection is there: go on where the last one ended."""
        self._write, self._limits = write, limits
        if not session_present:
            self._received.clear()
        self.receipts.resume(write, session_present=session_present)
        for question in list(self._questions.values()):
            if question.ours and not session_present:
                question.answer.cancel()
            else:
                write(question.frame)
        if not session_present:
            self._subscribe_again()
        self.window.resume(write, limits, session_present=session_present)

    def fail(self, error: MqttError) -> None:
        """There will be no more connections: everybody who waits hears it."""
        self.window.fail(error)
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(error)
        for reader in list(self._readers):
            reader.on_end(error)
        for place in self._places.values():
            place.end(error)
        for _filter, inbox in self._filtered:
            inbox.end(error)

    def read_with(self, reader: Reader, topic_filter: bytes) -> int:
        """Hand the messages of a filter to a reader from its next SUBACK on; the subscription identifier that the
        SUBSCRIBE must have. It is the same after a restart, so that messages of a kept session wait for their reader.
        """
        identifier = _identifier_of(topic_filter)
        while identifier in self._by_identifier and self._by_identifier[identifier].topic_filter != topic_filter:
            identifier = identifier + 1 if identifier < 0xFFF_FFFF else FIRST_READER_IDENTIFIER
        registered = _Registered(reader, topic_filter, identifier)
        self._readers[reader] = self._by_identifier[identifier] = registered
        return identifier

    def may_use(self, identifier: int) -> bool:
        """Whether a SUBSCRIBE may have a subscription identifier: it is the program's, or that of a reader here."""
        return identifier < FIRST_READER_IDENTIFIER or identifier in self._by_identifier

    def leave(self, reader: Reader) -> None:
        """Unsubscribe a reader, and forget it when the server has answered: until then messages are under way to it.
        Raises `MqttError` if all packet identifiers are in use."""
        registered = self._readers[reader]
        answer = self.unsubscribe((registered.topic_filter,), NONE)
        answer.add_done_callback(partial(self._forget, registered))

    def _forget(self, registered: _Registered, answer: asyncio.Future[Answer]) -> None:
        ignore(answer)
        if self._readers.get(registered.reader) is registered:  # it did not subscribe again
            del self._readers[registered.reader]
        if self._by_identifier.get(registered.identifier) is registered:
            del self._by_identifier[registered.identifier]

    def take(self, topic: str, place: Place | None) -> None:
        """Put the messages of a topic there; None: into the inbox again."""
        if place is None:
            self._places.pop(topic, None)
        else:
            self._places[topic] = place

    def take_filtered(self, topic_filter: str, inbox: Inbox) -> None:
        """Put the messages that a filter takes into an inbox of their own; the first one that takes it has it."""
        self._filtered.append((topic_filter, inbox))

    def subscribe(self, requests: tuple[SubscriptionRequest, ...], properties: Properties) -> asyncio.Future[Answer]:
        """Ask for subscriptions; those that are granted are remembered."""
        return self._ask(Subscribe(self._ids.take(), requests, properties))

    def unsubscribe(self, topic_filters: tuple[bytes, ...], properties: Properties) -> asyncio.Future[Answer]:
        """End subscriptions; they are forgotten at once, so that no reconnection brings them back."""
        for topic_filter in topic_filters:
            self._subscriptions.pop(topic_filter, None)
        return self._ask(Unsubscribe(self._ids.take(), topic_filters, properties))

    def is_subscribed(self, topic_filter: bytes) -> bool:
        """Whether a subscription to the filter was granted and not ended."""
        return topic_filter in self._subscriptions

    def subscribe_again_with(self, topic_filter: bytes, name: str, value: str) -> None:
        """Ask for a subscription with another value of its user property, if the server loses the session."""
        request, properties = self._subscriptions.get(topic_filter, (None, NONE))
        if request is not None:
            fields: dict[str, Any] = dict(properties.present())
            others = [each for each in properties.user_properties if each[0] != name]
            fields["user_properties"] = [*others, (name, value)]
            self._subscriptions[topic_filter] = (request, Properties(**fields))

    def _ask(self, packet: Subscribe | Unsubscribe, *, ours: bool = False) -> asyncio.Future[Answer]:
        packet_id = packet.packet_id
        try:
            question = _Question(packet, encode(packet, self._version), ours)
            if len(question.frame) > self._limits.maximum_packet_size:
                raise MqttError(f"The server takes packets of at most {self._limits.maximum_packet_size} bytes.")
        except BaseException:
            self._ids.release(packet_id)
            raise

        def forget(_answer: asyncio.Future[Answer]) -> None:
            del self._questions[packet_id]
            self._ids.release(packet_id)

        self._questions[packet_id] = question
        question.answer.add_done_callback(forget)
        if self._write is not None:
            self._write(question.frame)
        return question.answer

    def _subscribe_again(self) -> None:
        """Ask a server that lost the session for what was granted, in packets with equal properties."""
        groups: list[tuple[Properties, list[SubscriptionRequest]]] = []
        for request, properties in self._subscriptions.values():
            if groups and groups[-1][0] == properties:
                groups[-1][1].append(request)
            else:
                groups.append((properties, [request]))
        for properties, requests in groups:
            asked = Subscribe(self._ids.take(), tuple(requests), properties)
            self._ask(asked, ours=True).add_done_callback(partial(self._on_asked_again, asked.requests))

    def _on_asked_again(self, requests: tuple[SubscriptionRequest, ...], answer: asyncio.Future[Answer]) -> None:
        """A subscription that was granted and is refused now would be a silent hole: the client ends with it."""
        if answer.cancelled() or answer.exception() is not None:
            return
        refusal = refusal_of(requests, answer.result())
        if refusal is not None:
            self._on_refused(refusal)

    def on_packet(self, packet: Packet) -> None:
        """React to a packet of the server. Raises `PeerError` for one that may not come."""
        if isinstance(packet, Publish):
            self._on_publish(packet)
        elif isinstance(packet, Ack):
            self._on_ack(packet)
        elif isinstance(packet, Suback | Unsuback):
            self._on_answer(packet)
        else:
            raise ProtocolError(f"a server does not send {type(packet).__name__.upper()} here")

    def _on_answer(self, answer: Answer) -> None:
        question = self._questions.get(answer.packet_id)
        if question is None or question.answer.done():
            return
        asked = question.packet
        if isinstance(asked, Subscribe) != isinstance(answer, Suback):
            raise ProtocolError(f"{type(answer).__name__.upper()} answers {type(asked).__name__.upper()}")
        if isinstance(asked, Subscribe):
            if len(answer.reason_codes) != len(asked.requests):
                raise ProtocolError("SUBACK with another number of codes than filters [MQTT-3.8.4-6]")
            for request, code in zip(asked.requests, answer.reason_codes, strict=True):
                if code < 0x80:
                    self._subscriptions[request.topic_filter] = (request, asked.properties)
                    self._begin_readers(asked.properties)
        elif self._held:
            for topic_filter, code in zip(asked.topic_filters, answer.reason_codes, strict=True):
                if code < 0x80:
                    self._refuse_held(_identifier_of(topic_filter))
        question.answer.set_result(answer)

    def _on_publish(self, packet: Publish) -> None:
        assert self._write is not None, "a message came without a connection"
        if packet.properties.topic_alias is not None:
            raise TopicAliasInvalid("a topic alias, where none were allowed [MQTT-3.1.2-26]")
        packet_id, qos = packet.packet_id, packet.qos
        if qos == 2:
            if packet_id in self._received:
                self.receipts.came_again(packet_id)
                return
            if len(self._received) >= self._receive_maximum:
                raise ReceiveMaximumExceeded(f"more than {self._receive_maximum} messages [MQTT-3.1.2-27]")
            self._received.add(packet_id)
        identifier = 0
        for each in packet.properties.subscription_identifiers:
            if each >= FIRST_READER_IDENTIFIER:
                identifier = each
        registered = self._by_identifier.get(identifier)
        topic = packet.topic.decode()
        if registered is not None and registered.is_subscribed and qos:
            registered.reader.on_message(packet, self.receipts.add(packet_id, qos))
        elif identifier and qos == 1:  # readers subscribe with QoS 1
            self._hold(identifier, packet)
        elif qos and self.receipts.is_manual(topic):
            self._place_of(topic).put(_message(packet, topic, self.receipts.add(packet_id, qos)))
        else:
            self._place_of(topic).put(_message(packet, topic))
            if qos:
                self.receipts.acknowledge(packet_id, qos)

    def _hold(self, identifier: int, packet: Publish) -> None:
        """Keep a message without acknowledging it, which would commit it. No acknowledgement waits for its turn."""
        if len(self._held) >= self._receive_maximum:
            raise ReceiveMaximumExceeded(f"more than {self._receive_maximum} messages [MQTT-3.1.2-27]")
        if not self._held:
            _log.info("Messages came of a stream or queue that nobody reads: open it again, or unsubscribe from it")
        self._held.append((identifier, packet))

    def _take_held(self, identifier: int) -> list[Publish]:
        taken = [packet for each, packet in self._held if each == identifier]
        if taken:
            self._held = [each for each in self._held if each[0] != identifier]
        return taken

    def _begin_readers(self, properties: Properties) -> None:
        """A subscription was granted."""
        for identifier in properties.subscription_identifiers:
            registered = self._by_identifier.get(identifier)
            if registered is not None:
                registered.is_subscribed = True
                for packet in self._take_held(identifier):
                    registered.reader.on_former(packet, self.receipts.add(packet.packet_id, packet.qos))

    def _refuse_held(self, identifier: int) -> None:
        """A subscription ended: a queue gives its messages to others, and a stream has no reader here any more."""
        for packet in self._take_held(identifier):
            self.receipts.add(packet.packet_id, packet.qos).settle(ReasonCode.UNSPECIFIED_ERROR)

    def _place_of(self, topic: str) -> Place | Inbox:
        place = self._places.get(topic)
        if place is not None:
            return place
        for topic_filter, inbox in self._filtered:
            if matches(topic_filter, topic):
                return inbox
        return self._inbox

    def _on_ack(self, ack: Ack) -> None:
        if ack.packet_type == PUBACK:
            self.window.on_puback(ack)
        elif ack.packet_type == PUBREC:
            self.window.on_pubrec(ack)
        elif ack.packet_type == PUBCOMP:
            self.window.on_pubcomp(ack)
        else:
            assert self._write is not None, f"{PACKET_NAMES[PUBREL]} came without a connection"
            known = ack.packet_id in self._received or self._version != V5
            self._received.discard(ack.packet_id)
            code = 0 if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._write(encode_ack(PUBCOMP, ack.packet_id, self._version, code))


def refusal_of(requests: tuple[SubscriptionRequest, ...], answer: Answer) -> SubscribeRefused | None:
    """The error for the filters that a SUBACK refuses; None when all are granted."""
    codes = tuple(answer.reason_codes)
    refused = {
        request.topic_filter.decode(): code for request, code in zip(requests, codes, strict=True) if code >= 0x80
    }
    return SubscribeRefused(refused, codes, answer.properties.reason_string or "") if refused else None


def ignore(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for an answer any more: that a client ends without it is no error."""
    if not answer.cancelled():
        answer.exception()


def _identifier_of(topic_filter: bytes) -> int:
    return FIRST_READER_IDENTIFIER | int.from_bytes(hashlib.blake2b(topic_filter, digest_size=3).digest())


def _message(packet: Publish, topic: str, receipt: Receipt | None = None) -> Message:
    return Message(
        topic,
        packet.payload,
        packet.qos,
        packet.retain,
        packet.dup,
        packet.packet_id,
        packet.properties,
        receipt,
    )
