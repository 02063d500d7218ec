"""The retained messages, by topic name (5.0 §3.3.1.3): one for a topic, found by filter.

pygtrie answers the prefix question: only the subtree below a filter's literal beginning is looked at. What a retained
message is, and how many there may be, is the core's business.
"""

from typing import Final, Generic, TypeVar, final

import pygtrie

from mqttlite.topics.names import has_wildcard, matches

V = TypeVar("V")


@final
class RetainedMessages(Generic[V]):
    """Topic name → value."""

    __slots__ = ("_count", "_trie")

    def __init__(self) -> None:
        self._trie: Final = pygtrie.Trie()
        self._count = 0

    def __len__(self) -> int:
        return self._count  # the trie would walk all of itself to tell

    def get(self, topic: bytes) -> V | None:
        found: V | None = self._trie.get(topic.split(b"/"))
        return found

    def put(self, topic: bytes, value: V) -> None:
        levels = topic.split(b"/")
        self._count += not self._trie.has_key(levels)
        self._trie[levels] = value

    def remove(self, topic: bytes) -> V | None:
        """Forget what is kept for a topic, and return it; nothing kept is harmless."""
        removed: V | None = self._trie.pop(topic.split(b"/"), None)
        self._count -= removed is not None
        return removed

    def values(self) -> list[V]:
        return list(self._trie.values())

    def match(self, topic_filter: bytes) -> list[V]:
        """The values of all topics that a valid filter matches."""
        if not has_wildcard(topic_filter):
            value = self.get(topic_filter)
            return [] if value is None else [value]
        prefix: list[bytes] = []
        levels = topic_filter.split(b"/")
        while levels[len(prefix)] not in (b"+", b"#"):
            prefix.append(levels[len(prefix)])
        if not self._trie.has_node(prefix):
            return []
        return [value for path, value in self._trie.items(prefix) if matches(topic_filter, b"/".join(path))]
