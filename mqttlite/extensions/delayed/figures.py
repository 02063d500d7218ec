"""The values of the figures of delayed messages."""

from collections.abc import Mapping

from mqttlite.core.route.delayed_messages import DelayedMessages
from mqttlite.telemetry.figures import Values


def values(messages: DelayedMessages) -> Mapping[str, Values]:
    """By the names in the manifest."""
    return {"delayed_messages": len(messages), "delayed_bytes": messages.size_bytes}
