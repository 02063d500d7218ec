"""The port for queues (`$queue/<name>`): who consumes from them, and what a store kept of them.

The queues themselves are receivers, which are bound as any `Sink`. The core knows of them only what is here.
"""

from collections.abc import Sequence
from typing import Protocol

from mqttlite.core.changes import Change
from mqttlite.core.message import Message
from mqttlite.core.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.subscription import Subscription
from mqttlite.topics.namespaces import ParsedTopic


class Consumers(Protocol):
    """The consumers of all queues."""

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """Why a session cannot subscribe to `$queue/<name>[/<filter>]`, as one sentence; empty where it can.

        It asks for that filter on the content of messages (which is one), if any, and with these user properties.
        """
        ...

    def add(self, session: Session, subscription: Subscription) -> None:
        """The session consumes from a queue, in the place of its earlier subscription with that filter."""
        ...

    def remove(self, subscription: Subscription) -> None:
        """It does so no longer."""
        ...

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """Have those of the sinks of a topic that are queues keep a message with a wrong payload as a dead letter;
        whether one does."""
        ...

    def without_keepers(self, sinks: list[Sink], policy: str) -> list[Sink]:
        """The sinks of an ephemeral topic, with others in the place of queues; `policy` names its topic policy."""
        ...

    def restore(self, change: Change) -> None:
        """Take what a store kept of a queue."""
        ...

    def restored(self) -> None:
        """The store has given everything."""
        ...
