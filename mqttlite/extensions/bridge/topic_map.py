"""Which topic of one broker is which topic of the other.

Invariants: the first entry of `topics` whose pattern and filter match applies, in each direction; a topic that begins
with `$` comes only from an entry that names it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, final

from mqttlite.extensions.bridge.options import BridgeTopic
from mqttlite.filters import Filter
from mqttlite.topics.names import matches
from mqttlite.wire.constants import MAX_STRING_BYTES
from mqttlite.wire.packets import Publish

NO_ENTRY: Final = "no entry of topics matches"
NO_TOPIC: Final = "its topic would be too long, or empty"
RESERVED: Final = "its topic would begin with $"
"""Why a topic is not carried."""

FILTERED: Final = "it does not pass the filter"
"""Why a message is not carried. This is no drop."""

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
    where: Filter | None

    def apply(self, topic: bytes) -> Mapped | str:
        """What a topic becomes that matches, or why it cannot."""
        if topic.startswith(self.old_prefix):
            found = self.new_prefix + topic[len(self.old_prefix) :]
        else:  # "a/#" also matches "a" (§4.7.1.2)
            found = self.new_prefix.removesuffix(b"/")
        if not 0 < len(found) <= MAX_STRING_BYTES:
            return NO_TOPIC
        if found.startswith(b"$") and not self.new_is_reserved:
            return RESERVED
        return Mapped(found, self.retained)


_Choice: TypeAlias = list[tuple[Filter | None, Mapped | str]]
"""What a topic becomes, by the filter that a message of it passes. The last one may be None, which all pass."""


@final
class TopicMap:
    """The topics in one direction. A message that goes out has passed the filter of one of its subscriptions."""

    def __init__(self, topics: Sequence[BridgeTopic], *, out: bool, max_known: int = MAX_KNOWN) -> None:
        self._rules: Final = [_rule(each, out) for each in topics if (each.goes_out if out else each.comes_in)]
        self._out: Final = out
        self._max_known: Final = max_known
        self._known: Final[dict[bytes, Mapped | str | _Choice]] = {}

    def get(self, message: Publish) -> Mapped | str:
        """The topic of a message at the receiving broker, or why the bridge does not carry it."""
        found = self._known.get(message.topic)
        if found is None:
            found = self._find(message.topic)
            if len(self._known) >= self._max_known:
                self._known.clear()
            self._known[message.topic] = found
        return self._chosen(found, message) if isinstance(found, list) else found

    def _chosen(self, choice: _Choice, message: Publish) -> Mapped | str:
        for where, found in choice:
            if where is None or where.matches(message):
                return found
        # What a filter says of the QoS was true when the message was published; it may have a lower one now.
        return choice[0][1] if self._out else FILTERED

    def _find(self, topic: bytes) -> Mapped | str | _Choice:
        choice: _Choice = []
        for rule in self._rules:
            if matches(rule.topic_filter, topic):
                choice.append((rule.where, rule.apply(topic)))
                if rule.where is None:
                    break
        if not choice:
            return NO_ENTRY
        return choice[0][1] if choice[0][0] is None else choice


def _rule(topic: BridgeTopic, out: bool) -> _Rule:
    local = (topic.local_filter.encode(), topic.local_prefix.encode())
    remote = (topic.remote_filter.encode(), topic.remote_prefix.encode())
    (topic_filter, old_prefix), (new_filter, new_prefix) = (local, remote) if out else (remote, local)
    where = Filter(topic.filter) if topic.filter else None
    return _Rule(topic_filter, old_prefix, new_prefix, new_filter.startswith(b"$"), topic.retained, where)
