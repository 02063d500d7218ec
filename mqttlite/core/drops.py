"""The count of messages that are dropped without a receiver: nobody subscribes, not authorized, session expired."""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.tracer import NOT_TRACED


@final
class Drops:
    __slots__ = ("_effects", "by_reason")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self.by_reason: Final[dict[str, int]] = {}

    def add(self, reason: str, messages: int, topic: bytes, trace: int = NOT_TRACED, detail: str = "") -> None:
        """Count messages, and tell the tracer, also what there is to say beside the reason."""
        self.by_reason[reason] = self.by_reason.get(reason, 0) + messages
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, None, topic, reason, messages, detail)
