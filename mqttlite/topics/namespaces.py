"""The reserved namespaces of topics, in which the first level defines the meaning of the other levels.

`$share/<share name>/<filter>` is the standard's (5.0 §4.8.2), the others are this broker's. This module defines their
syntax; the core implements them. SUBSCRIBE and UNSUBSCRIBE parse each filter, and a `Subscription` keeps the parts that
routes need.

Topics of a client below a *mount point* are relative to it: `mounted_name` and `mounted_filter` add it, and `unmounted`
removes it. Namespaces come first, so `$share/<share name>/` stays in front, and `$SYS` is the same for all clients.

Invariant: a filter or name that the broker does not serve has a refusal, and is never treated as an ordinary one.
"""

from typing import Final, final

from mqttlite.topics.names import has_wildcard, is_dead_letter, is_own, shown
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

ORDINARY: Final = 0
SHARED: Final = 1
QUEUE: Final = 2
STREAM: Final = 3
DELAYED: Final = 4
DEAD_LETTERS: Final = 5
CONTROL: Final = 6

_NAMESPACES: Final[dict[bytes, int]] = {
    b"$queue": QUEUE,
    b"$stream": STREAM,
    b"$delayed": DELAYED,
    b"$dlq": DEAD_LETTERS,
    b"$CONTROL": CONTROL,
}
"""By first level. Without `$share`, which the standard reserves only in filters, and only with a slash."""

_NOT_SERVED: Final[dict[int, str]] = {STREAM: "$stream/…: this broker has no streams yet"}

MAX_DELAY_S: Final = 4_294_967
"""The longest delay of a message, some seven weeks: the limit of EMQX, whose clients know the namespace."""

_MAX_DELAY_DIGITS: Final = len(str(MAX_DELAY_S))

_NO_CONTROL: Final = "$CONTROL/…: nothing answers there; dynamic_security in the configuration turns its commands on"

_NO_QUEUE: Final = (
    "$queue/…: nothing takes that; consumers publish to $queue/<name>/$ack, $nack or $extend, and operators to "
    "$create, $delete, $seek, $purge, $pause, $resume, $snapshot or $replay"
)

_FOR_CONSUMERS: Final = frozenset({b"$ack", b"$nack", b"$extend"})

_FOR_ADMINISTRATORS: Final = frozenset({b"$create", b"$delete"})

_QUEUE_NAME: Final = "$queue/…: the name of one queue follows, without wildcards"

_QUEUE_CONTROL: Final = "$queue/…: no message comes on its control topics"

_SHARED_QUEUE: Final = "$share/…: the consumers of a queue share it already; subscribe to $queue/<name>"

_NOT_TO_SUBSCRIBE: Final = "$delayed/…: no message comes on it; subscribe to the topic behind the seconds"


@final
class ParsedTopic:
    """The parts of a topic filter or name.

    `name` is the share, queue or stream, or the seconds of `$delayed`; `rest` is the filter or topic name after it, or
    empty. An ordinary filter or name is all `rest`.
    """

    __slots__ = ("name", "namespace", "rest")

    def __init__(self, namespace: int, name: bytes, rest: bytes) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self.rest: Final = rest

    @property
    def filter_refusal(self) -> str:
        """A sentence for the client that says why this filter cannot be subscribed to; empty if it can."""
        namespace = self.namespace
        if namespace == SHARED:
            namespace = parse_name(self.rest).namespace
            if namespace == QUEUE:
                return _SHARED_QUEUE
        if namespace == QUEUE:
            if not self.name or has_wildcard(self.name):
                return _QUEUE_NAME
            return _QUEUE_CONTROL if self.rest.startswith(b"$") else ""
        return _NOT_TO_SUBSCRIBE if namespace == DELAYED else _NOT_SERVED.get(namespace, "")

    @property
    def name_refusal(self) -> str:
        """A sentence for the client that says why this name cannot be published to; empty if it can.

        A `$CONTROL` or `$queue` name can be published to all the same if a sink is bound to it.
        """
        if self.namespace == CONTROL:
            return _NO_CONTROL
        if self.namespace == QUEUE:
            return _NO_QUEUE
        if self.namespace != DELAYED:
            return _NOT_SERVED.get(self.namespace, "")
        if not self.name.isdigit() or len(self.name) > _MAX_DELAY_DIGITS or int(self.name) > MAX_DELAY_S:
            return f"$delayed/…: {shown(self.name)} is no whole number of seconds from 0 to {MAX_DELAY_S}"
        if not self.rest:
            return "$delayed/…: no topic follows the seconds"
        if is_own(self.rest) or parse_name(self.rest).namespace != ORDINARY:
            return f"$delayed/…: messages to {shown(self.rest)} cannot be delayed"
        return ""

    @property
    def delay_s(self) -> int:
        """The seconds of a `$delayed` name that has no refusal."""
        return int(self.name)


def parse_filter(topic_filter: bytes) -> ParsedTopic:
    """The parts of a valid topic filter.

    Raises `TopicFilterInvalid` for a shared one whose share name is empty or has a wildcard [MQTT-4.8.2-1], or without
    a filter. Names in the other namespaces are not checked here.
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
    """Raises `TopicNameInvalid` for a name that cannot be published to."""
    refusal = parse_name(topic).name_refusal
    if refusal:
        raise TopicNameInvalid(refusal)


def is_control(topic: bytes) -> bool:
    """Whether a name is below `$CONTROL`, the namespace for commands to the broker."""
    return topic.startswith(b"$CONTROL/")


def acknowledged_queue(topic: bytes) -> bytes:
    """The queue (`$queue/<name>`) of a consumer's command topic, for example `$ack`; empty for other names."""
    levels = topic.split(b"/", 3)
    if len(levels) != 3 or levels[0] != b"$queue" or levels[2] not in _FOR_CONSUMERS:
        return b""
    return b"/".join(levels[:2])


def queue_command(topic: bytes) -> bytes:
    """A `$queue/<name>/<command>` name without the topic for the answer, which may follow."""
    return b"/".join(topic.split(b"/", 3)[:3])


def makes_or_ends_queue(topic: bytes) -> bool:
    """Whether a publish to a name makes or deletes a queue."""
    levels = topic.split(b"/", 3)
    return len(levels) >= 3 and levels[0] == b"$queue" and levels[2] in _FOR_ADMINISTRATORS


def mounted_name(mount_point: bytes, topic: bytes) -> bytes:
    """A non-empty name of a client with its mount point added."""
    if topic.startswith(b"$"):
        if is_own(topic):
            return topic
        parts = parse_name(topic)
        rest = parts.rest
        if parts.namespace == DELAYED and rest and not is_own(rest) and parse_name(rest).namespace == ORDINARY:
            return topic[: len(topic) - len(rest)] + mount_point + rest
        if parts.namespace != ORDINARY:
            return topic
    return mount_point + topic


def mounted_filter(mount_point: bytes, topic_filter: bytes) -> bytes:
    """The same for a valid topic filter. Raises as `parse_filter` does."""
    if not topic_filter.startswith(b"$share/"):
        return mounted_name(mount_point, topic_filter)
    parts = parse_filter(topic_filter)
    return topic_filter[: len(topic_filter) - len(parts.rest)] + mounted_name(mount_point, parts.rest)


def unmounted(mount_point: bytes, topic: bytes) -> bytes:
    """The name of a topic for a client below a mount point. Empty if it has none: topics outside, the mount point
    itself, and dead letters, which come from all topics."""
    if topic.startswith(mount_point):
        return topic[len(mount_point) :]
    return topic if topic.startswith(b"$") and not is_dead_letter(topic) else b""
