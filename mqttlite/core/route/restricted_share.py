"""Sinks for shared subscriptions of which some members may not receive the topic."""

from typing import Final, final

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.route.filtered_receivers import FilteredReceivers
from mqttlite.core.route.outlook import PlannedReceiver
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.route.tally import Tally
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source


@final
class RestrictedShare:
    """A `Sink`."""

    __slots__ = ("share",)

    def __init__(self, share: SharedSubscription) -> None:
        self.share: Final = share

    def prepare(self, messages: int) -> bool:
        return self.share.prepare(messages)

    def has_room(self, message: Message, qos: int) -> bool:
        return self.share.has_room(message, qos)

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        return self.share.outlook(message, source, knows_payload)

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self.share.accept_allowed(message, tally)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        self.share.accept_batch_allowed(batch, tally)


def share_of(sink: Sink) -> SharedSubscription | None:
    """The shared subscription that a sink is or wraps; None for other sinks."""
    if isinstance(sink, SharedSubscription):
        return sink
    return sink.share if isinstance(sink, RestrictedShare) else None


def restricted(sinks: list[Sink], topic: bytes) -> list[Sink]:
    """The sinks, in order, for a topic that not every client may receive."""
    found: list[Sink] = []
    for sink in sinks:
        if isinstance(sink, SharedSubscription):
            found.append(RestrictedShare(sink))
        elif isinstance(sink, FilteredReceivers):
            found.append(sink.allowed(topic))
        else:
            found.append(sink)
    return found
