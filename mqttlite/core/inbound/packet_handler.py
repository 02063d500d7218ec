"""Handles the packets of connected clients: messages, acknowledgements, subscriptions.

`publish_in_place` and `acknowledge_in_place` are the fast path for frequent packets: they read the bytes in place and
create no objects that they do not need. `take` is the slow path for all other packets. Invariant: both paths do the
same with the same packet.
"""

from functools import partial
from typing import Final, final

from mqttlite.core.authorizer import PUBLISH as PUBLISH_ACTION
from mqttlite.core.connect import connect
from mqttlite.core.connect.capabilities import check_publish, payload_is_valid
from mqttlite.core.connect.connection import A_FAN_OUT, CLOSED, NOTHING, ROOM, Connection
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.acknowledgements import Acknowledgements
from mqttlite.core.inbound.back_pressure import BackPressure
from mqttlite.core.inbound.held_message import HeldMessage
from mqttlite.core.inbound.inbound import Inbound
from mqttlite.core.inbound.priority import raw_is_low, shed_reason
from mqttlite.core.inbound.receipts import Receipt, Receipts
from mqttlite.core.limits import (
    BATCH_MESSAGES,
    BATCHES_IN_A_QUEUE,
    DISCONNECT,
    MAX_RAW_PROPERTIES_BYTES,
    MOST_WHOLE,
    PACKET_WORK,
    Limits,
)
from mqttlite.core.message import NO_PROPERTIES, Message, PublishBatch, RawProperties, reframed
from mqttlite.core.reasons import PACKET_TOO_LARGE, PAYLOAD_INVALID
from mqttlite.core.route.delayed_messages import DELAYS_FULL
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.relayed import NO_TARGET
from mqttlite.core.route.route import Route
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.tally import NOT_AUTHORIZED_CODE, QUOTA_EXCEEDED, TOPIC_NAME_INVALID, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.wire.blocks import PUBCOMPS, Ids, counted, ids_of
from mqttlite.wire.constants import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
)
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import PINGRESP_FRAME, encode_ack
from mqttlite.wire.errors import (
    MalformedPacket,
    PacketTooLarge,
    ProtocolError,
    ReceiveMaximumExceeded,
    TopicAliasInvalid,
)
from mqttlite.wire.packets import (
    Ack,
    Packet,
    Pingreq,
    Publish,
)
from mqttlite.wire.plain import NOT_PLAIN, SUBSCRIPTION_IDENTIFIER, expiry_if_plain, split_identifiers
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

_FAULTS: Final[dict[int, str]] = {
    int(ReasonCode.PAYLOAD_FORMAT_INVALID): PAYLOAD_INVALID,
    QUOTA_EXCEEDED: PACKET_TOO_LARGE,
}
"""The drop reason for a payload that is not accepted, by reason code."""


@final
class PacketHandler:
    __slots__ = (
        "_acknowledgements",
        "_back_pressure",
        "_batch_messages",
        "_effects",
        "_inbound",
        "_limits",
        "_permissions",
        "_receipts",
        "_router",
        "_routes",
    )

    def __init__(
        self,
        routes: Routes,
        router: Router,
        inbound: Inbound,
        back_pressure: BackPressure,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._routes: Final = routes
        self._permissions: Final = routes.permissions
        self._router: Final = router
        self._effects: Final = effects
        self._acknowledgements: Final = Acknowledgements(effects)
        self._limits: Final = limits
        part_of_queue = max(1, limits.max_queued_messages // BATCHES_IN_A_QUEUE)
        self._batch_messages: Final = min(BATCH_MESSAGES, part_of_queue) if limits.min_drain_rate else BATCH_MESSAGES
        self._receipts: Final = Receipts(self._acknowledgements, effects)
        self._inbound: Final = inbound
        self._back_pressure: Final = back_pressure

    def publish_in_place(self, connection: Connection, data: bytes, at: int, body: int, stop: int, end: int) -> int:
        """Handle the PUBLISH at `at` and the similar ones that follow it. Return where the next packet begins.

        A QoS 0 message is forwarded with the bytes in which it came: QoS 0, DUP 0 [MQTT-4.3.1-1].
        """
        first = data[at]
        topic_at = body + 2
        if topic_at > stop:
            raise MalformedPacket("PUBLISH ends in its topic's length")
        topic_end = topic_at + (data[body] << 8 | data[body + 1])
        raw_at = topic_end if first == 0x30 else topic_end + 2
        head_end = raw_at
        raw: RawProperties | None = NO_PROPERTIES
        if connection.version == V5:
            if raw_at < stop and data[raw_at]:
                raw = self._raw_properties(connection, data, raw_at)
            head_end += 1 if raw is None else len(raw.data)
        if raw is None or head_end > stop or topic_at == topic_end:
            # Too short, without a topic, or with properties that must be decoded: not for the fast path.
            packet = decode(first, data[body:stop], connection.version)
            assert isinstance(packet, Publish)
            self._on_publish(connection, packet)
            return stop
        topic = data[topic_at:topic_end]
        route = self._routes.cached(topic)
        if route is None:
            decode(first, data[body:stop], connection.version)  # decoding checks the first packet of a new topic
            route = self._routes.find(topic)
        if raw.target:
            return self._take_targeted(connection, data, at, topic_end, head_end, stop, end, topic, route, raw)
        if first == 0x30:
            session = connection.session
            assert session is not None
            is_allowed = (
                route.is_open
                or (session.role == route.allowed_role and session.rules == self._permissions.rules)
                or self._router.may_publish(route, topic, session)
            )
            forwards = is_allowed and route.is_direct
            is_refused = not is_allowed and route.delayed is None
            size = stop - at
            if stop < end and (forwards or is_refused or (is_allowed and route.batches(0, stop - head_end))):
                if route.special or not forwards:
                    end = min(end, at + size * BATCH_MESSAGES)
                same = head_end - at
                prefix = data[at:head_end]
                while stop + size <= end and data[stop : stop + same] == prefix:  # `startswith` is slower by a factor
                    stop += size
            messages = (stop - at) // size
            connection.received_qos0 += messages
            if self._effects.sheds_low_priority and self._sheds_qos0(route, topic, raw_is_low(raw), messages):
                return stop
            if forwards:
                fan_out = self._router.forward(
                    route, topic, data[at:stop], size, head_end - at, connection.version, session, raw
                )
                if fan_out is not None:
                    self._wait_for(connection, fan_out)
                return stop
            if is_refused:
                self._router.refuse(route, topic, messages, stop - head_end, session)
                return stop
            expires_at = raw.expires_at(self._effects.now)
            if messages > 1:
                batch = PublishBatch(topic, data[at:stop], size, head_end - at, 0, connection.version, raw, expires_at)
                self._wait_for(connection, self._router.publish_batch(batch, route, session, False))
            else:
                self._effects.work += PACKET_WORK
                message = Message(topic, data[head_end:stop], 0, False, NONE, expires_at, raw)
                self._publish_qos0(connection, message, route)
            return stop
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        qos = first >> 1 & 3
        if packet_id == 0 or qos == 3:
            decode(first, data[body:stop], connection.version)  # raises
        capabilities = connection.peer.capabilities
        check_publish(capabilities, qos, False)
        session = connection.session
        assert session is not None
        if (
            (route.sinks and not self._routes.takes_batches(route, topic, raw))
            or not (route.is_open or self._router.may_publish(route, topic, session))
            or not (route.is_direct or route.batches(qos, stop - head_end))
            or (capabilities.tell_delivery and connection.version == V5)
            or (self._effects.sheds_low_priority and (route.is_low or raw_is_low(raw)))
            or (self._effects.filling and (route.sinks or self._back_pressure.asks_readers(route)))
        ):
            expires_at = raw.expires_at(self._effects.now)
            message = Message(topic, data[head_end:stop], qos, False, NONE, expires_at, raw)
            self._receive(connection, message, packet_id)
            return stop
        size = stop - at
        if stop < end:
            most = self._batch_messages
            receivers = len(route.receivers) + len(route.sinks)
            if qos == 2 and receivers and _is_whole(route, session):
                most = max(1, most // receivers)
            end = min(end, at + size * most)
            same = topic_end - at
            prefix = data[at:topic_end]
            raw_from, raw_to = raw_at - at, head_end - at
            beside = data[raw_at:head_end]
            while (
                stop + size <= end
                and data[stop : stop + same] == prefix
                and (not beside or data[stop + raw_from : stop + raw_to] == beside)
            ):
                stop += size
        ids = Ids(packet_id)
        if stop > at + size:
            ids = ids_of(data, topic_end, stop, size)
            stop = at + ids.count * size  # a faulty packet ends the connection, but not before its turn
        expires_at = raw.expires_at(self._effects.now)
        batch = PublishBatch(topic, data[at:stop], size, head_end - at, qos, connection.version, raw, expires_at)
        self._receive_run(connection, batch, route, ids)
        return stop

    def _take_targeted(
        self,
        connection: Connection,
        data: bytes,
        at: int,
        topic_end: int,
        head_end: int,
        stop: int,
        end: int,
        topic: bytes,
        route: Route,
        raw: RawProperties,
    ) -> int:
        """The same for messages of a relay with a target."""
        rest = raw.untargeted
        assert rest is not None, "it has a target"
        expires_at = rest.expires_at(self._effects.now)
        qos = data[at] >> 1 & 3
        session = connection.session
        assert session is not None
        size = stop - at
        if qos:
            packet_id = data[topic_end] << 8 | data[topic_end + 1]
            if packet_id == 0 or qos == 3:
                decode(data[at], data[topic_end - 2 - len(topic) : stop], V5)  # raises
            run_end = stop
            if stop + size <= end and self._router.takes_targeted(raw.target, route, topic):
                run_end = _end_of_run(data, at, topic_end, head_end, size, min(end, at + size * self._batch_messages))
            if run_end > stop:
                ids = ids_of(data, topic_end, run_end, size)
                stop = at + ids.count * size
                packets, head = reframed(topic, data[at:stop], size, head_end - at, qos, V5, rest)
                batch = PublishBatch(topic, packets, len(packets) // ids.count, head, qos, V5, rest, expires_at)
                batch.target = raw.target
                self._receive_run(connection, batch, route, ids)
                return stop
            message = Message(topic, data[head_end:stop], qos, False, NONE, expires_at, rest)
            message.target = raw.target
            self._receive(connection, message, packet_id)
            return stop
        if route.is_direct and route.observed is None:
            end = min(end, at + size * BATCH_MESSAGES)
            same = head_end - at
            prefix = data[at:head_end]
            while stop + size <= end and data[stop : stop + same] == prefix:
                stop += size
        messages = (stop - at) // size
        if messages == 1:
            connection.received_qos0 += 1
            message = Message(topic, data[head_end:stop], 0, False, NONE, expires_at, rest)
            message.target = raw.target
            self._publish_qos0(connection, message, route)
            return stop
        connection.received_qos0 += messages
        packets, head = reframed(topic, data[at:stop], size, head_end - at, 0, V5, rest)
        batch = PublishBatch(topic, packets, len(packets) // messages, head, 0, V5, rest, expires_at)
        batch.target = raw.target
        self._wait_for(connection, self._router.publish_targeted(batch, session))
        return stop

    def acknowledge_in_place(self, connection: Connection, data: bytes, at: int) -> int:
        """Handle the acknowledgement without reason code at `at` and the similar ones that follow. Return where they
        end.

        Return 0 if it must be decoded.
        """
        session = connection.session
        assert session is not None
        first = data[at]
        if first == 0x40:
            return self._acknowledgements.on_pubacks(session, data, at)
        if first == 0x50:
            return self._acknowledgements.on_pubrecs(session, data, at)
        if first == 0x62:
            return self._on_pubrels(connection, session, data, at)
        if first == 0x70:
            return self._acknowledgements.on_pubcomps(session, data, at)
        return 0

    def take(self, connection: Connection, session: Session, packet: Packet) -> None:
        """Handle a PUBLISH, an acknowledgement or a PINGREQ of a connected client."""
        outbox = connection.outbox
        if isinstance(packet, Publish):
            self._on_publish(connection, packet)
        elif isinstance(packet, Ack):
            if packet.packet_type == PUBACK:
                self._acknowledgements.on_puback(session, packet.packet_id, packet.reason_code)
            elif packet.packet_type == PUBREC:
                self._acknowledgements.on_pubrec(session, packet.packet_id, packet.reason_code)
            elif packet.packet_type == PUBREL:
                self._on_pubrel(connection, session, packet.packet_id)
            else:
                self._acknowledgements.on_pubcomp(session, packet.packet_id)
        else:
            assert isinstance(packet, Pingreq), "the packet loop lets no other packets through"
            outbox.answer(PINGRESP_FRAME)  # [MQTT-3.12.4-1]

    def _raw_properties(self, connection: Connection, data: bytes, at: int) -> RawProperties | None:
        """The properties at `at`, often those of the previous message; None if they are not for the fast path."""
        raw = connection.raw
        if data[at : at + len(raw.data)] == raw.data:
            return raw
        end = at + 1 + data[at]
        if data[at] > MAX_RAW_PROPERTIES_BYTES or end > len(data) or connection.peer.capabilities.check_payload_format:
            return None
        block = data[at:end]
        if connection.identity.is_relay and block[1] == SUBSCRIPTION_IDENTIFIER:
            target, rest = split_identifiers(block)
            expiry_s = expiry_if_plain(rest, 1, len(rest))
            if expiry_s == NOT_PLAIN:
                return None
            untargeted = RawProperties(rest, expiry_s) if len(rest) > 1 else NO_PROPERTIES
            raw = connection.raw = RawProperties(block, expiry_s, target, untargeted)
            return raw
        expiry_s = expiry_if_plain(block, 1, len(block))
        if expiry_s == NOT_PLAIN:
            return None
        raw = connection.raw = RawProperties(block, expiry_s)
        return raw

    def _on_publish(self, connection: Connection, packet: Publish) -> None:
        topic = packet.topic
        properties = packet.properties
        expires_at = 0.0
        target = NO_TARGET
        if properties is not NONE:
            if properties.subscription_identifiers:
                if not connection.identity.is_relay:
                    raise ProtocolError("PUBLISH from a client with a subscription identifier [MQTT-3.3.4-6]")
                target = tuple(properties.subscription_identifiers)
                properties.subscription_identifiers = []
            if properties.topic_alias is not None:
                topic = self._unalias(connection, topic, properties.topic_alias)
                properties.topic_alias = None
            if properties.message_expiry_interval is not None:
                expires_at = self._effects.now + properties.message_expiry_interval
            connect.check_response_topic(properties)
        if not topic:
            raise ProtocolError("PUBLISH with neither a topic name nor a topic alias (§3.3.2.1)")
        if connection.identity.mount_point:
            topic = self._routes.namespaces.mounted_name(connection.identity.mount_point, topic)
        capabilities = connection.peer.capabilities
        check_publish(capabilities, packet.qos, packet.retain)
        message = Message(topic, packet.payload, packet.qos, packet.retain, properties, expires_at)
        message.target = target
        fault = 0
        if capabilities.check_payload_format or len(packet.payload) > connection.topic_limits.max_payload_bytes:
            fault = self._fault(connection, topic, packet.payload, properties)
        if packet.qos:
            self._receive(connection, message, packet.packet_id, fault)
        elif fault:
            connection.received_qos0 += 1
            self._router.drops.add(_FAULTS[fault], 1, topic)
        else:
            connection.received_qos0 += 1
            self._publish_qos0(connection, message, self._routes.find(topic))

    def _unalias(self, connection: Connection, topic: bytes, alias: int) -> bytes:
        if alias > self._limits.topic_alias_maximum:
            raise TopicAliasInvalid(f"topic alias {alias}: {self._limits.topic_alias_maximum} at most [MQTT-3.3.2-9]")
        if topic:
            connection.charge(len(topic) - len(connection.aliases.get(alias, b"")))
            connection.aliases[alias] = topic  # [MQTT-3.3.2-12]
            return topic
        if alias not in connection.aliases:
            raise ProtocolError(f"topic alias {alias} was never introduced (§3.3.2.3.4)")
        return connection.aliases[alias]

    def _fault(self, connection: Connection, topic: bytes, payload: bytes, properties: Properties) -> int:
        """The reason code that refuses a payload; 0 if it is accepted. Raises `PacketTooLarge` if the policy for a
        large payload is to disconnect."""
        if connection.topic_limits.is_too_large(topic, len(payload)):
            if self._limits.on_large_payload == DISCONNECT:
                raise PacketTooLarge(connection.topic_limits.payload_refusal(len(payload)))
            return QUOTA_EXCEEDED
        if payload_is_valid(connection.peer.capabilities, payload, properties):
            return 0
        return int(ReasonCode.PAYLOAD_FORMAT_INVALID)

    def _receive(self, connection: Connection, message: Message, packet_id: int, fault: int = 0) -> None:
        """Deliver a QoS 1 or 2 message once, and acknowledge it. One with a faulty payload is only acknowledged.

        The QoS determines the type of the answer [MQTT-3.3.4-1], which carries the packet identifier [MQTT-2.2.1-5].
        """
        session = connection.session
        assert session is not None
        outbox = connection.outbox
        answer = PUBACK if message.qos == 1 else PUBREC  # [MQTT-4.3.2-4] [MQTT-4.3.3-8]
        route = self._routes.find(message.topic)  # first: an invalid name is an error also in a repeated message
        if message.qos == 1:
            connection.received_qos1 += 1  # no identifier is remembered [MQTT-4.3.2-5]
        else:
            connection.received_qos2 += 1
            if session.received.has(packet_id):  # the same message again [MQTT-4.3.3-10]
                outbox.send(encode_ack(answer, packet_id, connection.version))
                return
            is_full = len(session.received) >= self._limits.receive_maximum
            # Where a bridge reads another broker, the number of packet identifiers is the limit: some brokers send more
            # after a new connection, and would do so again after each refusal.
            if is_full and connection.version == V5 and not connection.identity.is_trusted:
                raise ReceiveMaximumExceeded(
                    f"more than {self._limits.receive_maximum} QoS 2 messages not released [MQTT-3.3.4-7]"
                )
        receipt = Receipt(connection, session, message.qos, Ids(packet_id), message)
        if fault:
            self._router.drops.add(_FAULTS[fault], 1, message.topic)
            if fault == QUOTA_EXCEEDED:
                receipt.refusal = connection.topic_limits.payload_refusal(len(message.payload))
            self._receipts.acknowledge(receipt, Tally(fault))
            return
        if self._takes(connection, session, message, route, receipt):
            self._publish(connection, message, route, receipt)

    def _takes(
        self, connection: Connection, session: Session, message: Message, route: Route, receipt: Receipt | None
    ) -> bool:
        """Whether a message can be published now. If not, it waits or was refused. Asks only where something can be in
        the way, because most messages find a broker with room."""
        effects = self._effects
        if session.identity.is_relay or not (effects.sheds_low_priority or effects.filling or route.is_gated):
            return True  # behind a message of a relay wait those of all clients of another broker
        return self._inbound.takes(_HeldPublish(self, connection, session, message, receipt), route)

    def publish(self, connection: Connection, message: Message, receipt: Receipt | None) -> None:
        """Publish a message that was held, whatever it waited for."""
        route = self._routes.find(message.topic)
        if receipt is None:
            session = connection.session
            assert session is not None
            self._wait_for(connection, self._router.publish(message, route, session))
        else:
            self._publish(connection, message, route, receipt)

    def refuse(
        self, message: Message, receipt: Receipt | None, reason: str, refusal: str, code: int, detail: str
    ) -> None:
        """Nobody gets a message. A publisher before 5.0 gets no reason code (docs/design/004)."""
        self._router.drops.add(reason, 1, message.topic, NOT_TRACED, detail)
        if receipt is not None:
            receipt.refusal = refusal
            self._receipts.acknowledge(receipt, Tally(code))

    def _publish(self, connection: Connection, message: Message, route: Route, receipt: Receipt) -> None:
        is_whole = message.qos == 2 and _is_whole(route, receipt.session)
        fan_out = self._router.publish(message, route, receipt.session, is_whole)
        if fan_out.tally.refusal or not route.is_open:
            receipt.refusal = self._refusal(connection, message, route, fan_out.tally)
        self._settle(receipt, fan_out)

    def _publish_qos0(self, connection: Connection, message: Message, route: Route) -> None:
        session = connection.session
        assert session is not None
        if self._takes(connection, session, message, route, None):
            self._wait_for(connection, self._router.publish(message, route, session))

    def _sheds_qos0(self, route: Route, topic: bytes, has_low_priority: bool, messages: int) -> bool:
        """Drop QoS 0 messages if the stage of overload requires it. Return whether it does."""
        reason = shed_reason(self._effects, topic, 0, route.is_low or has_low_priority)
        if reason:
            self._router.drops.add(reason, messages, topic)
        return reason != ""

    def _refusal(self, connection: Connection, message: Message, route: Route, tally: Tally) -> str | None:
        """The reason string for a message that the broker refused; None if there is none."""
        topic = message.topic
        if tally.refusal:
            return tally.refusal
        if tally.code == NOT_AUTHORIZED_CODE:
            if connection.version != V5 or not connection.problem_information:
                return None
            session = connection.session
            assert session is not None
            if route.delayed is not None:
                topic = route.delayed.rest
            return self._permissions.told(session, PUBLISH_ACTION, topic) or None
        if route.delayed is not None and tally.code == QUOTA_EXCEEDED:
            return DELAYS_FULL
        if tally.code == TOPIC_NAME_INVALID and not route.refusal:
            return connection.topic_limits.refusal(topic if route.delayed is None else route.delayed.rest)
        return route.refusal or None

    def _wait_for(self, connection: Connection, fan_out: FanOut) -> None:
        """Make the connection's next packets wait for the end of a fan-out, so that messages stay in order."""
        if not fan_out.done:
            connection.waits_for = A_FAN_OUT
            connection.deferred = True
            fan_out.on_done = partial(self._resume, connection)

    def resume(self, connection: Connection) -> None:
        """Go on with the packets of a connection, unless it waits again."""
        if connection.waits_for == NOTHING:
            self._effects.deferred.append(connection.number)

    def _resume(self, connection: Connection) -> None:
        if connection.state != CLOSED:
            connection.waits_for = NOTHING
            self._effects.deferred.append(connection.number)

    def _settle(self, receipt: Receipt, fan_out: FanOut) -> None:
        """Acknowledge messages at the end of their fan-out. Until then the connection's next packets wait."""
        if fan_out.done:
            self._receipts.acknowledge(receipt, fan_out.tally)
            return
        self._wait_for(receipt.connection, fan_out)
        fan_out.on_done = partial(self._on_fan_out, receipt, fan_out.tally)

    def _on_fan_out(self, receipt: Receipt, tally: Tally) -> None:
        self._resume(receipt.connection)
        self._receipts.acknowledge(receipt, tally)

    def _may_take(self, connection: Connection, ids: Ids) -> bool:
        """Whether these QoS 2 identifiers are consecutive, unused, and within the client's receive maximum."""
        session = connection.session
        assert session is not None
        return (
            ids.counted
            and not session.received.has_any(ids.first, ids.count)
            and (connection.version != V5 or len(session.received) + ids.count <= self._limits.receive_maximum)
        )

    def _receive_run(self, connection: Connection, batch: PublishBatch, route: Route, ids: Ids) -> None:
        """Like `_receive`, for the messages of a batch: together, if their identifiers allow it."""
        if batch.qos == 2 and not self._may_take(connection, ids):
            for number in range(ids.count):
                self._receive(connection, batch.delivery(number, 2).message, ids.get(number))
            return
        session = connection.session
        assert session is not None
        if batch.qos == 1:
            connection.received_qos1 += batch.count
        else:
            connection.received_qos2 += batch.count
        receipt = Receipt(connection, session, batch.qos, ids)
        if batch.target:
            fan_out = self._router.publish_targeted(batch, session, batch.qos == 2)
        else:
            is_whole = batch.qos == 2 and _is_whole(route, session)
            fan_out = self._router.publish_batch(batch, route, session, is_whole)
        self._settle(receipt, fan_out)

    def _on_pubrels(self, connection: Connection, session: Session, data: bytes, at: int) -> int:
        """Handle the PUBREL at `at` and the ones that follow it in order. Return where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        count = self._acknowledgements.release_leading(session, data, at)
        if count == 0:
            self._on_pubrel(connection, session, first_id)
            return at + 4
        connection.outbox.send(counted(PUBCOMPS, first_id, count))
        return at + 4 * count

    def _on_pubrel(self, connection: Connection, session: Session, packet_id: int) -> None:
        known = self._acknowledgements.release_received(
            session, packet_id
        )  # [MQTT-4.3.3-12]; regardless of expiry [MQTT-4.3.3-13]
        code = 0 if known else int(ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        connection.outbox.send(encode_ack(PUBCOMP, packet_id, connection.version, code))  # [MQTT-4.3.3-11]


def _end_of_run(data: bytes, at: int, topic_end: int, head_end: int, size: int, end: int) -> int:
    """Where the packets of `size` bytes end, up to `end`, that begin at `at` and differ only in payload and packet
    identifier."""
    prefix, beside = data[at:topic_end], data[topic_end + 2 : head_end]
    topic_bytes, from_id = topic_end - at, head_end - at
    stop = at + size
    while (
        stop + size <= end
        and data[stop : stop + topic_bytes] == prefix
        and data[stop + topic_bytes + 2 : stop + from_id] == beside
    ):
        stop += size
    return stop


def _is_whole(route: Route, publisher: Session) -> bool:
    """Whether a QoS 2 message must be committed together with its packet identifier. Else, after a crash between two
    commits, the publisher sends it again and the receivers of the first commit get it twice."""
    return publisher.durable and len(route.receivers) + len(route.sinks) <= MOST_WHOLE


@final
class _HeldPublish(HeldMessage):
    """A message of a client. Its connection waits in the state `ROOM`, so that it has one at most."""

    __slots__ = ("_connection", "_handler", "_receipt")

    def __init__(
        self,
        handler: PacketHandler,
        connection: Connection,
        session: Session,
        message: Message,
        receipt: Receipt | None,
    ) -> None:
        # Before 5.0 a client can only acknowledge, and an acknowledged message must not be dropped.
        super().__init__(message, session, connection.number, is_told=connection.version == V5)
        self._handler: Final = handler
        self._connection: Final = connection
        self._receipt: Final = receipt
        """None for a message of QoS 0."""

    def may_wait(self) -> bool:
        return True

    def wait(self) -> None:
        self._connection.waits_for = ROOM
        self._connection.deferred = True

    def is_over(self) -> bool:
        return self._connection.state == CLOSED or self._connection.waits_for != ROOM

    def publish(self) -> None:
        self._handler.publish(self._connection, self.message, self._receipt)

    def go_on(self) -> None:
        self._connection.waits_for = NOTHING
        self.publish()
        self._handler.resume(self._connection)

    def end(self, reason: str, refusal: str, code: int = QUOTA_EXCEEDED, detail: str = "") -> None:
        self._handler.refuse(self.message, self._receipt, reason, refusal, code, detail)
        if self._connection.waits_for == ROOM:
            self._connection.waits_for = NOTHING
            self._handler.resume(self._connection)
