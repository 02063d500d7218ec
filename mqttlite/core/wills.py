"""The wills that are to be published, in the order in which they became due.

A thousand clients may die at once, each with a large will. An iteration of the loop publishes as many as its budget has
room for, and the next wills wait a moment for the links that are blocked by then. Invariant: a will is published once.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.changes import RemoveWill
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.limits import WILL_PATIENCE_S, WILL_WORK
from mqttlite.core.message import Message
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session


@final
class Wills(Job):
    """One job for all wills of a broker."""

    __slots__ = ("_blocked", "_deadlines", "_due", "_effects", "_held_until", "_jobs", "_router", "_routes")

    def __init__(self, routes: Routes, router: Router, deadlines: Deadlines, jobs: Jobs, effects: Effects) -> None:
        self._routes: Final = routes
        self._router: Final = router
        self._deadlines: Final = deadlines
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._due: Final[deque[tuple[Message, Session, bool]]] = deque()
        self._blocked: Final[dict[int, None]] = {}
        self._held_until: Deadline | None = None

    def publish(self, message: Message, session: Session, was_saved: bool) -> None:
        """Publish the will of a session: now if the budget has room, else after those that are due already.

        A will that was saved stays in the store until then, unless its session ends or has another by then.
        """
        self._due.append((message, session, was_saved))
        self._effects.memory.hold(message)
        if len(self._due) > 1:
            return
        if not len(self._jobs):
            self._blocked.clear()
        if has_budget(self._effects):
            self.step()
        else:
            self._jobs.queue(self)

    def step(self) -> bool:
        """Publish wills while the budget lasts, the first of them at least unless links are blocked."""
        while self._due:
            if self._blocked:
                self._held_until = _Patience(self)
                self._deadlines.arm(self._held_until, self._effects.now + WILL_PATIENCE_S)
                return True  # a job again when the links take bytes
            message, session, was_saved = self._due.popleft()
            self._effects.memory.let_go(message)
            if was_saved and not session.is_over and session.will_delay is None:
                self._effects.record(RemoveWill(session.client_id))
            self._effects.work += WILL_WORK
            self._router.publish(message, self._routes.find(message.topic), session)
            if self._due and not has_budget(self._effects):
                return False
        return True

    def on_blocked(self, number: int) -> None:
        """That connection's link takes no more bytes: if more is under way, wills wait for it, but not for long."""
        if self._due or len(self._jobs):
            self._blocked[number] = None

    def on_unblocked(self, number: int) -> None:
        """That connection's link takes bytes again, or is gone."""
        self._blocked.pop(number, None)
        if not self._blocked:
            self.release()

    def release(self) -> None:
        """Wait for links no longer."""
        if self._held_until is not None:
            self._deadlines.cancel(self._held_until)
            self.on_patience_over()

    def on_patience_over(self) -> None:
        """The wills have waited long enough: a link that is still blocked keeps or drops messages by its limits."""
        self._held_until = None
        self._blocked.clear()
        self._jobs.queue(self)


@final
class _Patience(Deadline):
    """How long wills wait for blocked links."""

    __slots__ = ("_wills",)

    def __init__(self, wills: Wills) -> None:
        super().__init__()
        self._wills: Final = wills

    def on_due(self) -> None:
        self._wills.on_patience_over()
