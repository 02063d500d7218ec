"""How many levels and bytes the topics of a client may have, and how many bytes its payloads.

The broker has limits for all clients, and a listener may have lower ones. A topic that is within those of all
listeners costs nothing more: its route knows that. Invariant: what `check_name` refuses is never asked here.
"""

from typing import Final, final

from mqttlite.core.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.topics.names import MAX_LEVELS
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, MAX_STRING_BYTES
from mqttlite.wire.errors import PacketTooLarge, TopicNameInvalid
from mqttlite.wire.packets import Will


@final
class TopicLimits:
    """A value."""

    __slots__ = ("max_bytes", "max_levels", "max_payload_bytes")

    def __init__(self, max_levels: int, max_bytes: int, max_payload_bytes: int) -> None:
        self.max_levels: Final = max_levels
        self.max_bytes: Final = max_bytes
        self.max_payload_bytes: Final = max_payload_bytes

    def excludes(self, topic: bytes) -> bool:
        """Whether a topic name or filter has too many levels or bytes."""
        return len(topic) > self.max_bytes or topic.count(b"/") >= self.max_levels

    def refusal(self, topic: bytes) -> str:
        """Why a topic name or filter is not accepted, as a sentence; empty if it is."""
        if len(topic) > self.max_bytes:
            return f"topic of {len(topic)} bytes, at most {self.max_bytes} accepted"
        levels = topic.count(b"/") + 1
        return f"topic with {levels} levels, at most {self.max_levels} accepted" if levels > self.max_levels else ""

    def payload_refusal(self, size: int) -> str:
        """Why a payload of that size is not accepted, as a sentence."""
        return f"payload of {size} bytes, at most {self.max_payload_bytes} accepted"

    def check_will(self, will: Will) -> None:
        """Raises `TopicNameInvalid` or `PacketTooLarge` for a will that may not be published."""
        refusal = self.refusal(will.topic)
        if refusal:
            raise TopicNameInvalid(f"the will's {refusal}")
        if len(will.payload) > self.max_payload_bytes:
            raise PacketTooLarge(f"the will's {self.payload_refusal(len(will.payload))}")


def lower_of(limits: TopicLimits, other: TopicLimits) -> TopicLimits:
    """The stricter of the two for each limit."""
    return TopicLimits(
        min(limits.max_levels, other.max_levels),
        min(limits.max_bytes, other.max_bytes),
        min(limits.max_payload_bytes, other.max_payload_bytes),
    )


NO_TOPIC_LIMITS: Final = TopicLimits(MAX_LEVELS, MAX_STRING_BYTES, MAX_REMAINING_LENGTH)
"""Of publishers that are no clients, and of the program's own."""


def topic_limits(limits: Limits) -> TopicLimits:
    """Those of clients of a listener without limits of its own."""
    return TopicLimits(
        limits.max_topic_levels, limits.max_topic_bytes, limits.max_payload_bytes or MAX_REMAINING_LENGTH
    )


def narrowed(common: TopicLimits, capabilities: Capabilities) -> TopicLimits:
    """The limits of a listener's clients: those of all, or what is lower."""
    own = capabilities
    if not (own.max_topic_levels or own.max_topic_bytes or own.max_payload_bytes):
        return common
    return TopicLimits(
        min(common.max_levels, own.max_topic_levels or common.max_levels),
        min(common.max_bytes, own.max_topic_bytes or common.max_bytes),
        min(common.max_payload_bytes, own.max_payload_bytes or common.max_payload_bytes),
    )
