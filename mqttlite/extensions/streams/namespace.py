"""What clients write to reach streams, `$stream/<name>`, with the rights that it takes."""

from typing import Final

from mqttlite.core.rights import Right
from mqttlite.extensions.streams.position import LATEST, MARK, Position, parse_position
from mqttlite.topics.names import has_wildcard
from mqttlite.topics.namespaces import Syntax

_FOR_ADMINISTRATORS: Final = frozenset({b"$create", b"$delete"})

_TO_MAKE: Final = "to make or delete a stream takes a permission, and no rule or policy gives it for this topic"


def _refusal(name: bytes, rest: bytes) -> str:
    stream, position = split_position(name)
    if not stream or has_wildcard(name):
        return "$stream/…: the name of one stream follows, without wildcards"
    if MARK.encode() in name:
        try:
            parse_position(position)
        except ValueError as error:
            return f"$stream/…: {error}"
    return "$stream/…: no message comes on its control topics" if rest.startswith(b"$") else ""


def split_position(name: bytes) -> tuple[bytes, str]:
    """The name of a stream, and the position behind it; empty if there is none."""
    stream, _, position = name.partition(MARK.encode())
    return stream, position.decode(errors="replace")


def position_of(name: bytes) -> Position:
    """The position behind the name in a filter that has no refusal."""
    _, position = split_position(name)
    return parse_position(position) if position else LATEST


STREAMS: Final = Syntax(
    b"$stream",
    has_members=True,
    max_qos=1,
    detail_mark=MARK.encode(),
    takes_messages=True,
    name_refusal="$stream/…: there is no such stream or command",
    filter_refusal=_refusal,
    has_groups=True,
)


def right_of(topic: bytes) -> Right | None:
    """What it takes to publish to a topic; None for those of other namespaces. To make or delete a stream takes a rule
    that says so."""
    if not topic.startswith(b"$stream/"):
        return None
    levels = topic.split(b"/", 3)
    if len(levels) < 3 or not levels[2].startswith(b"$"):
        return Right(topic)
    command = b"/".join(levels[:3])  # without the topic for the answer, which may follow
    return Right(command, takes_rule=True, denial=_TO_MAKE) if levels[2] in _FOR_ADMINISTRATORS else Right(command)
