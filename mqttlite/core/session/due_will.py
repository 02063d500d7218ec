"""A will that is due: its session has ended, or its delay is over.

Invariant: a saved will stays in the store until it is published, unless its session ends or gets another will.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveWill
from mqttlite.core.effects import Effects
from mqttlite.core.message import Message
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.session.session import Session
from mqttlite.wire.packets import Will


@final
class DueWill:
    """A `Due` message."""

    __slots__ = ("_effects", "_router", "_routes", "_session", "_will", "message")

    def __init__(
        self, message: Message, session: Session, will: Will, routes: Routes, router: Router, effects: Effects
    ) -> None:
        self.message: Final = message
        self._session: Final = session
        self._will: Final = will
        self._routes: Final = routes
        self._router: Final = router
        self._effects: Final = effects

    def publish(self) -> FanOut | None:
        session = self._session
        if session.saved_will is self._will and not session.is_over:
            session.saved_will = None
            self._effects.record(RemoveWill(session.client_id))
        return self._router.publish(self.message, self._routes.find(self.message.topic), session)

    def on_published(self) -> None:
        """Remove it from the store."""
