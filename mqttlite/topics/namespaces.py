"""The reserved namespaces of topics: the first level of a filter or name says what its other levels mean.

`$share/<share name>/<filter>` is the standard's (5.0 §4.8.2), the others are this broker's. This module knows how each
is written; the core knows what it does. SUBSCRIBE and UNSUBSCRIBE parse each filter when it comes in, and a
`Subscription` keeps what the routes need of it.

Invariant: a filter or name of a namespace that the broker does not serve has a `refusal`, and is never ordinary.
"""

from typing import Final, final

from mqttlite.topics.names import shown
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

ORDINARY: Final = 0
SHARED: Final = 1
QUEUE: Final = 2
STREAM: Final = 3
DELAYED: Final = 4
DEAD_LETTERS: Final = 5

_NAMESPACES: Final[dict[bytes, int]] = {
    b"$queue": QUEUE,
    b"$stream": STREAM,
    b"$delayed": DELAYED,
    b"$dlq": DEAD_LETTERS,
}
"""By first level. `$share` is none of them: the standard reserves it in filters only, and only with a slash."""

_NOT_SERVED: Final[dict[int, str]] = {
    QUEUE: "$queue/…: this broker has no queues yet",
    STREAM: "$stream/…: this broker has no streams yet",
    DELAYED: "$delayed/…: this broker has no delayed messages yet",
    DEAD_LETTERS: "$dlq/…: this broker has no dead letters yet",
}


@final
class ParsedTopic:
    """A topic filter or a topic name in its parts.

    `name` is the share, queue or stream, or the seconds of `$delayed`; `rest` is the filter or topic name behind it,
    empty where there is none. Of an ordinary filter or name all is `rest`.
    """

    __slots__ = ("name", "namespace", "rest")

    def __init__(self, namespace: int, name: bytes, rest: bytes) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self.rest: Final = rest

    @property
    def refusal(self) -> str:
        """Why the broker does not serve it, as one sentence for the client; empty where it does."""
        namespace = self.namespace
        if namespace == SHARED:
            namespace = parse_name(self.rest).namespace
        return _NOT_SERVED.get(namespace, "")


def parse_filter(topic_filter: bytes) -> ParsedTopic:
    """The parts of a valid topic filter.

    Raises `TopicFilterInvalid` for a shared one whose share name is empty or has a wildcard [MQTT-4.8.2-1] or that has
    no filter behind it. The names of the other namespaces are not checked: no standard says what they may be.
    """
    if not topic_filter.startswith(b"$share/"):
        return parse_name(topic_filter)
    _share, name, *rest = topic_filter.split(b"/", 2)
    if not name or b"+" in name or b"#" in name:
        raise TopicFilterInvalid(f"share name in {shown(topic_filter)} is empty or has a wildcard [MQTT-4.8.2-1]")
    if not rest or not rest[0]:
        raise TopicFilterInvalid(f"{shown(topic_filter)} has no filter behind its share name [MQTT-4.8.2-2]")
    return ParsedTopic(SHARED, name, rest[0])


def parse_name(topic: bytes) -> ParsedTopic:
    """The parts of a valid topic name."""
    if not topic.startswith(b"$"):
        return ParsedTopic(ORDINARY, b"", topic)
    first, _, rest = topic.partition(b"/")
    namespace = _NAMESPACES.get(first, ORDINARY)
    if namespace == ORDINARY:
        return ParsedTopic(ORDINARY, b"", topic)
    name, _, rest = rest.partition(b"/")
    return ParsedTopic(namespace, name, rest)


def check_is_served(topic: bytes) -> None:
    """Raises `TopicNameInvalid` for the name of a namespace that the broker does not serve."""
    refusal = parse_name(topic).refusal
    if refusal:
        raise TopicNameInvalid(refusal)
