"""What most sinks of features have alike. Invariant: a batch is what its messages are one by one."""

from abc import ABC, abstractmethod

from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import Source


class SimpleSink(ABC):
    """A `Sink` but for `outlook`: it needs no preparation and always has room, for a message too many gets its own
    error."""

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        """Implements `Sink`."""
        return True

    @abstractmethod
    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Implements `Sink`."""
        return False

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)
