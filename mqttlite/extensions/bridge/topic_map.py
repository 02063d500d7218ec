"""Which topic of one broker is which topic of the other.

Invariants: the first entry of `topics` that matches a topic applies, in each direction; a topic that begins with `$`
comes only from an entry that names it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from mqttlite.extensions.bridge.options import BridgeTopic
from mqttlite.topics.names import matches
from mqttlite.wire.constants import MAX_STRING_BYTES

NO_ENTRY: Final = "no entry of topics matches"
NO_TOPIC: Final = "its topic would be too long, or empty"
RESERVED: Final = "its topic would begin with $"
"""Why a topic is not carried."""

MAX_KNOWN: Final = 10_000
"""Topic names whose other name is remembered. With one more, all are forgotten, which costs a comparison each."""


class Mapped(NamedTuple):
    """A topic at the receiving broker."""

    topic: bytes
    retained: bool
    """Whether a retained message stays retained."""


class _Rule(NamedTuple):
    topic_filter: bytes
    old_prefix: bytes
    new_prefix: bytes
    new_is_reserved: bool
    """Whether the entry names topics that begin with `$` at the receiving broker."""
    retained: bool


@final
class TopicMap:
    """The topics in one direction."""

    def __init__(self, topics: Sequence[BridgeTopic], *, out: bool) -> None:
        self._rules: Final = [_rule(each, out) for each in topics if (each.goes_out if out else each.comes_in)]
        self._known: Final[dict[bytes, Mapped | str]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def get(self, topic: bytes) -> Mapped | str:
        """Or why the bridge does not carry the topic."""
        try:
            return self._known[topic]
        except KeyError:
            found = self._find(topic)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[topic] = found
        return found

    def _find(self, topic: bytes) -> Mapped | str:
        for rule in self._rules:
            if matches(rule.topic_filter, topic):
                if topic.startswith(rule.old_prefix):
                    found = rule.new_prefix + topic[len(rule.old_prefix) :]
                else:  # "a/#" also matches "a" (§4.7.1.2)
                    found = rule.new_prefix.removesuffix(b"/")
                if not 0 < len(found) <= MAX_STRING_BYTES:
                    return NO_TOPIC
                if found.startswith(b"$") and not rule.new_is_reserved:
                    return RESERVED
                return Mapped(found, rule.retained)
        return NO_ENTRY


def _rule(topic: BridgeTopic, out: bool) -> _Rule:
    local = (topic.local_filter.encode(), topic.local_prefix.encode())
    remote = (topic.remote_filter.encode(), topic.remote_prefix.encode())
    (topic_filter, old_prefix), (new_filter, new_prefix) = (local, remote) if out else (remote, local)
    return _Rule(topic_filter, old_prefix, new_prefix, new_filter.startswith(b"$"), topic.retained)
