"""The sinks for consumers' commands to acknowledge, reject or extend messages: `$queue/<name>/$ack`, `/$nack`,
`/$extend`.

The `ack-id` of a message is in the Correlation Data, with the seconds of a delay or extension in the payload; or each
line of the payload is an `ack-id`, with the seconds after a space. A client that cannot see the `ack-id` uses the
packet identifier of the message on its connection instead. The router has checked that the publisher may subscribe to
`$queue/<name>`. Invariant: a command without a matching message changes nothing, and is acknowledged with the reason
code 0x10.
"""

from typing import Final

from mqttlite.core.message import Message
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, SENT, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.extensions.queues.limits import MAX_ACK_IDS
from mqttlite.extensions.queues.namespace import parts_of
from mqttlite.extensions.queues.service import Queues
from mqttlite.extensions.simple_sink import SimpleSink

ACK: Final = "$ack"
NACK: Final = "$nack"
EXTEND: Final = "$extend"
ACTIONS: Final = (ACK, NACK, EXTEND)

ALREADY_ENDED: Final = "already acknowledged, or ended otherwise, or never delivered: nothing changes"
"""The reason string for a command that names no message under way."""

_PACKET_ID_DIGITS: Final = 5


class QueueControl(SimpleSink):
    """A `Sink` for one of the actions."""

    def __init__(self, queues: Queues, action: str) -> None:
        self._queues: Final = queues
        self._action: Final = action

    @property
    def topic_filter(self) -> bytes:
        """What it is bound to."""
        return f"$queue/+/{self._action}".encode()

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        name = parts_of(message.topic)[0].decode()
        return [planned_sink(f"$queue/{name}", SENT, "", "it acknowledges, returns or extends messages")]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        name = parts_of(message.topic)[0].decode()
        if not self._queues.serves(name, source):
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        known = False
        for ack_id, seconds in _named(message):
            known |= self._do(name, self._ack_id(name, ack_id, source), seconds)
        if not known:
            tally.code, tally.refusal = NO_MATCHING_SUBSCRIBERS, ALREADY_ENDED

    def _ack_id(self, name: str, given: str, source: Source) -> str:
        """The `ack-id` for the publisher's value, which may be a packet identifier on its connection."""
        if len(given) <= _PACKET_ID_DIGITS and given.isascii() and given.isdecimal() and isinstance(source, Session):
            return self._queues.lent(name, int(given), source)
        return given

    def _do(self, name: str, ack_id: str, seconds: float | None) -> bool:
        if self._action == ACK:
            return self._queues.ack(name, [ack_id])[0]
        if self._action == NACK:
            return self._queues.nack(name, [ack_id], seconds)[0]
        if seconds is None:
            seconds = self._queues.options(name).ack_deadline_s
        return self._queues.extend(name, [ack_id], seconds)[0]


def _named(message: Message) -> list[tuple[str, float | None]]:
    """The messages named by a command, with their seconds."""
    correlation = message.properties.correlation_data
    lines = message.payload.split(b"\n", MAX_ACK_IDS)[:MAX_ACK_IDS]
    if correlation is not None:
        return [(correlation.decode(errors="replace"), _seconds(lines[0]))]
    found = []
    for line in lines:
        ack_id, _, seconds = line.strip().partition(b" ")
        found.append((ack_id.decode(errors="replace"), _seconds(seconds)))
    return found


def _seconds(text: bytes) -> float | None:
    """A number of seconds; None if there is none."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
