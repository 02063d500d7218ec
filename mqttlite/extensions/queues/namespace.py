"""What clients write to reach queues, `$queue/<name>`, with the rights that it takes; and `$dlq`, for dead letters."""

from typing import Final

from mqttlite.core.rights import Right
from mqttlite.topics.names import has_wildcard
from mqttlite.topics.namespaces import Syntax

_FOR_CONSUMERS: Final = frozenset({b"$ack", b"$nack", b"$extend"})

_FOR_ADMINISTRATORS: Final = frozenset({b"$create", b"$delete"})

_TO_MAKE: Final = "to make or delete a queue takes a permission, and no rule or policy gives it for this topic"

_DEAD_LETTER: Final = Right(b"", denial="clients may not publish below $dlq: dead letters come from queues")


def _refusal(name: bytes, rest: bytes) -> str:
    if not name or has_wildcard(name):
        return "$queue/…: the name of one queue follows, without wildcards"
    return "$queue/…: no message comes on its control topics" if rest.startswith(b"$") else ""


QUEUES: Final = Syntax(
    b"$queue",
    has_members=True,
    max_qos=1,
    name_refusal=(
        "$queue/…: nothing takes that; consumers publish to $queue/<name>/$ack, $nack or $extend, and operators to "
        "$create, $delete, $seek, $purge, $pause, $resume, $snapshot or $replay"
    ),
    filter_refusal=_refusal,
    share_refusal="$share/…: the consumers of a queue share it already; subscribe to $queue/<name>",
)

DEAD_LETTERS: Final = Syntax(b"$dlq", tells=True)


def parts_of(topic: bytes) -> tuple[bytes, bytes]:
    """The name of the queue in a topic or filter below `$queue`, and what follows it."""
    name, _, rest = topic.partition(b"/")[2].partition(b"/")
    return name, rest


def right_of(topic: bytes) -> Right | None:
    """What it takes to publish to a topic; None for those of other namespaces.

    Who may consume from a queue may acknowledge its messages. To make or delete one takes a rule that says so.
    """
    levels = topic.split(b"/", 3)
    if levels[0] == b"$dlq":
        return _DEAD_LETTER
    if levels[0] != b"$queue" or len(levels) < 2:
        return None
    if len(levels) == 3 and levels[2] in _FOR_CONSUMERS:
        return Right(b"/".join(levels[:2]), takes_subscribing=True)
    command = b"/".join(levels[:3])  # without the topic for the answer, which may follow
    if len(levels) > 2 and levels[2] in _FOR_ADMINISTRATORS:
        return Right(command, takes_rule=True, denial=_TO_MAKE)
    return Right(command)
