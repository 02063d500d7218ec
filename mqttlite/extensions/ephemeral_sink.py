"""Replaces a queue or stream on the route of an ephemeral topic, whose messages must not be kept.

Invariant: it takes none of the messages, each is counted, and the publisher gets the reason if its protocol
allows.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.reasons import NOT_AUTHORIZED
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, POLICY_REFUSES, Tally
from mqttlite.core.source import Source
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.extensions.simple_sink import SimpleSink


@final
class EphemeralSink(SimpleSink):
    """A `Sink`. `shown` is the name of what it replaces, and `policy` that of the topic policy; `on_refused` counts
    messages."""

    def __init__(self, shown: str, policy: str, effects: Effects, on_refused: Callable[[int], None]) -> None:
        self._shown: Final = shown
        self._effects: Final = effects
        self._on_refused: Final = on_refused
        self._why: Final = f"the topic policy of {policy} is ephemeral, and {shown} would keep it"

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        return [planned_sink(self._shown, DROPPED, NOT_AUTHORIZED, self._why)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        self._refuse(message.topic, message.trace, 1, tally)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for trace in batch.traces:
            self._refuse(batch.topic, trace, 1, tally)
        if len(batch.traces) < batch.count:
            self._refuse(batch.topic, NOT_TRACED, batch.count - len(batch.traces), tally)

    def _refuse(self, topic: bytes, trace: int, messages: int, tally: Tally) -> None:
        self._on_refused(messages)
        tally.drop(NOT_AUTHORIZED, messages)
        tally.code, tally.refusal = POLICY_REFUSES, self._why
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, self._shown, topic, NOT_AUTHORIZED, messages, self._why)
