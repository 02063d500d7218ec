"""The topics that say who subscribes to a topic, and who came and went."""

from typing import Final

PRESENCE: Final = b"$SYS/broker/presence/"
"""The prefix of the retained presence of topics: their current subscribers."""

PRESENCE_EVENTS: Final = b"$SYS/broker/presence_events/"
"""The prefix of presence events: joins and leaves of a topic."""


def presence_subject(topic: bytes) -> bytes:
    """The topic that a presence topic is about, or the filter for a filter; empty for other topics.

    Topics that begin with `$` have no presence.
    """
    for beginning in (PRESENCE, PRESENCE_EVENTS):
        if topic.startswith(beginning) and not topic.startswith(b"$", len(beginning)):
            return topic[len(beginning) :]
    return b""
