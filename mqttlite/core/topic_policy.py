"""What holds for the messages of a topic, whoever publishes them: a `TopicPolicy`, kept by the route of the topic."""

from typing import Final, final

EPHEMERAL: Final = "ephemeral"
STANDARD: Final = "standard"
DURABLE: Final = "durable"
TOPIC_CLASSES: Final = (EPHEMERAL, STANDARD, DURABLE)
"""Messages of an ephemeral topic reach connected clients and are kept nowhere. `DURABLE` is a promise of the operator's
about the store; for the core it is `STANDARD`."""


@final
class TopicPolicy:
    """A value. `max_payload_bytes` and `ttl_s` are 0 for no limit, `on_overflow` is "" for what the limits say."""

    __slots__ = (
        "is_low_priority",
        "max_payload_bytes",
        "max_qos",
        "min_qos",
        "name",
        "on_overflow",
        "topic_class",
        "ttl_s",
    )

    def __init__(
        self,
        name: str = "",
        topic_class: str = STANDARD,
        max_payload_bytes: int = 0,
        min_qos: int = 0,
        max_qos: int = 2,
        ttl_s: int = 0,
        on_overflow: str = "",
        is_low_priority: bool = False,
    ) -> None:
        self.name: Final = name
        """How reason strings and logs name it."""
        self.topic_class: Final = topic_class
        self.max_payload_bytes: Final = max_payload_bytes
        self.min_qos: Final = min_qos
        """A PUBLISH with a lower QoS is refused."""
        self.max_qos: Final = max_qos
        """Receivers get messages with this QoS at most."""
        self.ttl_s: Final = ttl_s
        """Messages expire after so many seconds, or earlier where they say so."""
        self.on_overflow: Final = on_overflow
        """What a session does whose queue is full: one of `limits.OVERFLOW_POLICIES`."""
        self.is_low_priority: Final = is_low_priority
        """Whether its messages are the first to go where memory is short."""

    def __repr__(self) -> str:
        return f"TopicPolicy({self.name!r})"


NO_POLICY: Final = TopicPolicy()
"""Of a topic for which nothing is set; compared by identity."""
