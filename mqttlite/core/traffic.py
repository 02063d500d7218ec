"""What is published, counted by topic: a counter that a route carries, and the table of them.

Invariants: there are `max_topics` counters of single topics at most, and as many of what lies below a first level; all
that finds no room is counted under `#`. Whatever is counted is counted in one of them.
"""

from typing import Final, final


@final
class TopicTraffic:
    """Since the last harvest."""

    __slots__ = (
        "deliveries",
        "messages_qos0",
        "messages_qos1",
        "messages_qos2",
        "payload_bytes",
        "payload_bytes_max",
        "topic",
        "topics",
    )

    def __init__(self, topic: bytes) -> None:
        self.topic: Final = topic
        """A topic, or a filter that stands for many."""
        self.topics = 1
        """How many were counted here, about."""
        self.messages_qos0 = 0
        self.messages_qos1 = 0
        self.messages_qos2 = 0
        self.payload_bytes = 0
        self.payload_bytes_max = 0
        self.deliveries = 0
