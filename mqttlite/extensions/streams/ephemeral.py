"""Replaces a stream on the route of an ephemeral topic, whose messages must not be kept."""

from typing import Final

from mqttlite.core.effects import Effects
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.reasons import NOT_AUTHORIZED
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, POLICY_REFUSES, Tally
from mqttlite.core.source import Source
from mqttlite.extensions.streams.stream import Stream


class EphemeralStream:
    """A `Sink` that refuses all messages. `policy` is the name of the topic policy."""

    def __init__(self, stream: Stream, policy: str, effects: Effects) -> None:
        self._stream: Final = stream
        self._effects: Final = effects
        self._why: Final = f"the topic policy of {policy} is ephemeral, and {stream.shown} would keep it"

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # room would change nothing

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        return [planned_sink(self._stream.shown, DROPPED, NOT_AUTHORIZED, self._why)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        self._stream.refused += 1
        tally.drop(NOT_AUTHORIZED)
        tally.code, tally.refusal = POLICY_REFUSES, self._why
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(message.trace, self._stream.shown, message.topic, NOT_AUTHORIZED, 1, self._why)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)
