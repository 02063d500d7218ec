"""Which topic of one broker is which topic of the other.

Invariant: the first entry of `topics` that matches a topic applies, in each direction.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from mqttlite.extensions.bridge.options import BridgeTopic
from mqttlite.topics.names import matches
from mqttlite.wire.constants import MAX_STRING_BYTES

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
    retained: bool


@final
class TopicMap:
    """The topics in one direction."""

    def __init__(self, topics: Sequence[BridgeTopic], *, out: bool) -> None:
        self._rules: Final = [_rule(each, out) for each in topics if (each.goes_out if out else each.comes_in)]
        self._known: Final[dict[bytes, Mapped | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def get(self, topic: bytes) -> Mapped | None:
        """None if the bridge does not carry the topic."""
        try:
            return self._known[topic]
        except KeyError:
            found = self._find(topic)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[topic] = found
        return found

    def _find(self, topic: bytes) -> Mapped | None:
        for rule in self._rules:
            if matches(rule.topic_filter, topic):
                if topic.startswith(rule.old_prefix):
                    found = rule.new_prefix + topic[len(rule.old_prefix) :]
                else:  # "a/#" also matches "a" (§4.7.1.2)
                    found = rule.new_prefix.removesuffix(b"/")
                return Mapped(found, rule.retained) if 0 < len(found) <= MAX_STRING_BYTES else None
        return None


def _rule(topic: BridgeTopic, out: bool) -> _Rule:
    local = (topic.local_filter.encode(), topic.local_prefix.encode())
    remote = (topic.remote_filter.encode(), topic.remote_prefix.encode())
    (topic_filter, old_prefix), (_filter, new_prefix) = (local, remote) if out else (remote, local)
    return _Rule(topic_filter, old_prefix, new_prefix, topic.retained)
