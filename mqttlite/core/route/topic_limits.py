"""Limits of a client's topics (levels and bytes) and payloads (bytes).

The broker has limits for all clients, and a listener may have lower ones. A topic within the lowest limits costs
nothing: its route knows that. Invariant: only names that `check_name` accepts are checked here.
"""

from typing import Final, final

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.topics.names import MAX_LEVELS
from mqttlite.topics.namespaces import is_control
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, MAX_STRING_BYTES
from mqttlite.wire.errors import PacketTooLarge, TopicNameInvalid
from mqttlite.wire.packets import Will


@final
class TopicLimits:
    """The limits of one client. A value."""

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

    def is_too_large(self, topic: bytes, size: int) -> bool:
        """Whether a payload is too large. Commands have their own limits: a limit for messages must not lock
        administrators out."""
        return size > self.max_payload_bytes and not is_control(topic)

    def payload_refusal(self, size: int) -> str:
        """Why a payload of that size is not accepted, as a sentence."""
        return f"payload of {size} bytes, at most {self.max_payload_bytes} accepted"

    def check_will(self, will: Will) -> None:
        """Raises `TopicNameInvalid` or `PacketTooLarge` for a will that exceeds the limits."""
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
"""For publishers that are not clients, and for the program's own sessions."""


def topic_limits(limits: Limits) -> TopicLimits:
    """The limits for listeners without their own."""
    return TopicLimits(
        limits.max_topic_levels, limits.max_topic_bytes, limits.max_payload_bytes or MAX_REMAINING_LENGTH
    )


def narrowed(common: TopicLimits, capabilities: Capabilities) -> TopicLimits:
    """The limits of a listener's clients: the lower of the common and its own, for each limit."""
    own = capabilities
    if not (own.max_topic_levels or own.max_topic_bytes or own.max_payload_bytes):
        return common
    return TopicLimits(
        min(common.max_levels, own.max_topic_levels or common.max_levels),
        min(common.max_bytes, own.max_topic_bytes or common.max_bytes),
        min(common.max_payload_bytes, own.max_payload_bytes or common.max_payload_bytes),
    )
