"""Applies the acknowledgements of a client to its session: PUBACK, PUBREC and PUBCOMP for messages to the client,
PUBREL for messages from it.

Those that follow in order, as they mostly do, are seen to together. Invariant: a message is settled once, with the
reason code that the client gave, and is in the window until then.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveReceived, RemoveReleased, SaveReceived, SaveReleased, Settled
from mqttlite.core.effects import Effects
from mqttlite.core.inflight import NOT_STORED, Unacknowledged, is_watched
from mqttlite.core.reasons import NACKED
from mqttlite.core.session import Session
from mqttlite.wire.blocks import PUBACKS, PUBCOMPS, PUBRECS, PUBRELS, counted
from mqttlite.wire.constants import PUBREL, V5
from mqttlite.wire.encode import encode_ack
from mqttlite.wire.errors import ProtocolError

_NO_SUCH_PACKET_ID: Final = 0x92
_REFUSED: Final = 0x80
"""Reason codes from here on say that the client did not accept the message."""


@final
class Acknowledgements:
    __slots__ = ("_effects",)

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects

    # ------------------------------------------------------------------ what the client was sent

    def on_pubacks(self, session: Session, data: bytes, at: int) -> int:
        """The PUBACK at `at`, and those behind it that follow in order; where they end."""
        inflight = session.window.inflight
        if session.expiry_interval or inflight.watched:
            for each in inflight.leading_messages(data, at, PUBACKS, 1):
                self._settle(session, each, 0, 0)
        count = inflight.remove_leading(data, at, PUBACKS, 1)
        if count:
            session.open_window(count)
        else:
            count = 1
            self.on_puback(session, data[at + 2] << 8 | data[at + 3], 0)
        return at + 4 * count

    def on_pubrecs(self, session: Session, data: bytes, at: int) -> int:
        """The PUBREC at `at`, and those behind it that follow in order; where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        inflight = session.window.inflight
        if session.expiry_interval or inflight.watched:
            packet_id = first_id
            for each in inflight.leading_messages(data, at, PUBRECS, 2):
                self._settle(session, each, packet_id, 0)
                packet_id += 1
        count = inflight.remove_leading(data, at, PUBRECS, 2)
        if count:
            self._release(session, first_id, count)
        else:
            count = 1
            self.on_pubrec(session, first_id, 0)
        return at + 4 * count

    def on_pubcomps(self, session: Session, data: bytes, at: int) -> int:
        """The PUBCOMP at `at`, and those behind it that follow in order; where they end."""
        first_id = data[at + 2] << 8 | data[at + 3]
        count = session.window.released.take_leading(data, at, PUBCOMPS)
        if count:
            if session.durable:
                for packet_id in range(first_id, first_id + count):
                    self._effects.record(RemoveReleased(session.client_id, packet_id))
            session.open_window(count)
        else:
            count = 1
            self.on_pubcomp(session, first_id)
        return at + 4 * count

    def on_puback(self, session: Session, packet_id: int, reason_code: int) -> None:
        """A QoS 1 message arrived, or the client refused it; a late or unknown PUBACK is harmless.

        Until now it was unacknowledged [MQTT-4.3.2-3].
        """
        message = session.find_unacknowledged(packet_id)
        if message is not None and message.qos == 1:
            session.window.inflight.remove(packet_id)
            self._settle(session, message, 0, reason_code)
            session.open_window(1)
        elif message is not None or session.window.released.has(packet_id):
            raise ProtocolError("PUBACK for a message of QoS 2 [MQTT-4.3.3-3]")

    def on_pubrec(self, session: Session, packet_id: int, reason_code: int) -> None:
        """A QoS 2 message arrived: release its identifier, or forget it where the client refused it [MQTT-4.3.3-4]."""
        outbox = session.outbox
        assert outbox is not None
        message = session.find_unacknowledged(packet_id)
        if message is not None and message.qos == 2:
            session.window.inflight.remove(packet_id)
            if reason_code >= _REFUSED:
                self._settle(session, message, 0, reason_code)
                session.open_window(1)
                return
            self._settle(session, message, packet_id, reason_code)
            self._release(session, packet_id, 1)
        elif message is not None:
            raise ProtocolError("PUBREC for a message of QoS 1 [MQTT-4.3.2-3]")
        elif not session.window.released.has(packet_id):
            if reason_code < _REFUSED:
                code = _NO_SUCH_PACKET_ID if outbox.version == V5 else 0
                outbox.send(encode_ack(PUBREL, packet_id, outbox.version, code))
        else:
            outbox.send(encode_ack(PUBREL, packet_id, outbox.version))

    def on_pubcomp(self, session: Session, packet_id: int) -> None:
        """A released identifier is free again; an unknown PUBCOMP is harmless."""
        if session.window.released.discard(packet_id):
            if session.durable:
                self._effects.record(RemoveReleased(session.client_id, packet_id))
            session.open_window(1)
        elif session.window.inflight.find(packet_id) is not None:
            raise ProtocolError("PUBCOMP for a message that was not released [MQTT-4.3.3-5]")

    def _settle(self, session: Session, message: Unacknowledged, released_id: int, reason_code: int) -> None:
        """The client answered a message that was in flight: it goes nowhere else [MQTT-4.4.0-2] [MQTT-4.8.2-6].

        A QoS 2 message that arrived leaves its identifier to be released; else that is 0.
        """
        if session.durable:
            if released_id:
                change = SaveReleased(session.client_id, message.sequence, released_id)
                self._effects.record(change, session.outbox)
            elif message.sequence != NOT_STORED:
                self._effects.record(Settled(session.client_id, message.sequence))
        delivery = message.delivery
        assert delivery is not None, "a batch is taken apart before its messages are looked at"
        subject = delivery.message
        if is_watched(delivery):
            session.window.inflight.watched -= 1
            if delivery.origin is not None:
                delivery.origin.settled(delivery, reason_code)
                if reason_code >= _REFUSED and delivery.origin.keeps:
                    return  # it is not dropped: its origin delivers it again
        if reason_code >= _REFUSED:
            session.drop(NACKED, 1, subject.topic, subject.trace, f"reason code 0x{reason_code:02x}")
        elif subject.trace:
            tracer = self._effects.tracer
            if tracer is not None:
                tracer.on_acknowledged(subject.trace, session.client_id)

    def _release(self, session: Session, first_id: int, count: int) -> None:
        """QoS 2 messages arrived that are no longer in flight: say so, as many as there are from that identifier on."""
        outbox = session.outbox
        assert outbox is not None
        session.window.released.add(first_id, count)
        outbox.send(counted(PUBRELS, first_id, count))

    # ------------------------------------------------------------------ what the client sent

    def take_received(self, session: Session, first_id: int, count: int) -> None:
        """Take `count` QoS 2 identifiers of the client's own messages, from `first_id` on."""
        session.received.add(first_id, count)
        if session.durable:
            for packet_id in range(first_id, first_id + count):
                self._effects.record(SaveReceived(session.client_id, packet_id), session.outbox)

    def release_received(self, session: Session, packet_id: int) -> bool:
        """The client lets an identifier go. False: it was not taken."""
        if not session.received.discard(packet_id):
            return False
        if session.durable:
            self._effects.record(RemoveReceived(session.client_id, packet_id), session.outbox)
        return True

    def release_leading(self, session: Session, data: bytes, at: int) -> int:
        """The same for the PUBREL at `at` and those behind it that follow in order; how many were taken in order."""
        count = session.received.take_leading(data, at, PUBRELS)
        if session.durable:
            first_id = data[at + 2] << 8 | data[at + 3]
            for packet_id in range(first_id, first_id + count):
                self._effects.record(RemoveReceived(session.client_id, packet_id), session.outbox)
        return count
