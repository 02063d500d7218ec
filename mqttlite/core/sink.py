"""The port for receivers that are not sessions: shared subscriptions, queues, streams, bridges.

A new kind of receiver is a class with these methods and one call of `Broker.bind(topic_filter, sink)`.
"""

from typing import Protocol

from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.route.outlook import PlannedReceiver
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import Source


class Sink(Protocol):
    """Takes every message that its topic filter matches. A sink must not raise or block."""

    def prepare(self, messages: int) -> bool:
        """Prepare for `messages` messages, within the work budget. Return whether it is done.

        If not, the messages wait, and it is called again in the next iteration.
        """
        ...

    def has_room(self, message: Message, qos: int) -> bool:
        """Whether it would take a message published with `qos` without a drop. Asked only for the topic policies
        `block` and `reject`."""
        ...

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Predict what `accept` would do now, for each receiver, without changing anything. Without `knows_payload` the
        payload has the right size but no content. Empty if no receiver would count."""
        ...

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Take one message, and put the outcome into the tally."""
        ...

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Take a batch of messages; of QoS 1 and 2 only if it `takes_batches`."""
        ...

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Whether QoS 1 and 2 messages of a topic with these properties may come in batches. Then each that it does not
        take is refused at its place (`Tally.refuse`)."""
        ...
