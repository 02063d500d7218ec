"""Builds queues from their options.

Invariant: a queue is built in the same way whether it is new, changed or restored.
"""

import random
from collections.abc import Callable
from typing import Final

from mqttlite.core.authorizer import RECEIVE
from mqttlite.core.broker import Broker
from mqttlite.core.message import Message
from mqttlite.core.message_filter import FilterCompiler, StoredFilter
from mqttlite.core.session.session import Session
from mqttlite.extensions.queues.ack_ids import AckIds
from mqttlite.extensions.queues.context import QueueContext
from mqttlite.extensions.queues.dead_letters import DeadLetters
from mqttlite.extensions.queues.forwarding import Forwarding
from mqttlite.extensions.queues.idle import IdleEnd
from mqttlite.extensions.queues.managed import SUBSCRIBER, ManagedQueue
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.queue import Queue
from mqttlite.extensions.queues.queue_filter import QueueFilter
from mqttlite.log.deliveries import Deliveries


class QueueBuilder:
    """`on_lost_snapshot` is called with snapshots whose queue no longer keeps the messages they need. `has_consumer`
    says whether a queue has a consumer now, and `end` deletes an idle queue."""

    def __init__(
        self,
        core: Broker,
        filters: FilterCompiler,
        wall_ahead_us: int,
        *,
        on_lost_snapshot: Callable[[str], None],
        has_consumer: Callable[[ManagedQueue], bool],
        end: Callable[[str], None],
    ) -> None:
        self._core: Final = core
        self._filters: Final = filters
        self._wall_ahead_us: Final = wall_ahead_us
        self._on_lost_snapshot: Final = on_lost_snapshot
        self._has_consumer: Final = has_consumer
        self._end: Final = end
        self._forwarding: Final = Forwarding(core.effects, core.jobs, core.router.drops, core.publish_own)
        self.context: Final = QueueContext(
            *(core.effects, core.jobs, core.deadlines, core.page_reads, core.has_pages, wall_ahead_us)
        )

    def make(
        self, options: QueueOptions, origin: str, mount_point: str, ack_key: bytes, owner: str | None, made_us: int
    ) -> ManagedQueue:
        """Create a queue without bindings. `ack_key` is the key of its `ack-id`s, `owner` the user of the subscriber
        that creates it, at `made_us`."""
        dead_letters = DeadLetters(
            *(options.name, self._core.effects, self._publish, self._forwarding.add, self._wall_ahead_us)
        )
        queue = Queue(
            options.name,
            options,
            self.context,
            Deliveries(random.random),
            dead_letters,
            self._on_lost_snapshot,
            AckIds(ack_key),
            self._may_receive if origin == SUBSCRIBER else None,
        )
        kept = ManagedQueue(options, origin, mount_point, owner, made_us, queue, dead_letters)
        self.set_up(kept)
        return kept

    def set_up(self, kept: ManagedQueue) -> None:
        """Apply the options to a queue."""
        options = kept.options
        if kept.idle is not None:
            kept.idle.stop()
            kept.idle = None
        if options.idle_expiry_s:
            kept.idle = IdleEnd(
                self._core.effects,
                self._core.deadlines,
                options.idle_expiry_s,
                lambda: self._has_consumer(kept),
                lambda: self._end(options.name),
            )
        kept.dead_letters.forward_to = options.dead_letter_topic
        kept.queue.filter = None
        if options.filter:
            compiled = self._filters.compile(options.filter, kept.mount_point.encode())
            # A filter that an earlier version accepted and this one does not lets every message pass.
            message_filter = StoredFilter(options.filter) if isinstance(compiled, str) else compiled
            core = self._core
            kept.queue.filter = QueueFilter(message_filter, kept.queue.contents, core.router.drops, core.effects)

    def _publish(self, message: Message) -> None:
        """Publish a dead letter where a client subscribes to it. One without a subscriber is not lost: its queue keeps
        it."""
        if self._core.has_subscribers(message.topic):
            self._core.publish_own(message)

    def _may_receive(self, session: Session, topic: bytes) -> bool:
        """Whether a client may receive a message of a queue that was not created by an operator. Counts and reports a
        denial."""
        permissions = self._core.permissions
        if permissions.may_receive(session, topic):
            return True
        permissions.deny(session, RECEIVE, topic)
        return False
