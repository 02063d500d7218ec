"""The packet loop: finds the packets in a chunk and dispatches each to its handler.

It stops when the iteration's work budget is used up or the connection has to wait; the rest stays in the connection's
framer. Invariant: the packets of a connection are handled once each, in order.
"""

from typing import Final, final

from mqttlite.core.connect.admission import Admission
from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connection import AWAITING_CONNECT, CLOSED, CONNECTED, NOTHING, WELCOME, Connection
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.packet_handler import PacketHandler
from mqttlite.core.limits import (
    BYTES_PER_WORK_UNIT,
    INLINE_FILTERS_BYTES,
    ITERATION_WORK,
    MAX_PENDING_BYTES,
    PACKET_WORK,
    SHORT_PACKET_WORK,
)
from mqttlite.core.reasons import CloseReason
from mqttlite.core.route.subscribe import Subscriptions
from mqttlite.wire.constants import CONNECT, PACKET_NAMES, SUBSCRIBE, UNSUBSCRIBE
from mqttlite.wire.decode import connect_version, decode
from mqttlite.wire.errors import ProtocolError
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Auth, Connect, Disconnect, Publish, Subscribe, Unsubscribe


@final
class PacketLoop:
    """One for each broker. Every method raises a `PeerError` for a packet that breaks a rule."""

    __slots__ = (
        "_admission",
        "_closing",
        "_effects",
        "_packet_handler",
        "_subscriptions",
    )

    def __init__(
        self,
        packet_handler: PacketHandler,
        subscriptions: Subscriptions,
        admission: Admission,
        closing: Closing,
        effects: Effects,
    ) -> None:
        self._packet_handler: Final = packet_handler
        self._subscriptions: Final = subscriptions
        self._admission: Final = admission
        self._closing: Final = closing
        self._effects: Final = effects

    def walk(self, connection: Connection, data: bytes) -> int:
        """Handle the complete packets in `data`. Return where the first unhandled packet begins."""
        at = 0
        end = len(data)
        effects = self._effects
        largest = connection.in_place_bytes
        while end - at >= 2:
            first = data[at]
            if connection.state != CONNECTED or connection.waits_for != NOTHING:
                if connection.state == CLOSED:
                    return end
                if connection.waits_for != NOTHING:
                    return at
                if connection.state == AWAITING_CONNECT and first != 0x10:
                    raise ProtocolError(_not_connect(first))
            length = data[at + 1]
            body = at + 2
            if length > 127:
                if body < end and 0 < data[body] < 128:
                    length = length & 127 | data[body] << 7
                    body += 1
                else:
                    size = packet_size(data, at)
                    if size == 0:
                        return at
                    body = at + 4 if data[at + 3] < 128 else at + 5
                    length = at + size - body
            stop = body + length
            if stop > end or stop - at > largest:
                if stop > end or stop - at > connection.framer.max_packet_size or not self._may_continue(connection):
                    return at
                self._on_packet(connection, first, data[body:stop])
                at = stop
                continue
            if effects.work >= ITERATION_WORK or effects.pending_bytes > MAX_PENDING_BYTES:
                connection.deferred = True
                effects.deferred.append(connection.number)
                return at
            if connection.state == CONNECTED:
                kind = first & 0xF9
                if kind == 0x30:  # PUBLISH without DUP and RETAIN
                    effects.work += SHORT_PACKET_WORK
                    at = self._packet_handler.publish_in_place(connection, data, at, body, stop, end)
                    continue
                if length == 2 and data[body] | data[body + 1]:
                    after = self._packet_handler.acknowledge_in_place(connection, data, at)
                    if after:
                        effects.work += SHORT_PACKET_WORK
                        at = after
                        continue
            self._on_packet(connection, first, data[body:stop])
            at = stop
            largest = connection.in_place_bytes  # CONNECT sets it
        return at

    def _may_continue(self, connection: Connection) -> bool:
        """Whether this iteration has room for another packet. If not, defer the connection to the next iteration."""
        effects = self._effects
        if effects.work >= ITERATION_WORK or effects.pending_bytes > MAX_PENDING_BYTES:
            connection.deferred = True
            effects.deferred.append(connection.number)
            return False
        return True

    def _on_packet(self, connection: Connection, first: int, body: bytes) -> None:
        """Decode a packet and handle it, or start a job that does."""
        packet_type = first >> 4
        effects = self._effects
        effects.work += PACKET_WORK
        if packet_type not in WELCOME[connection.state]:
            raise ProtocolError(f"{PACKET_NAMES[packet_type]} is not a client's to send now")
        if packet_type == CONNECT:
            connection.version = connect_version(body)
        session = connection.session
        if packet_type >= SUBSCRIBE or packet_type == CONNECT:
            connection.requests += 1
            connection.request_bytes += len(body) + 2
            if len(body) > INLINE_FILTERS_BYTES and SUBSCRIBE <= packet_type <= UNSUBSCRIBE:
                assert session is not None, "only a connected client may send it"
                self._subscriptions.start(connection, session, first, body)
                return
        effects.work += len(body) // BYTES_PER_WORK_UNIT
        packet = decode(first, body, connection.version)
        if isinstance(packet, Publish):  # the chunk was charged with its payload
            effects.work -= len(packet.payload) // BYTES_PER_WORK_UNIT
        if isinstance(packet, Connect):
            self._admission.on_connect(connection, packet)
        elif isinstance(packet, Auth):
            self._admission.on_auth(connection, packet)
        elif session is None:
            self._closing.end(
                connection, CloseReason.CLIENT_DISCONNECTED, 0, "the client left instead of authenticating"
            )
        elif isinstance(packet, Subscribe):
            self._subscriptions.on_subscribe(connection, session, packet)
        elif isinstance(packet, Unsubscribe):
            self._subscriptions.on_unsubscribe(connection, session, packet)
        elif isinstance(packet, Disconnect):
            self._closing.on_disconnect(connection, session, packet)
        else:
            self._packet_handler.take(connection, session, packet)


def _not_connect(first: int) -> str:
    """Explain why a first byte cannot begin a CONNECT."""
    if first == 0x16:
        return "TLS bytes on a listener without TLS"
    if first in b"GPHDOC":  # GET, POST, PUT, HEAD, DELETE, OPTIONS
        return "the first packet is not CONNECT: an HTTP request?"
    if first >> 4 == CONNECT:
        return f"CONNECT with header flags {first & 0x0F:#06b} [MQTT-2.1.3-1]"
    return f"the first packet is {PACKET_NAMES[first >> 4]} and not CONNECT [MQTT-3.1.0-1]"
