"""Shared subscriptions of topics that not every client may receive: the router hands those messages to these sinks.

Invariant: a message goes to a member that may receive it, or is dropped.
"""

from typing import Final, final

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.permissions import Permissions
from mqttlite.core.shared_subscription import SharedSubscription
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.core.tally import Tally


@final
class RestrictedShare:
    """A `Sink`."""

    __slots__ = ("_permissions", "_share")

    def __init__(self, share: SharedSubscription, permissions: Permissions) -> None:
        self._share: Final = share
        self._permissions: Final = permissions

    def prepare(self, messages: int) -> bool:
        return self._share.prepare(messages)

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        if not self._share.accept_allowed(message, tally):
            self._permissions.drop_shared(message.topic, message.trace, tally)

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)


def restricted(sinks: list[Sink], permissions: Permissions) -> list[Sink]:
    """The sinks for a topic that not every client may receive."""
    return [RestrictedShare(sink, permissions) if isinstance(sink, SharedSubscription) else sink for sink in sinks]
