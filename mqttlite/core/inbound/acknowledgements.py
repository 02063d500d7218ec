"""Applies the acknowledgements of a client to its session: PUBACK, PUBREC and PUBCOMP for messages to the client,
PUBREL for messages from it.

Acknowledgements that arrive in order, as most do, are handled as one run. Invariant: a message stays in the window
until it is settled, and is settled once, with the client's reason code.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveReceived, RemoveReleased, SaveReceived, SaveReleased, Settled
from mqttlite.core.effects import Effects
from mqttlite.core.reasons import NACKED
from mqttlite.core.session.inflight import NOT_STORED, Unacknowledged, is_watched
from mqttlite.core.session.session import Session
from mqttlite.wire.blocks import PUBACKS, PUBCOMPS, PUBRECS, PUBRELS, counted
from mqttlite.wire.constants import PUBREL, V5
from mqttlite.wire.encode import encode_ack
from mqttlite.wire.errors import ProtocolError

_NO_SUCH_PACKET_ID: Final = 0x92
_REFUSED: Final = 0x80
"""Reason codes from here on mean that the client rejected the message."""


@final
class Acknowledgements:
    __slots__ = ("_effects",)

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects

    # ------------------------------------------------------------------ what the client was sent

    def on_pubacks(self, session: Session, data: bytes, at: int) -> int:
        """Handle the PUBACK at `at` and the ones that follow it in order. Return where they end."""
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
        """Handle the PUBREC at `at` and the ones that follow it in order. Return where they end."""
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
        """Handle the PUBCOMP at `at` and the ones that follow it in order. Return where they end."""
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
        """The client acknowledged or rejected a QoS 1 message. A late or unknown PUBACK is harmless.

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
        """The client received a QoS 2 message: release its identifier. Forget a message it rejected [MQTT-4.3.3-4]."""
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
        """Free a released identifier. An unknown PUBCOMP is harmless."""
        if session.window.released.discard(packet_id):
            if session.durable:
                self._effects.record(RemoveReleased(session.client_id, packet_id))
            session.open_window(1)
        elif session.window.inflight.find(packet_id) is not None:
            raise ProtocolError("PUBCOMP for a message that was not released [MQTT-4.3.3-5]")

    def _settle(self, session: Session, message: Unacknowledged, released_id: int, reason_code: int) -> None:
        """Settle a message in flight that the client answered. It is not sent again [MQTT-4.4.0-2] [MQTT-4.8.2-6].

        `released_id` is the identifier of a QoS 2 message that now waits for PUBCOMP; 0 if there is none.
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
            if delivery.is_lent:
                assert delivery.origin is not None
                delivery.origin.settled(delivery, reason_code)
                if reason_code >= _REFUSED:
                    return  # not a drop: the origin delivers it again
        if reason_code >= _REFUSED:
            session.drop(NACKED, 1, subject.topic, subject.trace, f"reason code 0x{reason_code:02x}")
        elif subject.trace:
            tracer = self._effects.tracer
            if tracer is not None:
                tracer.on_acknowledged(subject.trace, session.client_id)

    def _release(self, session: Session, first_id: int, count: int) -> None:
        """Send PUBREL for `count` received QoS 2 messages, from identifier `first_id` on."""
        outbox = session.outbox
        assert outbox is not None
        session.window.released.add(first_id, count)
        outbox.send(counted(PUBRELS, first_id, count))

    # ------------------------------------------------------------------ what the client sent

    def take_received(self, session: Session, first_id: int, count: int) -> None:
        """Remember `count` QoS 2 identifiers of messages from the client, from `first_id` on."""
        session.received.add(first_id, count)
        if session.durable:
            for packet_id in range(first_id, first_id + count):
                self._effects.record(SaveReceived(session.client_id, packet_id), session.outbox)

    def release_received(self, session: Session, packet_id: int) -> bool:
        """Forget an identifier that the client releases. Return False if it is unknown.

        PUBCOMP waits for the commit. Else, after a crash, the client's next message would look like a duplicate.
        """
        if not session.received.discard(packet_id):
            return False
        if session.durable:
            self._effects.record(RemoveReceived(session.client_id, packet_id), session.outbox)
        return True

    def release_leading(self, session: Session, data: bytes, at: int) -> int:
        """Do this for the PUBREL at `at` and the ones that follow it in order. Return how many were in order."""
        count = session.received.take_leading(data, at, PUBRELS)
        if session.durable:
            first_id = data[at + 2] << 8 | data[at + 3]
            for packet_id in range(first_id, first_id + count):
                self._effects.record(RemoveReceived(session.client_id, packet_id), session.outbox)
        return count
