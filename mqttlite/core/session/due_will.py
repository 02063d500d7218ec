"""A will that is due: its session has ended, or its delay is over.

Invariant: a saved will stays in the store until it is published, unless its session ends or gets another will.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveWill
from mqttlite.core.effects import Effects
from mqttlite.core.inbound.held_message import INSIDE, HeldMessage
from mqttlite.core.message import Message
from mqttlite.core.route.due_messages import DueMessages
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.tally import QUOTA_EXCEEDED
from mqttlite.core.session.session import Session
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.wire.packets import Will


@final
class DueWill:
    """A `Due` message."""

    __slots__ = ("_effects", "_router", "_routes", "_will", "message", "session")

    def __init__(
        self, message: Message, session: Session, will: Will, routes: Routes, router: Router, effects: Effects
    ) -> None:
        self.message: Final = message
        self.session: Final = session
        self._will: Final = will
        self._routes: Final = routes
        self._router: Final = router
        self._effects: Final = effects

    def with_message(self, message: Message) -> "DueWill":
        """The same will with another message."""
        return DueWill(message, self.session, self._will, self._routes, self._router, self._effects)

    def drop(self, reason: str, detail: str) -> None:
        """Nobody gets it."""
        self.forget()
        self._router.drops.add(reason, 1, self.message.topic, NOT_TRACED, detail)

    def forget(self) -> None:
        """Remove it from the store."""
        session = self.session
        if session.saved_will is self._will and not session.is_over:
            session.saved_will = None
            self._effects.record(RemoveWill(session.client_id))

    def publish(self) -> FanOut | None:
        self.forget()
        return self._router.publish(self.message, self._routes.find(self.message.topic), self.session)

    def on_published(self) -> None:
        """Remove it from the store."""


@final
class HeldWill(HeldMessage):
    """A due will that a hook is asked about. Its client is gone, so nobody waits."""

    __slots__ = ("_due", "_due_messages")

    def __init__(self, due: DueWill, due_messages: DueMessages) -> None:
        super().__init__(due.message, due.session, INSIDE, is_told=False)
        self._due: Final = due
        self._due_messages: Final = due_messages

    def may_wait(self) -> bool:
        return True

    def wait(self) -> None:
        """It stays in the store until then."""

    def is_over(self) -> bool:
        return False

    def publish(self) -> None:
        self._due_messages.publish(self._due.with_message(self.message))

    def go_on(self) -> None:
        self.publish()

    def end(self, reason: str, refusal: str, code: int = QUOTA_EXCEEDED, detail: str = "") -> None:
        self._due.drop(reason, detail)
