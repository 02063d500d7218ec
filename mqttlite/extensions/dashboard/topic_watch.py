"""Counts messages below a topic while a page shows it, and keeps the last value of each topic.

It is a sink that does not count as a receiver, so publishers get the same answers as without it. Invariant: between two
updates it holds at most `MAX_TOPICS` topics, and only the beginning of each payload.
"""

from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.route.outlook import PlannedReceiver
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import Source
from mqttlite.extensions.simple_sink import SimpleSink
from mqttlite.wire.constants import MAX_STRING_BYTES

MAX_TOPICS: Final = 5_000
"""Topics that may get messages between two looks; those of further ones are not counted."""

KEPT_BYTES: Final = 2_048
"""Of a payload: more than a page shows in a line."""


class Seen:
    """The messages of one topic since the last look."""

    __slots__ = ("messages", "payload", "payload_bytes")

    def __init__(self) -> None:
        self.messages: int = 0
        self.payload: bytes = b""
        """The beginning of the last one."""
        self.payload_bytes: int = 0
        """Of all of it."""


class TopicWatch(SimpleSink):
    """A `Sink` for the topics of a filter, from the first `take` to `end`."""

    def __init__(self, core: Broker, topic_filter: bytes) -> None:
        assert len(topic_filter) <= MAX_STRING_BYTES
        self._core: Final = core
        self._filter: Final = topic_filter
        self._is_bound = False
        self._seen: dict[bytes, Seen] = {}

    def take(self, source: Source) -> dict[bytes, Seen]:
        """Return the messages since the last call, on topics that a source may receive."""
        if not self._is_bound:
            self._is_bound = True
            self._core.bind(self._filter, self)
        seen, self._seen = self._seen, {}
        may_receive = self._core.permissions.may_receive
        return {topic: found for topic, found in seen.items() if may_receive(source, topic)}

    def end(self) -> None:
        """Count nothing any more."""
        if self._is_bound:
            self._is_bound = False
            self._core.unbind(self._filter, self)

    def outlook(self, _message: Message, _source: Source, _knows_payload: bool) -> list[PlannedReceiver]:
        return []

    def accept(self, message: Message, _source: Source, tally: Tally) -> None:
        tally.reached -= 1  # a watch does not count as a receiver
        self._note(message.topic, 1, message.payload)

    def accept_batch(self, batch: PublishBatch, _source: Source, tally: Tally) -> None:
        tally.reached -= 1
        self._note(batch.topic, batch.count, batch.payload(batch.count - 1))

    def _note(self, topic: bytes, messages: int, payload: bytes) -> None:
        found = self._seen.get(topic)
        if found is None:
            if len(self._seen) >= MAX_TOPICS:
                return
            found = self._seen[topic] = Seen()
        found.messages += messages
        found.payload = payload[:KEPT_BYTES]
        found.payload_bytes = len(payload)
