"""The port for a feature with a namespace of its own: its subscriptions, its part in policies, and its restored state.

What is published there goes to receivers that are bound like any `Sink`. The core knows nothing else about it.
"""

from collections.abc import Sequence
from typing import Protocol

from mqttlite.core.log_changes import LoadedOfLog
from mqttlite.core.message import Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.topics.namespaces import ParsedTopic, Syntax


class RecordError(ValueError):
    """What a store kept of a feature is unusable. The text says what it is, and what to do."""


class Namespace(Protocol):
    """One whose subscriptions make their clients members, for example consumers of a queue. `Broker.serve` takes it."""

    @property
    def syntax(self) -> Syntax:
        """One of those that the core was made with; it has members."""
        ...

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """A sentence that says why a session cannot subscribe; empty if it can.

        `expression` is a valid message filter, or empty; `properties` are the user properties of the SUBSCRIBE.
        """
        ...

    def missing(self, parsed: ParsedTopic) -> str:
        """The same sentence where what is subscribed to does not exist, whoever subscribes; else empty. It changes
        nothing."""
        ...

    def add(self, session: Session, subscription: Subscription) -> None:
        """The session becomes a member. This replaces an earlier subscription with the same filter."""
        ...

    def remove(self, subscription: Subscription) -> None:
        """The session is no longer a member."""
        ...

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """Have those of the sinks of a topic that are its own keep a message with a wrong payload as a dead letter;
        whether one does."""
        ...

    def refuse_ephemeral(self, sinks: list[Sink], policy: str) -> list[Sink]:
        """The sinks of an ephemeral topic, with others in the place of its own; `policy` names its topic policy."""
        ...

    def restore(self, change: LoadedOfLog) -> None:
        """Apply what a store kept of records and logs. All namespaces get all of it."""
        ...

    def restored(self) -> None:
        """All kept changes were applied. Raises `RecordError` if the broker would lose messages by starting."""
        ...
