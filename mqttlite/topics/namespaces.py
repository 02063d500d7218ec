"""The reserved namespaces of topics, in which the first level defines the meaning of the other levels.

`$share/<share name>/<filter>` is the standard's (5.0 §4.8.2). `$delayed` and `$CONTROL` are the broker's own. All
others belong to features, and each feature describes its own with a `Syntax`. SUBSCRIBE and UNSUBSCRIBE parse each
filter, and a `Subscription` keeps the parts that routes need.

Topics of a client below a *mount point* are relative to it: `mounted_name` and `mounted_filter` add it, and `unmounted`
removes it. Namespaces come first, so `$share/<share name>/` stays in front, and `$SYS` is the same for all clients.

Invariant: a filter or name that the broker does not serve has a refusal, and is never treated as an ordinary one.
"""

from collections.abc import Callable, Iterable
from typing import Final, final

from mqttlite.topics.names import is_own, shown
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

ORDINARY: Final = 0
SHARED: Final = 1
DELAYED: Final = 2
CONTROL: Final = 3
RESERVED: Final = 4
"""The namespaces of features: `ParsedTopic.syntax` says which."""

MAX_DELAY_S: Final = 4_294_967
"""The longest delay of a message, some seven weeks: the limit of EMQX, whose clients know the namespace."""

_MAX_DELAY_DIGITS: Final = len(str(MAX_DELAY_S))

_SHARE: Final = b"$share/"

_NO_CONTROL: Final = "$CONTROL/…: nothing answers there; dynamic_security in the configuration turns its commands on"

_NOT_TO_SUBSCRIBE: Final = "$delayed/…: no message comes on it; subscribe to the topic behind the seconds"


def _refuse_no_filter(name: bytes, rest: bytes) -> str:
    return ""


@final
class Syntax:
    """What topics below one reserved first level may be used for.

    `has_members`: a subscription makes its client a member of what the second level names, and matches no topic.
    Messages to its names go only to the sinks bound to them, and without one are refused with `name_refusal`.

    `filter_refusal` gets the second level and the rest of a filter, and returns the sentence that refuses it, or an
    empty one. `share_refusal` refuses shared subscriptions; without it, `filter_refusal` decides about them too.

    `detail_mark` separates the name of what a client is a member of from a detail of its subscription, such as where to
    begin; permissions are about the name alone. `takes_messages`: its names are published to as ordinary topics are,
    by the program and over HTTP, too. `has_groups`: shared subscriptions are for it, too: their clients are members
    together, in the group with the share name.
    """

    __slots__ = (
        "detail_mark",
        "filter_refusal",
        "first_level",
        "has_groups",
        "has_members",
        "max_qos",
        "name_refusal",
        "share_refusal",
        "takes_messages",
        "tells",
    )

    def __init__(
        self,
        first_level: bytes,
        *,
        has_members: bool = False,
        max_qos: int = 2,
        name_refusal: str = "",
        filter_refusal: Callable[[bytes, bytes], str] = _refuse_no_filter,
        share_refusal: str = "",
        tells: bool = False,
        detail_mark: bytes = b"",
        takes_messages: bool = False,
        has_groups: bool = False,
    ) -> None:
        self.first_level: Final = first_level
        self.has_members: Final = has_members
        self.max_qos: Final = max_qos
        """The highest QoS of a subscription."""
        self.name_refusal: Final = name_refusal
        self.tells: Final = tells
        """Whether its messages carry their identity (`core/outbound/told_properties`) for all receivers."""
        self.filter_refusal: Final = filter_refusal
        self.share_refusal: Final = share_refusal
        self.detail_mark: Final = detail_mark
        self.takes_messages: Final = takes_messages
        self.has_groups: Final = has_groups


def unavailable(first_level: bytes, sentence: str) -> Syntax:
    """A namespace that is reserved and refuses everything."""
    return Syntax(first_level, name_refusal=sentence, filter_refusal=lambda name, rest: sentence)


@final
class ParsedTopic:
    """The parts of a topic filter or name.

    `name` is the share name, the seconds of `$delayed`, or the second level of another namespace; `rest` is the filter
    or topic name after it, or empty. An ordinary filter or name is all `rest`. `syntax` is that of a namespace of
    features, `inner` the parsed `rest` of `$share` and `$delayed` if it begins with `$`.
    """

    __slots__ = ("inner", "name", "namespace", "rest", "syntax")

    def __init__(
        self,
        namespace: int,
        name: bytes,
        rest: bytes,
        syntax: Syntax | None = None,
        inner: "ParsedTopic | None" = None,
    ) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self.rest: Final = rest
        self.syntax: Final = syntax
        self.inner: Final = inner

    @property
    def has_members(self) -> bool:
        """Whether a subscription makes its client a member, and matches no topic."""
        if self.inner is not None and self.namespace == SHARED:
            return self.inner.syntax is not None and self.inner.syntax.has_groups
        return self.syntax is not None and self.syntax.has_members

    @property
    def shown(self) -> str:
        """The namespace for a sentence."""
        syntax = self.syntax if self.inner is None else self.inner.syntax
        return "" if syntax is None else f"{syntax.first_level.decode()}/…"

    @property
    def target(self) -> bytes:
        """What its client would be a member of: the first two levels, without the detail and without the share.
        Permissions to subscribe are about it."""
        if self.inner is not None:
            return self.inner.target
        syntax = self.syntax
        assert syntax is not None, "it has members"
        name = self.name.partition(syntax.detail_mark)[0] if syntax.detail_mark else self.name
        return syntax.first_level + b"/" + name

    @property
    def max_qos(self) -> int:
        """The highest QoS of a subscription."""
        syntax = self.syntax if self.inner is None else self.inner.syntax
        return 2 if syntax is None else syntax.max_qos

    @property
    def filter_refusal(self) -> str:
        """A sentence for the client that says why this filter cannot be subscribed to; empty if it can."""
        if self.namespace == DELAYED:
            return _NOT_TO_SUBSCRIBE
        if self.namespace == SHARED and self.inner is not None:
            syntax = self.inner.syntax
            return self.inner.filter_refusal if syntax is None or not syntax.share_refusal else syntax.share_refusal
        return "" if self.syntax is None else self.syntax.filter_refusal(self.name, self.rest)

    @property
    def name_refusal(self) -> str:
        """A sentence for the client that says why this name cannot be published to; empty if it can.

        A name of `$CONTROL` or of a namespace with members can be published to all the same if a sink is bound to it.
        """
        if self.namespace == CONTROL:
            return _NO_CONTROL
        if self.namespace != DELAYED:
            return "" if self.syntax is None else self.syntax.name_refusal
        if not self.name.isdigit() or len(self.name) > _MAX_DELAY_DIGITS or int(self.name) > MAX_DELAY_S:
            return f"$delayed/…: {shown(self.name)} is no whole number of seconds from 0 to {MAX_DELAY_S}"
        if not self.rest:
            return "$delayed/…: no topic follows the seconds"
        return "" if self.can_be_delayed else f"$delayed/…: messages to {shown(self.rest)} cannot be delayed"

    @property
    def can_be_delayed(self) -> bool:
        """Whether the topic behind the seconds of a `$delayed` name is an ordinary one."""
        return not is_own(self.rest) and (self.inner is None or self.inner.namespace == ORDINARY)

    @property
    def delay_s(self) -> int:
        """The seconds of a `$delayed` name that has no refusal."""
        return int(self.name)


@final
class Namespaces:
    """The reserved first levels of one broker."""

    __slots__ = ("_syntaxes",)

    def __init__(self, syntaxes: Iterable[Syntax] = ()) -> None:
        self._syntaxes: Final[dict[bytes, Syntax]] = {each.first_level: each for each in syntaxes}

    def parse_filter(self, topic_filter: bytes) -> ParsedTopic:
        """The parts of a valid topic filter. Raises as `split_share` does. Names in other namespaces are not checked
        here."""
        if not topic_filter.startswith(_SHARE):
            return self.parse_name(topic_filter)
        name, rest = split_share(topic_filter)
        return ParsedTopic(SHARED, name, rest, None, self._inner(rest))

    def parse_name(self, topic: bytes) -> ParsedTopic:
        """The parts of a valid topic name."""
        parsed = self._parse(topic)
        if parsed.namespace != DELAYED:
            return parsed
        return ParsedTopic(DELAYED, parsed.name, parsed.rest, None, self._inner(parsed.rest))

    def tells(self, topic: bytes) -> bool:
        """Whether the messages of a topic carry their identity for all receivers."""
        syntax = self._syntaxes.get(topic.partition(b"/")[0]) if topic.startswith(b"$") else None
        return syntax is not None and syntax.tells

    def check_is_served(self, topic: bytes) -> None:
        """Raises `TopicNameInvalid` for a name that cannot be published to. Where the namespace takes messages, the
        route of the name says whether there is a receiver."""
        parsed = self.parse_name(topic)
        refusal = parsed.name_refusal
        if refusal and (parsed.syntax is None or not parsed.syntax.takes_messages):
            raise TopicNameInvalid(refusal)

    def mounted_name(self, mount_point: bytes, topic: bytes) -> bytes:
        """A non-empty name of a client with its mount point added."""
        if topic.startswith(b"$"):
            if is_own(topic):
                return topic
            parts = self.parse_name(topic)
            rest = parts.rest
            if parts.namespace == DELAYED and rest and parts.can_be_delayed:
                return topic[: len(topic) - len(rest)] + mount_point + rest
            if parts.namespace != ORDINARY:
                return topic
        return mount_point + topic

    def mounted_filter(self, mount_point: bytes, topic_filter: bytes) -> bytes:
        """The same for a valid topic filter. Raises as `split_share` does."""
        if not topic_filter.startswith(_SHARE):
            return self.mounted_name(mount_point, topic_filter)
        rest = split_share(topic_filter)[1]
        return topic_filter[: len(topic_filter) - len(rest)] + self.mounted_name(mount_point, rest)

    def _inner(self, rest: bytes) -> ParsedTopic | None:
        return self._parse(rest) if rest.startswith(b"$") else None

    def _parse(self, topic: bytes) -> ParsedTopic:
        """The parts without `inner`: names may have thousands of levels, and each may be `$delayed`."""
        if not topic.startswith(b"$"):
            return ParsedTopic(ORDINARY, b"", topic)
        first, _, behind = topic.partition(b"/")
        name, _, rest = behind.partition(b"/")
        syntax = self._syntaxes.get(first)
        if syntax is not None:
            return ParsedTopic(RESERVED, name, rest, syntax)
        if first == b"$delayed":
            return ParsedTopic(DELAYED, name, rest)
        return ParsedTopic(CONTROL, name, rest) if first == b"$CONTROL" else ParsedTopic(ORDINARY, b"", topic)


def split_share(topic_filter: bytes) -> tuple[bytes, bytes]:
    """The share name of a valid topic filter, empty if it is not shared, and the filter itself.

    Raises `TopicFilterInvalid` for a share name that is empty or has a wildcard [MQTT-4.8.2-1], or without a filter.
    """
    if not topic_filter.startswith(_SHARE):
        return b"", topic_filter
    _share, name, *rest = topic_filter.split(b"/", 2)
    if not name or b"+" in name or b"#" in name:
        raise TopicFilterInvalid(f"share name in {shown(topic_filter)} is empty or has a wildcard [MQTT-4.8.2-1]")
    if not rest or not rest[0]:
        raise TopicFilterInvalid(f"{shown(topic_filter)} has no filter behind its share name [MQTT-4.8.2-2]")
    return name, rest[0]


def is_control(topic: bytes) -> bool:
    """Whether a name is below `$CONTROL`, the namespace for commands to the broker."""
    return topic.startswith(b"$CONTROL/")


def unmounted(mount_point: bytes, topic: bytes) -> bytes:
    """The name of a topic for a client below a mount point. Empty if it has none: topics outside, the mount point
    itself, and all namespaces but `$SYS` and `$CONTROL`, because their messages come from all topics."""
    if topic.startswith(mount_point):
        return topic[len(mount_point) :]
    return topic if is_own(topic) or is_control(topic) else b""
