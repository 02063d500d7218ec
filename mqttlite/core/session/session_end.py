"""Cleans up after a session has ended: removes its subscriptions and releases its messages, which may be a million.

The session has already left the table, so a new session of the same client is independent of it. The store keeps it,
marked as expired, until all is done: no message is deleted before it is redispatched, and a broker that is killed
meanwhile ends the session after its restart. Invariant: each message that waited is given to another member of its
shared subscription, or counted as dropped.
"""

from typing import Final, final

from mqttlite.core.changes import EndSession
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.limits import PAGE_MESSAGES
from mqttlite.core.message import Delivery
from mqttlite.core.question import LoadPage
from mqttlite.core.reasons import SESSION_EXPIRED, count
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session import Session
from mqttlite.core.tracer import NOT_TRACED

_REMOVAL_WORK: Final = 5
"""The work of removing a subscription from the tree, plus one unit for each level."""
_MESSAGE_WORK: Final = 2
_REDISPATCH_WORK: Final = 16
"""The work of releasing a message, and of finding another receiver for it."""


@final
class SessionEnd(Job):
    __slots__ = (
        "_effects",
        "_is_out_of_the_tree",
        "_is_reading",
        "_jobs",
        "_lost",
        "_pages",
        "_router",
        "_routes",
        "_session",
        "_stored",
    )

    def __init__(
        self,
        session: Session,
        routes: Routes,
        router: Router,
        effects: Effects,
        stored: dict[str, Session],
        jobs: Jobs,
        pages: QueuePages | None,
    ) -> None:
        self._session: Final = session
        self._routes: Final = routes
        self._router: Final = router
        self._effects: Final = effects
        self._stored: Final = stored
        """Ended sessions that are still in the store, by client."""
        self._jobs: Final = jobs
        self._pages: Final = pages
        """Reads messages that are only in the store, because those of shared subscriptions may go to another member."""
        self._is_reading = False
        self._is_out_of_the_tree = False
        self._lost = session.retained_waiting
        session.forget_retained()

    def step(self) -> bool:
        if not self._remove_subscriptions() or not self._empty_queue():
            return False
        if self._is_reading:
            return True  # queued again when the page has arrived
        client_id = self._session.client_id
        if self._stored.get(client_id) is self._session:
            del self._stored[client_id]
            self._effects.record(EndSession(client_id))
        return True

    def _remove_subscriptions(self) -> bool:
        effects = self._effects
        session = self._session
        while session.subscriptions:
            subscription = session.pop_last_subscription()
            self._routes.remove_ended(subscription)
            effects.work += _REMOVAL_WORK + subscription.topic_filter.count(b"/")
            if not has_budget(effects):
                return False
        if not self._is_out_of_the_tree:
            self._is_out_of_the_tree = True
            self._routes.end_ended(session)
        return True

    def _empty_queue(self) -> bool:
        session = self._session
        while True:
            was_sent = len(session.window.resend) > 0
            delivery = session.take_waiting()
            if delivery is None:
                break
            self._let_go(delivery, was_sent)
            self._effects.work += _MESSAGE_WORK
            if not has_budget(self._effects):
                return False
        is_stored = self._stored.get(self._session.client_id) is self._session  # otherwise the client has a new one
        if self._pages is not None and self._session.queue.stored and is_stored:
            self._is_reading = True
            self._pages.want(self)
            return True
        self._lost += self._session.queue.stored
        self._tell_lost()
        return True

    def next_page(self) -> LoadPage | None:
        """Implements `PageReader`."""
        queue = self._session.queue
        return LoadPage(self._session.client_id, queue.first, min(queue.stored, PAGE_MESSAGES))

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Implements `PageReader`."""
        self._is_reading = False
        if self._stored.get(self._session.client_id) is self._session:
            self._session.add_page(first, page)
        self._jobs.queue(self)

    def _let_go(self, delivery: Delivery, was_sent: bool) -> None:
        """Return a message to its origin, if it has one. A QoS 2 message in flight goes to no other client
        [MQTT-4.8.2-5], but one that only waited may."""
        message = delivery.message
        origin = delivery.origin
        if origin is not None and not message.expired(self._effects.now):
            self._effects.work += _REDISPATCH_WORK
            if origin.returned(delivery):
                return
            only_waited = not was_sent and delivery.qos == 2
            if only_waited and isinstance(origin, SharedSubscription) and origin.pass_on(delivery):
                return
        if message.trace:
            self._drop(1, message.topic, message.trace)
        else:
            self._lost += 1

    def _tell_lost(self) -> None:
        self._session.release()
        if self._lost:
            self._drop(self._lost, b"", NOT_TRACED)

    def _drop(self, messages: int, topic: bytes, trace: int) -> None:
        count(self._router.drops.by_reason, SESSION_EXPIRED, messages)
        tracer = self._effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, self._session.client_id, topic, SESSION_EXPIRED, messages, "")
