"""Sinks for shared subscriptions in which some members may not get every message, because the rules forbid the topic or
their filters do not let the message pass.

Invariant: a message goes to a member that may get it. If there is none, the reason is counted.
"""

from typing import Final, final

from mqttlite.core.filtered_receivers import FilteredReceivers
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.outlook import PlannedReceiver
from mqttlite.core.permissions import Permissions
from mqttlite.core.shared_subscription import DENIED, FILTERED, TAKEN, SharedSubscription
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.core.tally import Tally


@final
class RestrictedShare:
    """A `Sink`."""

    __slots__ = ("_permissions", "share")

    def __init__(self, share: SharedSubscription, permissions: Permissions) -> None:
        self.share: Final = share
        self._permissions: Final = permissions

    def prepare(self, messages: int) -> bool:
        return self.share.prepare(messages)

    def has_room(self, message: Message, qos: int) -> bool:
        return self.share.has_room(message, qos)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        return self.share.outlook(message, source, knows_payload)

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        if not self._accept(message, tally):
            tally.reached -= 1

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        tally.reached -= 1
        tally.reach(
            [at for at in range(batch.count) if self._accept(batch.delivery(at, 0).message, tally)], batch.count
        )

    def _accept(self, message: Message, tally: Tally) -> bool:
        """Offer a message to the group. Return whether the group counts as a receiver."""
        outcome = self.share.accept_allowed(message, tally)
        if outcome == DENIED:
            self._permissions.drop_shared(message.topic, message.trace, tally)
        elif outcome == FILTERED:
            tally.filtered += 1
            self._permissions.drops.add_filtered(1, message.trace, self.share.name.decode(), "")
        return outcome in (TAKEN, DENIED)


def share_of(sink: Sink) -> SharedSubscription | None:
    """The shared subscription that a sink is or wraps; None for other sinks."""
    if isinstance(sink, SharedSubscription):
        return sink
    return sink.share if isinstance(sink, RestrictedShare) else None


def restricted(sinks: list[Sink], permissions: Permissions, topic: bytes) -> list[Sink]:
    """The sinks, in order, for a topic that not every client may receive."""
    found: list[Sink] = []
    for sink in sinks:
        if isinstance(sink, SharedSubscription):
            found.append(RestrictedShare(sink, permissions))
        elif isinstance(sink, FilteredReceivers):
            found.append(sink.allowed(topic))
        else:
            found.append(sink)
    return found


def selective(sinks: list[Sink], permissions: Permissions) -> list[Sink]:
    """The same for a topic that every client may receive: only groups with filters are wrapped."""
    return [
        RestrictedShare(sink, permissions) if isinstance(sink, SharedSubscription) and sink.selects else sink
        for sink in sinks
    ]
