"""The wills that are to be published, in the order in which they became due.

A thousand clients may die at once, each with a large will. Invariant: a will is published once, and as many in one
iteration of the loop as the budget has room for, so that clients that read are not flooded.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.limits import WILL_WORK
from mqttlite.core.message import Message
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session


@final
class Wills(Job):
    """One job for all wills of a broker."""

    __slots__ = ("_due", "_effects", "_jobs", "_router", "_routes")

    def __init__(self, routes: Routes, router: Router, jobs: Jobs, effects: Effects) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._due: Final[deque[tuple[Message, Session]]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._due)

    def publish(self, message: Message, session: Session) -> None:
        """Publish the will of a session: now if the budget has room, else after those that are due already."""
        self._due.append((message, session))
        if len(self._due) == 1:
            if has_budget(self._effects):
                self.step()
            else:
                self._jobs.queue(self)

    def step(self) -> bool:
        """Publish wills, the first of them at least, while the budget lasts."""
        while self._due:
            message, session = self._due.popleft()
            self._effects.work += WILL_WORK
            self._router.publish(message, self._routes.find(message.topic), session)
            if self._due and not has_budget(self._effects):
                return False
        return True
