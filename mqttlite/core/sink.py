"""The port for receivers that are no session of their own: shared subscriptions, queues, streams, bridges.

A new kind of receiver is a class with these methods and one call of `Broker.bind(topic_filter, sink)`.
"""

from typing import Protocol

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.outlook import PlannedReceiver
from mqttlite.core.source import Source
from mqttlite.core.tally import Tally


class Sink(Protocol):
    """Takes every message that its topic filter matches. A sink never raises, and does not block."""

    def prepare(self, messages: int) -> bool:
        """Prepare for `messages` messages, until the work budget is used up; returns whether all is done.

        If not, the messages wait, and it is called again in the next loop iteration.
        """
        ...

    def has_room(self, message: Message, qos: int) -> bool:
        """Whether it would take a message, published with that QoS, without dropping one. Asked only where a topic
        policy says `block` or `reject`."""
        ...

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Predict what `accept` would do now, and to whom; nothing changes. Without `knows_payload` the payload has the
        right size and no content. Empty where no receiver that counts would get the message."""
        ...

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Take one message, and say in the tally what became of it."""
        ...

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Take QoS 0 messages that came together; those of QoS 1 and 2 come one by one."""
        ...
