"""Checks topic names and topic filters (5.0 §4.7), and whether a filter matches a name.

Invariant: `matches` defines the rule that `tree` and `retained` implement faster.
"""

from typing import Final

from mqttlite.wire.constants import MAX_STRING_BYTES
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

MAX_LEVELS: Final = 201
"""Levels in a topic name or filter: each level of a filter may take a node of the tree."""

_PLUS: Final = 0x2B
_HASH: Final = 0x23
"""As numbers, because searching `bytes` for a single byte is ten times as fast as for other bytes."""


def check_name(topic: bytes) -> None:
    """Raises `TopicNameInvalid` for a name that is empty, too long, too deep (`MAX_LEVELS`) or has wildcards."""
    if not topic:
        raise TopicNameInvalid("topic name is empty [MQTT-4.7.3-1]")
    # Names from clients were decoded, and can be neither [MQTT-4.7.3-3].
    if 0 in topic or len(topic) > MAX_STRING_BYTES:
        raise TopicNameInvalid(f"topic name of {len(topic)} bytes is too long, or has U+0000 [MQTT-4.7.3-2]")
    if _PLUS in topic or _HASH in topic:
        raise TopicNameInvalid(f"topic name {shown(topic)} contains a wildcard [MQTT-3.3.2-2]")  # [MQTT-4.7.0-1]
    levels = topic.count(b"/") + 1
    if levels > MAX_LEVELS:
        raise TopicNameInvalid(f"topic name has {levels} levels, at most {MAX_LEVELS} accepted")


def check_filter(topic_filter: bytes) -> None:
    """Raises `TopicFilterInvalid` for a filter that is empty, too deep (`MAX_LEVELS`), has U+0000 or a misplaced
    wildcard."""
    if not topic_filter:
        raise TopicFilterInvalid("topic filter is empty [MQTT-4.7.3-1]")
    if 0 in topic_filter:  # filters from clients were decoded, and have none
        raise TopicFilterInvalid(f"topic filter {shown(topic_filter)} has U+0000 [MQTT-4.7.3-2]")
    levels = topic_filter.split(b"/")
    if len(levels) > MAX_LEVELS:
        raise TopicFilterInvalid(f"topic filter has {len(levels)} levels, at most {MAX_LEVELS} accepted")
    if _HASH in topic_filter[:-1] or (topic_filter[-1] == _HASH and levels[-1] != b"#"):
        raise TopicFilterInvalid(f"'#' in {shown(topic_filter)} is not a whole last level [MQTT-4.7.1-1]")
    for level in levels:
        if _PLUS in level and level != b"+":
            raise TopicFilterInvalid(f"'+' in {shown(topic_filter)} is not a whole level [MQTT-4.7.1-2]")


def is_own(topic: bytes) -> bool:
    """Whether a name, or all that a filter matches, is `$SYS` or below it, where only the broker publishes."""
    return topic.startswith(b"$SYS") and (len(topic) == 4 or topic[4] == 47)


def has_wildcard(topic_filter: bytes) -> bool:
    return _PLUS in topic_filter or topic_filter.endswith(b"#")


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Whether a valid filter matches a valid name, byte by byte [MQTT-4.7.3-4].

    A leading wildcard never matches a name that begins with `$`.
    """
    if topic.startswith(b"$") and topic_filter[0] in b"+#":
        return False  # [MQTT-4.7.2-1]
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    for depth, level in enumerate(wanted):
        if level == b"#":
            return True
        if depth == len(levels) or level not in (b"+", levels[depth]):
            return False
        if depth == len(levels) - 1 and wanted[depth + 1 :] == [b"#"]:
            return True  # "sport/#" also matches "sport" (§4.7.1.2)
    return len(wanted) == len(levels)


def shown(topic: bytes) -> str:
    """A topic for a sentence: quoted, printable, and not longer than a line."""
    text = topic[:80].decode(errors="replace")
    return repr(text + "…" if len(topic) > 80 else text)
