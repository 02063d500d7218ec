"""Counts messages that are dropped without a session: no subscriber, not authorized, session expired, a sink failed."""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.tracer import NOT_TRACED


@final
class Drops:
    __slots__ = ("_effects", "by_reason", "filtered")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self.by_reason: Final[dict[str, int]] = {}
        self.filtered: int = 0
        """Messages that a filter kept from a receiver, counted once for each receiver. They are not drops."""

    def add(
        self,
        reason: str,
        messages: int,
        topic: bytes,
        trace: int = NOT_TRACED,
        detail: str = "",
        receiver: str | None = None,
    ) -> None:
        """Count dropped messages and report them to the tracer. Most have no receiver."""
        self.by_reason[reason] = self.by_reason.get(reason, 0) + messages
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, receiver, topic, reason, messages, detail)

    def add_filtered(self, messages: int, trace: int, receiver: str, expression: str) -> None:
        """Count messages that a filter keeps from a receiver, and report a traced one to the tracer."""
        self.filtered += messages
        if trace and self._effects.tracer is not None:
            self._effects.tracer.on_filtered(trace, receiver, expression)
