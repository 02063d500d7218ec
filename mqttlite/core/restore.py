"""Restores the state that a store kept, before the first client connects. The inverse of `changes`."""

from collections.abc import Iterable, Sequence

from mqttlite.core.changes import (
    Change,
    Enqueue,
    LatestNumber,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Stored,
)
from mqttlite.core.log_changes import Append, KeepFrom, SaveDeadline, SaveRecord, StoredLog
from mqttlite.core.message_filter import FilterCompiler, StoredFilter
from mqttlite.core.message_numbers import MessageNumbers
from mqttlite.core.namespace import Namespace
from mqttlite.core.route.delayed_messages import DelayedMessages
from mqttlite.core.route.router import Router
from mqttlite.core.route.subscription import FilteredSubscription, Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions


def restore(
    batches: Iterable[list[Change]],
    sessions: Sessions,
    router: Router,
    delayed: DelayedMessages,
    numbers: MessageNumbers,
    now: float,
    filters: FilterCompiler,
    served: Sequence[Namespace],
) -> None:
    """Recreate the state that `Store.load` yields. For a session that was still connected, the expiry interval starts
    `now`."""
    for changes in batches:
        for change in changes:
            # The most frequent kinds come first: with 100,000 sessions a machine that takes over is waited for.
            if isinstance(change, SaveSubscription):
                sessions.restore_subscription(_with_filter(change.subscription, filters, sessions))
            elif isinstance(change, SaveSession):
                sessions.restore(change, now)
            elif isinstance(change, Enqueue):
                sessions.restore_message(_session(sessions, change.client_id), change)
            elif isinstance(change, Stored):
                queue = _session(sessions, change.client_id).queue
                queue.restore_stored(change.first, change.count, change.size_bytes)
            elif isinstance(change, SaveRetained):
                router.retained.restore(change.message)
            elif isinstance(change, (SaveRecord, Append, SaveDeadline, KeepFrom, StoredLog)):
                for namespace in served:
                    namespace.restore(change)
            elif isinstance(change, SaveWill):
                sessions.restore_will(change, now)
            elif isinstance(change, SaveDelayed):
                delayed.restore(change)
            elif isinstance(change, SaveReleased):
                _session(sessions, change.client_id).window.released.add(change.packet_id)
            elif isinstance(change, SaveReceived):
                _session(sessions, change.client_id).received.add(change.packet_id)
            elif isinstance(change, LatestNumber):
                numbers.latest = max(numbers.latest, change.number)
            else:
                raise TypeError(f"{type(change).__name__} says what goes, and so is nothing to restore")
    router.retained.order.restored()


def _with_filter(subscription: Subscription, filters: FilterCompiler, sessions: Sessions) -> Subscription:
    """A subscription from a store, with its filter compiled again."""
    stored = subscription.message_filter
    if not isinstance(stored, StoredFilter):
        return subscription
    mount_point = _session(sessions, subscription.client_id).identity.mount_point
    compiled = filters.compile(stored.expression, mount_point)
    return FilteredSubscription(
        subscription.client_id,
        subscription.topic_filter,
        subscription.qos,
        subscription.no_local,
        subscription.retain_as_published,
        subscription.identifier,
        stored if isinstance(compiled, str) else compiled,
        subscription.subscribed_at,
    )


def _session(sessions: Sessions, client_id: str) -> Session:
    session = sessions.get(client_id)
    assert session is not None, f"{client_id!r} comes after its parts"
    return session
