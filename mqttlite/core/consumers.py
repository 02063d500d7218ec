"""The port for queues (`$queue/<name>`): their consumers, and their restored state.

The queues themselves are receivers that are bound like any `Sink`. The core knows nothing else about them.
"""

from collections.abc import Sequence
from typing import Protocol

from mqttlite.core.changes import Change
from mqttlite.core.message import Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.topics.namespaces import ParsedTopic


class Consumers(Protocol):
    """The consumers of all queues."""

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """A sentence that says why a session cannot subscribe to `$queue/<name>[/<filter>]`; empty if it can.

        `expression` is a valid message filter, or empty; `properties` are the user properties of the SUBSCRIBE.
        """
        ...

    def add(self, session: Session, subscription: Subscription) -> None:
        """The session consumes from a queue. This replaces an earlier subscription with the same filter."""
        ...

    def remove(self, subscription: Subscription) -> None:
        """The session no longer consumes from the queue."""
        ...

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """Have those of the sinks of a topic that are queues keep a message with a wrong payload as a dead letter;
        whether one does."""
        ...

    def refuse_ephemeral(self, sinks: list[Sink], policy: str) -> list[Sink]:
        """The sinks of an ephemeral topic, with others in the place of queues; `policy` names its topic policy."""
        ...

    def restore(self, change: Change) -> None:
        """Apply a change of a queue that a store kept."""
        ...

    def restored(self) -> None:
        """All kept changes were applied."""
        ...
