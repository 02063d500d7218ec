"""Limits how long retained messages are kept, by topic filter.

Only the retained copy gets the shorter Message Expiry Interval; current subscribers get the message as published.
Invariant: if several filters match a topic, the most specific one applies.
"""

from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.topics.names import matches
from mqttlite.wire.properties import Properties


@final
class ExpiryCaps:
    """Seconds by topic filter, at most `MAX_RETAINED_EXPIRIES` of them. 0 means no limit."""

    __slots__ = ("_filters",)

    def __init__(self, seconds: dict[bytes, int]) -> None:
        ordered = sorted(seconds, key=_specificity)
        self._filters: Final[list[tuple[bytes, int]]] = [(each, seconds[each]) for each in ordered]

    def limited(self, message: Message, now: float) -> Message:
        """The message, or a copy with the shorter expiry."""
        for topic_filter, seconds in self._filters:
            if matches(topic_filter, message.topic):
                if seconds == 0 or 0.0 < message.expires_at <= now + seconds:
                    return message
                return expiring(message, message.qos, seconds, now)
        return message


def _specificity(topic_filter: bytes) -> tuple[int, list[int]]:
    """A sort key, most specific first: more levels before `#`, then literal levels before wildcards, from the left."""
    levels = topic_filter.split(b"/")
    wildcards = [2 if level == b"#" else 1 if level == b"+" else 0 for level in levels]
    return -sum(1 for level in levels if level != b"#"), wildcards


def expiring(message: Message, qos: int, interval_s: int, now: float) -> Message:
    """A copy of a message with another QoS that expires after `interval_s`."""
    properties = with_expiry(message.properties, interval_s)
    limited = Message(message.topic, message.payload, qos, message.retain, properties, now + interval_s)
    limited.number, limited.publisher, limited.writer = message.number, message.publisher, message.writer
    return limited


def with_expiry(came: Properties, interval_s: int) -> Properties:
    """The properties of a PUBLISH with another Message Expiry Interval."""
    return Properties(
        payload_format_indicator=came.payload_format_indicator,
        message_expiry_interval=interval_s,
        content_type=came.content_type,
        response_topic=came.response_topic,
        correlation_data=came.correlation_data,
        user_properties=came.user_properties,
    )
