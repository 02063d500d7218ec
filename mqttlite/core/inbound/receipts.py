"""Acknowledges a client's QoS 1 and 2 messages with PUBACK and PUBREC, with details for 5.0 clients.

Invariant: if messages changed durable state, their acknowledgement waits for the commit of these changes.
"""

from typing import Final, final

from mqttlite.core.connect.connection import CLOSED, Connection
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.acknowledgements import Acknowledgements
from mqttlite.core.message import Message
from mqttlite.core.route.tally import QUOTA_EXCEEDED, Tally
from mqttlite.core.session.session import Session
from mqttlite.wire.blocks import PUBACKS, PUBRECS, Ids, counted
from mqttlite.wire.constants import PUBACK, PUBREC, V5
from mqttlite.wire.encode import encode_ack
from mqttlite.wire.properties import Properties


@final
class Receipt:
    """QoS 1 or 2 messages of a client that must be acknowledged."""

    __slots__ = ("connection", "ids", "message", "qos", "refusal", "session")

    def __init__(
        self,
        connection: Connection,
        session: Session,
        qos: int,
        ids: Ids,
        message: Message | None = None,
    ) -> None:
        self.connection: Final = connection
        self.session: Final = session
        self.qos: Final = qos
        self.ids: Final = ids
        self.refusal: str | None = None
        """Why the broker refused the message; None if there is no sentence for it."""
        self.message: Final = message
        """The message, if it is not a batch."""


@final
class Receipts:
    """One for each broker."""

    __slots__ = ("_acknowledgements", "_effects")

    def __init__(self, acknowledgements: Acknowledgements, effects: Effects) -> None:
        self._acknowledgements: Final = acknowledgements
        self._effects: Final = effects

    def acknowledge(self, receipt: Receipt, tally: Tally) -> None:
        """Send PUBACK or PUBREC for the messages of a receipt, with the codes of the tally."""
        connection, session, ids = receipt.connection, receipt.session, receipt.ids
        outbox = connection.outbox
        code, rejected = tally.code, tally.rejected
        if connection.version != V5:
            code = 0
            rejected = {}
        if receipt.qos == 2 and code < 0x80:  # [MQTT-4.3.3-9]
            if not rejected:
                self._acknowledgements.take_received(session, ids.first, ids.count)
            else:
                for number in range(ids.count):
                    if number not in rejected:
                        self._acknowledgements.take_received(session, ids.get(number), 1)
        if tally.is_durable:
            outbox.awaits_commit = True
        if connection.state == CLOSED:
            return
        tells = connection.peer.capabilities.tell_delivery
        message = receipt.message
        if message is not None and connection.version == V5 and (tells or receipt.refusal is not None):
            answer = PUBACK if receipt.qos == 1 else PUBREC
            outbox.send(self._detailed_ack(receipt, message, answer, code, tally if tells else None))
        else:
            outbox.send(_acks_of_batch(receipt.qos, ids, code, rejected))

    def _detailed_ack(self, receipt: Receipt, message: Message, answer: int, code: int, tally: Tally | None) -> bytes:
        """An acknowledgement with a reason string, or with the delivery outcome in user properties, if the client wants
        them and the packet is not too large for it.

        No other acknowledgement has a reason string [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.6.2-2] [MQTT-3.6.2-3]
        [MQTT-3.7.2-2] [MQTT-3.7.2-3].
        """
        connection, packet_id = receipt.connection, receipt.ids.first
        details: list[tuple[str, str]] = []
        if tally is not None:
            details = [
                ("message-id", str(self._effects.identify(message))),
                ("delivered-to", str(tally.sent)),
                ("queued-for", str(tally.queued)),
                ("dropped-for", str(tally.dropped_for)),
            ]
        if connection.problem_information:  # [MQTT-3.1.2-29]
            properties = Properties(reason_string=receipt.refusal, user_properties=details)
            frame = encode_ack(answer, packet_id, V5, code, properties)
            if not connection.outbox.is_too_large(len(frame)):  # [MQTT-3.4.2-3] [MQTT-3.5.2-3]
                return frame
        return encode_ack(answer, packet_id, V5, code)


def _acks_of_batch(qos: int, ids: Ids, code: int, rejected: dict[int, None]) -> bytes:
    """The acknowledgements of a batch, all with one reason code except at the `rejected` positions."""
    if code == 0 and not rejected and ids.counted:
        return counted(PUBACKS if qos == 1 else PUBRECS, ids.first, ids.count)
    answer = PUBACK if qos == 1 else PUBREC
    if not rejected and ids.count > 1:  # a block for one costs more than its packet
        return ids.acknowledged(answer, code)
    refused = code if code >= 0x80 else QUOTA_EXCEEDED
    return b"".join(
        [
            encode_ack(answer, ids.get(number), V5, refused if number in rejected else code)
            for number in range(ids.count)
        ]
    )
