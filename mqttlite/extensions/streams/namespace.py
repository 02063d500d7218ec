"""What clients write to reach streams, `$stream/<name>`, with the rights that it takes."""

from typing import Final

from mqttlite.core.rights import Right
from mqttlite.extensions.streams.position import LATEST, MARK, Position, parse_position
from mqttlite.topics.names import has_wildcard
from mqttlite.topics.namespaces import Syntax


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
    name_refusal="$stream/…: there is no such stream",
    filter_refusal=_refusal,
    has_groups=True,
)


def right_of(topic: bytes) -> Right | None:
    """What it takes to publish to a topic; None for those of other namespaces."""
    return Right(topic) if topic.startswith(b"$stream/") else None
