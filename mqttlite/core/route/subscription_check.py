"""Ends the subscriptions that the rules in force would refuse. It is a job, because there may be millions.

The right to receive is checked for each message, which is enough unless rules restrict subscribing more than receiving.
Dynamic security has separate rules for subscribing, which a client may lose. Invariant: each subscription that exists
when the job begins, or when the rules change, is checked against the latest rules.
"""

from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job
from mqttlite.core.limits import FILTER_WORK, ITERATION_WORK
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.subscribe import Subscriptions
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions

_LOOK_WORK: Final = 2
"""The work of checking one subscription."""


@final
class SubscriptionCheck(Job):
    __slots__ = (
        "_effects",
        "_filters",
        "_permissions",
        "_session",
        "_sessions",
        "_subscriptions",
        "_waiting",
        "is_done",
    )

    def __init__(
        self, sessions: Sessions, subscriptions: Subscriptions, permissions: Permissions, effects: Effects
    ) -> None:
        self._sessions: Final = sessions
        self._subscriptions: Final = subscriptions
        self._permissions: Final = permissions
        self._effects: Final = effects
        self._session: Session | None = None
        self._filters: list[bytes] = []
        self._waiting = sessions.values()
        self.is_done: bool = False

    def on_new_rules(self, permissions: Permissions) -> None:
        """Start again from the first session."""
        self._session = None
        self._filters = []
        self._waiting = self._sessions.values()

    def step(self) -> bool:
        while self._filters or self._waiting:
            if self._effects.work >= ITERATION_WORK:
                return False
            self._effects.work += _LOOK_WORK
            session = self._session
            if not self._filters:
                session = self._session = self._waiting.pop()
                self._filters = list(session.subscriptions)
                continue
            topic_filter = self._filters.pop()
            assert session is not None, "the filters belong to a session"
            if session.is_over:
                self._filters = []
            elif not self._permissions.may_subscribe(session, self._subscriptions.asked(topic_filter)):
                self._effects.work += FILTER_WORK
                self._subscriptions.end(session, topic_filter)
        self.is_done = True
        return True
