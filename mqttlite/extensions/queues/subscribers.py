"""Tracks which sessions subscribe to which queues, including queues that do not exist yet.

Invariant: a client has one consumer for each filter.
"""

from collections.abc import Iterable
from typing import Final

from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.queues.consumers import Consumer
from mqttlite.extensions.queues.namespace import parts_of
from mqttlite.extensions.queues.queue import Queue


class Subscribers:
    """The subscribers of all queues."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions: Final = permissions
        self._by_queue: Final[dict[str, dict[tuple[str, bytes], Consumer]]] = {}
        """By queue, then by client and filter."""

    @property
    def queues(self) -> Iterable[str]:
        """The names of queues with subscribers."""
        return self._by_queue

    def add(self, session: Session, subscription: Subscription, name: str, queue: Queue | None) -> None:
        """Add a subscriber, or replace its subscription with the same filter."""
        of_queue = self._by_queue.setdefault(name, {})
        key = (subscription.client_id, subscription.topic_filter)
        known = of_queue.get(key)
        if known is not None and known.session is session:
            known.subscription = subscription
            if queue is not None and known.ring is None:
                queue.join(known)
            return
        if known is not None:
            _leave(known)
        consumer = of_queue[key] = Consumer(session, subscription, self._permissions, f"$queue/{name}".encode())
        session.pull_with(consumer)
        if queue is not None:
            queue.join(consumer)

    def remove(self, subscription: Subscription) -> None:
        """It does so no longer."""
        name = queue_of(subscription)
        of_queue = self._by_queue.get(name, {})
        key = (subscription.client_id, subscription.topic_filter)
        consumer = of_queue.get(key)
        if consumer is None or consumer.subscription is not subscription:
            return  # a new session of the client has subscribed meanwhile
        del of_queue[key]
        if not of_queue:
            del self._by_queue[name]
        _leave(consumer)

    def join(self, name: str, queue: Queue) -> None:
        """Make all subscribers of a queue consume from it: it was created, or the rules changed."""
        for consumer in list(self._by_queue.get(name, {}).values()):
            queue.join(consumer)

    def leave(self, name: str, queue: Queue) -> None:
        """The queue is deleted. Its subscribers stay subscribed."""
        for consumer in self._by_queue.get(name, {}).values():
            queue.leave(consumer)

    def online(self, name: str) -> list[Consumer]:
        """The connected consumers of a queue."""
        return [each for each in self._by_queue.get(name, {}).values() if each.session.outbox is not None]


def queue_of(subscription: Subscription) -> str:
    """The name of the queue of a subscription."""
    return parts_of(subscription.topic_filter)[0].decode()


def _leave(consumer: Consumer) -> None:
    consumer.session.pull_no_more(consumer)
    if consumer.ring is not None:
        consumer.ring.leave(consumer)
