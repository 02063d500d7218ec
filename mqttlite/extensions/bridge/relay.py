"""One connection to another broker, joined to a kept session of this one: packets of each go to the other.

Both sides use the same packet identifiers, and an acknowledgement is passed on when it comes. So a message is
acknowledged to the broker that has it only after the other one has it on disk, and what a crash interrupts goes on with
the identifiers that both brokers kept. Invariant: this module remembers no message, except up to `MAX_HELD` that wait
for an answer before they are sent, and a hash of each that was not released.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

from mqttlite.client.connection import Connection
from mqttlite.client.errors import ConnectionLost
from mqttlite.client.limits import ServerLimits
from mqttlite.core.retained.publish_order import PUBLISHED, asks_for_order
from mqttlite.extensions.bridge.errors import ComesBack
from mqttlite.extensions.bridge.figures import Figures
from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.extensions.bridge.path import refusal, refusal_to_send, with_sender
from mqttlite.extensions.bridge.topic_map import FILTERED, Mapped, TopicMap
from mqttlite.net.local_session import LocalSession
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, V5
from mqttlite.wire.encode import encode, encode_ack, publish_parts
from mqttlite.wire.packets import Ack, Packet, Publish, Suback
from mqttlite.wire.primitives import encode_packet_id
from mqttlite.wire.properties import NONE, Properties, encode_properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, ReasonCode, describe

MAX_UNHANDLED_BYTES: Final = 1_048_576
"""While the broker has more bytes of this bridge to handle, the other broker is not read."""

PASSED_BYTES: Final = 65_536
"""So much is given to the session at once, and not at the end of the loop pass."""

LOOK_AGAIN_S: Final = 0.01
"""How often a bridge that is not read looks whether the broker has caught up."""

MAX_HELD: Final = 100
"""The most messages that wait until the other broker has released identifiers. No more are read from the session."""

DRAIN_S: Final = 5.0
"""How long the end waits, after a refusal for want of room, for the acknowledgements of other messages."""

MAX_HEADER_BYTES: Final = 10
"""What PUBLISH without properties has at most beside topic and payload: 1 for the type, 4 and 2 for lengths, 2 for the
identifier, and 1 for the length of properties, for the session here speaks 5.0."""

_RETRY: Final = frozenset({int(ReasonCode.QUOTA_EXCEEDED), int(ReasonCode.SERVER_BUSY)})
"""Reason codes of a receiver that has no room now. The message is kept, and sent again with the next connection."""


class _Held(NamedTuple):
    packet_id: int
    """0 for QoS 0."""
    frame: bytes
    is_flushed: bool
    """Whether the identifier needs no release at the other broker first."""


@final
class Relay:
    """From CONNACK to the end of the connection. `session` must call `wake` when it is readable.

    `flushed` is for a session at the other broker that may know QoS 2 identifiers of messages that this broker does not
    know: each is released there before a message uses it for the first time, and added when the other broker has
    answered. None: it knows no others. `contents` has a hash of each QoS 2 message of the other broker that it has not
    released, by identifier, also of earlier connections since this broker started.
    """

    def __init__(
        self,
        *,
        options: BridgeOptions,
        connection: Connection,
        limits: ServerLimits,
        broker_id: str,
        figures: Figures,
        flushed: set[int] | None,
        contents: dict[int, int],
        max_packet_bytes: int,
        compares: bool,
        on_suback: Callable[[int, bytes], None],
        retry_s: float,
    ) -> None:
        self._connection: Final = connection
        self._version: Final = options.wire_version
        self._limits: Final = limits
        self._out: Final = TopicMap(options.topics, out=True)
        self._into: Final = TopicMap(options.topics, out=False)
        self._broker_id: Final = broker_id
        self._path: Final = encode_properties(with_sender(NONE, broker_id), PUBLISH)
        """The properties of a message that has no others."""
        self._max_hops: Final = options.max_hops
        self._figures: Final = figures
        self._flushed: Final = flushed
        self._contents: Final = contents
        self._max_packet_bytes: Final = max_packet_bytes
        """The limit of this broker. Before 5.0 the other broker is not told of it."""
        self._compares: Final = compares
        """Whether the other broker keeps the newer one of two retained messages, too."""
        self._ignored: Final[set[int]] = set()
        """Identifiers whose next PUBCOMP of the other broker answers a flush."""
        self._held: Final[deque[_Held]] = deque()
        """Messages behind one whose identifier is not released yet, that one first, so that they keep their order."""
        self._unanswered: Final[set[int]] = set()
        """Identifiers of messages that the other broker has not acknowledged, as many as the window at most."""
        self._unpassed: Final[set[int]] = set()
        """Identifiers of its messages that this broker has not acknowledged, as many as Receive Maximum at most."""
        self._retry: asyncio.TimerHandle | None = None
        self._why_retry = ""
        self._is_draining = False
        """Whether messages of QoS 1 and 2 are passed on no more: they come again with the next connection."""
        self._forgotten: Final[set[int]] = set()
        """Identifiers whose next PUBCOMP of this broker answers `forget_received`."""
        self._on_suback: Final = on_suback
        self._retry_s: Final = retry_s
        self._session: LocalSession
        self._passed: Final[list[bytes]] = []
        """Packets for the session, of this pass of the loop: it handles many together for less than one by one."""
        self._passed_bytes = 0
        self._loop: Final = asyncio.get_running_loop()
        self._is_awake = False
        self._look_again: asyncio.TimerHandle | None = None
        self.last_active: float = self._loop.time()

    def join(self, session: LocalSession, *, must_forget: bool) -> None:
        """Begin. `must_forget` says that the other broker does not know the session of the connection before, so that
        its packet identifiers begin anew."""
        self._session = session
        if must_forget:
            for packet_id in session.unreleased():
                self._forget(packet_id)
        self.wake()

    def _forget(self, packet_id: int) -> None:
        """A message of the other broker under this identifier is a new one."""
        self._forgotten.add(packet_id)
        self._contents.pop(packet_id, None)
        self._pass(Ack(PUBREL, packet_id))

    def _pass(self, packet: Packet) -> None:
        """Give a packet to the session, with the others of this pass of the loop."""
        frame = encode(packet, V5)
        if not self._passed:
            self._loop.call_soon(self._feed)
        self._passed.append(frame)
        self._passed_bytes += len(frame)
        if self._passed_bytes >= PASSED_BYTES:
            self._feed()

    def _feed(self) -> None:
        if self._passed:
            packets = b"".join(self._passed)
            self._passed.clear()
            self._passed_bytes = 0
            self._session.link.feed(packets)

    # ------------------------------------------------------------------ from this broker

    def wake(self) -> None:
        """The session can be read, or the connection takes bytes again."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_awake = False
        connection, session, link = self._connection, self._session, self._session.link
        while connection.writable and len(self._held) < MAX_HELD and (packet := link.receive()) is not None:
            if isinstance(packet, Publish):
                self._send_message(packet)
            elif isinstance(packet, Ack):
                if packet.packet_type == PUBCOMP and packet.packet_id in self._forgotten:
                    self._forgotten.discard(packet.packet_id)
                    continue
                if packet.packet_type != PUBREL:
                    self._unpassed.discard(packet.packet_id)
                if packet.reason_code in _RETRY:
                    self._retry_later(f"this broker has no room for a message now ({describe(packet.reason_code)})")
                else:
                    connection.write(encode_ack(packet.packet_type, packet.packet_id, self._version))
                self._end_if_drained()
            elif isinstance(packet, Suback) and max(packet.reason_codes) >= SUBACK_FAILURE:
                self._end(f"this broker refuses a subscription of it ({describe(max(packet.reason_codes))})")
        if session.is_over:
            self._end(session.link.connection.close_detail or "this broker ended the session of the bridge")

    def _send_message(self, message: Publish) -> None:
        if self._is_draining and message.qos:
            return
        mapped = self._out.get(message)
        if isinstance(mapped, str):
            self._refuse(message, mapped)
            return
        retain = message.retain and mapped.retained and self._limits.retain_available
        is_dated = retain and self._compares
        properties, block = NONE, b""
        if self._version == V5 and message.properties is NONE and not is_dated:
            block = self._path
        elif self._version == V5:
            properties = with_sender(message.properties, self._broker_id)
            too_far = refusal_to_send(properties, self._max_hops)
            if too_far:
                self._refuse(message, too_far)
                return
        if is_dated:
            _date(properties, self._session.number_of(message.packet_id))
        try:
            head, tail = publish_parts(
                mapped.topic, message.payload, message.qos, retain, properties, self._version, message.dup, block
            )
        except ValueError:
            self._refuse(message, "MQTT cannot carry it")
            return
        frame = head + encode_packet_id(message.packet_id) + tail if message.qos else head + tail
        if len(frame) > self._limits.maximum_packet_size:
            self._refuse(message, "too large for the other broker")
            return
        is_flushed = message.qos < 2 or self._flushed is None or message.packet_id in self._flushed
        if not is_flushed:
            self._ignored.add(message.packet_id)
            self._connection.write(encode_ack(PUBREL, message.packet_id, self._version))
        if self._held or not is_flushed:
            self._held.append(_Held(message.packet_id, frame, is_flushed))
        else:
            self._write(message.packet_id, frame)

    def _write_held(self) -> None:
        while self._held:
            packet_id, frame, is_flushed = self._held[0]
            if not is_flushed and packet_id in self._ignored:
                return
            self._held.popleft()
            if not packet_id or not self._is_draining:
                self._write(packet_id, frame)

    def _write(self, packet_id: int, frame: bytes) -> None:
        if packet_id:
            self._unanswered.add(packet_id)
        self._figures.sent += 1
        self.last_active = self._loop.time()
        self._connection.write(frame)

    def _refuse(self, message: Publish, reason: str) -> None:
        self._figures.refused[reason] += 1
        self._session.refuse(message)

    # ------------------------------------------------------------------ from the other broker

    @property
    def full(self) -> bool:
        """Implements `client.connection.Receiver`."""
        if self._passed_bytes + self._session.link.connection.framer.kept_bytes <= MAX_UNHANDLED_BYTES:
            return False
        if self._look_again is None:
            self._look_again = self._loop.call_later(LOOK_AGAIN_S, self._read_on)
        return True

    def _read_on(self) -> None:
        self._look_again = None
        self._connection.take_held()

    def on_packet(self, packet: Packet) -> None:
        """Implements `client.connection.Receiver`."""
        if isinstance(packet, Publish):
            self._on_message(packet)
        elif isinstance(packet, Ack):
            self._on_ack(packet)
        elif isinstance(packet, Suback):
            self._on_suback(packet.packet_id, packet.reason_codes)

    def _on_message(self, message: Publish) -> None:
        if self._is_draining and message.qos:
            return
        self._figures.received += 1
        self.last_active = self._loop.time()
        reason = refusal(message.properties, self._broker_id, self._max_hops)
        mapped = reason or self._into.get(message)
        if isinstance(mapped, Mapped) and self._version != V5 and self._is_too_large(message, mapped.topic):
            mapped = "too large for this broker"
        if isinstance(mapped, str):
            if mapped == FILTERED:
                self._figures.filtered += 1
            else:
                self._figures.refused[mapped] += 1
            if message.qos:
                answer = PUBACK if message.qos == 1 else PUBREC
                self._connection.write(encode_ack(answer, message.packet_id, self._version))
            return
        if message.qos:
            self._unpassed.add(message.packet_id)
        if message.qos == 2:
            self._receive_once(message)
        self._pass(
            Publish(
                mapped.topic,
                message.payload,
                message.qos,
                message.retain and mapped.retained,
                message.dup,
                message.packet_id,
                message.properties,
            )
        )

    def _receive_once(self, message: Publish) -> None:
        """Tell a repetition from a new message under an identifier that was not released.

        A repetition has the mark of one [MQTT-3.3.1-1]. Mosquitto forgets the mark when it is killed, so that another
        message of the same content is one, too. What is left is new: the other broker has lost the message before.
        """
        content = hash((message.topic, message.payload))
        is_same = message.dup or self._contents.get(message.packet_id) == content
        is_kept = message.packet_id in self._contents or self._session.awaits_release(message.packet_id)
        if is_kept and not is_same:
            self._forget(message.packet_id)
        self._contents[message.packet_id] = content

    def _is_too_large(self, message: Publish, topic: bytes) -> bool:
        size = MAX_HEADER_BYTES + len(topic) + len(message.payload)
        return size > self._max_packet_bytes

    def _on_ack(self, ack: Ack) -> None:
        if ack.packet_type == PUBREL:
            self._contents.pop(ack.packet_id, None)
            self._pass(Ack(PUBREL, ack.packet_id))
        elif ack.packet_type == PUBCOMP and ack.packet_id in self._ignored:
            self._ignored.discard(ack.packet_id)
            if self._flushed is not None:
                self._flushed.add(ack.packet_id)
            self._write_held()
            self.wake()
        elif ack.reason_code in _RETRY:
            self._unanswered.discard(ack.packet_id)
            self._retry_later(f"the other broker has no room for a message now ({describe(ack.reason_code)})")
            self._end_if_drained()
        else:
            self._unanswered.discard(ack.packet_id)
            if ack.packet_type != PUBCOMP and ack.reason_code >= 0x80:
                self._figures.refused[f"the other broker: {describe(ack.reason_code)}"] += 1
            self._pass(ack)
            self._end_if_drained()

    # ------------------------------------------------------------------ the end

    def _retry_later(self, why: str) -> None:
        """Connect again after a while, which sends the refused message again and those that were not acknowledged."""
        self._why_retry = why
        if self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._drain)

    def _drain(self) -> None:
        self._is_draining = True
        self._retry = self._loop.call_later(DRAIN_S, self._end_drained)
        self._write_held()
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._is_draining and not self._unanswered and not self._unpassed:
            self._end_drained()

    def _end(self, why: str) -> None:
        self._connection.close(ConnectionLost(f"The bridge disconnected: {why}."))

    def _end_drained(self) -> None:
        self._connection.close(ComesBack(f"The bridge disconnected: {self._why_retry}."))

    def stop(self) -> None:
        """The connection has ended. The session is kept."""
        if self._look_again is not None:
            self._look_again.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._feed()
        self._session.end()


def _date(properties: Properties, number: int) -> None:
    """Let a message say when it was published, unless it does. `number` is 0 if it is not known; then the time of its
    arrival holds."""
    if number and not asks_for_order(properties):
        properties.user_properties.append((PUBLISHED, str(number)))
