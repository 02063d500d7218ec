"""The retained messages, by topic name (5.0 §3.3.1.3): one for a topic, found by filter.

pygtrie answers the prefix question: which names are below a filter's literal beginning. It holds buckets, one for
each of the first `BUCKET_LEVELS` levels that a name goes through. A bucket with many names has them all in a flat
dictionary, for walking a trie takes microseconds for each; one with few has its own, and the buckets below have theirs.
So a search begins with a list that is quickly made, and goes through it as far as its caller wants at a time.
What a retained message is, and how many there may be, is the core's business.

Invariant: a search finds what was kept when it began and still is, however much later it gets there.
"""

from typing import Final, Generic, TypeVar, final

import pygtrie

from mqttlite.topics.names import has_wildcard, matches

V = TypeVar("V")

BUCKET_LEVELS: Final = 8
"""Levels of a name that have buckets: each level makes a new name dearer, and few filters have more before a wildcard;
their bucket holds some names that are not looked for."""

MANY: Final = 100
FEW: Final = 50
"""Names on a bucket before it has a dictionary of all, and when it has none again: to walk the trie for this many takes
a fraction of a millisecond."""

EMPTY_ENTRIES: Final = 100
"""Places to keep for names that lost their value: most get another one at once, for that is how it is replaced."""


@final
class Entry(Generic[V]):
    """Where the value of a topic is, until that topic is forgotten; then it has none for good."""

    __slots__ = ("serial", "topic", "value")

    def __init__(self, topic: bytes) -> None:
        self.topic: Final = topic
        self.value: V | None = None
        self.serial: int = 0
        """Which of all values it is."""


@final
class PrefixBucket(Generic[V]):
    """The names below one prefix."""

    __slots__ = ("all", "count", "gone", "here", "listed")

    def __init__(self) -> None:
        self.count: int = 0
        self.here: list[Entry[V]] = []
        """Those that are on no bucket below this one, while they are few."""
        self.all: dict[bytes, Entry[V]] | None = None
        """Those on the buckets below as well, where they are many."""
        self.listed: list[Entry[V]] | None = None
        """The same for searches to share: each goes to where the list ended when it began."""
        self.gone: int = 0
        """How many of those listed are no longer there."""


@final
class Search(Generic[V]):
    """The values that a filter matches, as of when the search began, without those that are gone since."""

    __slots__ = ("_at", "_end", "_ending", "_entries", "_leading", "_parent", "_serial", "everything", "topic_filter")

    def __init__(
        self,
        topic_filter: bytes,
        entries: list[Entry[V]],
        serial: int,
        everything: bool,
        parent: Entry[V] | None = None,
    ) -> None:
        self.topic_filter: Final = topic_filter
        self._entries: Final = entries
        self._end = len(entries)
        self._parent = parent
        self._serial: Final = serial
        self.everything: Final = everything
        """Whether all that is left will be found, unless it goes before."""
        self._ending: Final = b"" if topic_filter.endswith(b"#") else topic_filter[topic_filter.rfind(b"+") + 1 :]
        self._leading: Final = topic_filter[0] in b"+#"
        self._at = 0

    def __len__(self) -> int:
        """How many names are left to look at."""
        return self._end - self._at + (self._parent is not None)

    def end(self) -> None:
        """Find nothing more."""
        self._end = self._at
        self._parent = None

    def take(self, most: int) -> list[V]:
        """The values among the next `most` names."""
        found: list[V] = []
        parent = self._parent
        if parent is not None:
            self._parent = None
            most -= 1
            if parent.value is not None and parent.serial <= self._serial:
                found.append(parent.value)
        start = self._at
        self._at = min(start + most, self._end)
        ending = self._ending
        for at in range(start, self._at):
            entry = self._entries[at]
            value = entry.value
            if value is None or entry.serial > self._serial:
                continue
            if self._leading and entry.topic.startswith(b"$"):
                continue  # [MQTT-4.7.2-1]
            if self.everything or (entry.topic.endswith(ending) and matches(self.topic_filter, entry.topic)):
                found.append(value)
        return found


@final
class RetainedMessages(Generic[V]):
    """Topic name → value."""

    __slots__ = ("_empty", "_entries", "_gone", "_listed", "_serial", "_trie", "buckets")

    def __init__(self) -> None:
        self._trie: Final = pygtrie.Trie()
        self._entries: Final[dict[bytes, Entry[V]]] = {}
        self._empty: Final[dict[bytes, None]] = {}
        self._listed: list[Entry[V]] | None = None  # as those of buckets, and `_gone` too
        self._gone = 0
        self._serial = 0
        self.buckets: int = 0
        """How many prefixes there are, each of which takes some memory."""

    def __len__(self) -> int:
        return len(self._entries) - len(self._empty)

    def get(self, topic: bytes) -> V | None:
        entry = self._entries.get(topic)
        return None if entry is None else entry.value

    def put(self, topic: bytes, value: V) -> None:
        entry = self._entries.get(topic)
        if entry is None:
            entry = self._entries[topic] = Entry(topic)
            if self._listed is not None:
                self._listed.append(entry)
            self._put_in_buckets(entry)
        elif entry.value is None:
            del self._empty[topic]
        self._serial += 1
        entry.value, entry.serial = value, self._serial

    def remove(self, topic: bytes) -> V | None:
        """Forget what is kept for a topic, and return it; nothing kept is harmless."""
        entry = self._entries.get(topic)
        if entry is None or entry.value is None:
            return None
        removed, entry.value = entry.value, None
        self._empty[topic] = None
        if len(self._empty) > EMPTY_ENTRIES:
            oldest = next(iter(self._empty))
            del self._empty[oldest]
            self._take_from_buckets(self._entries.pop(oldest))
            self._gone += 1
            if self._gone > len(self._entries):
                self._listed = None
        return removed

    def values(self) -> list[V]:
        return [entry.value for entry in self._entries.values() if entry.value is not None]

    def search(self, topic_filter: bytes) -> Search[V]:
        """A search for the values of all topics that a valid filter matches."""
        if not has_wildcard(topic_filter):
            exact = self._entries.get(topic_filter)
            return Search(topic_filter, [] if exact is None else [exact], self._serial, True)
        levels = topic_filter.split(b"/")
        literal = 0
        while levels[literal] not in (b"+", b"#"):
            literal += 1
        if literal == 0:
            if self._listed is None:
                self._listed = list(self._entries.values())
                self._gone = 0
            return Search(topic_filter, self._listed, self._serial, topic_filter == b"#")
        entries = self._below(levels[: min(literal, BUCKET_LEVELS)])
        everything = levels[literal] == b"#" and literal <= BUCKET_LEVELS  # else the bucket holds others too
        parent = self._entries.get(topic_filter[:-2]) if everything else None
        # "sport/#" also matches "sport" (§4.7.1.2), which stands one bucket higher.
        return Search(topic_filter, entries, self._serial, everything, parent)

    def _below(self, prefix: list[bytes]) -> list[Entry[V]]:
        bucket: PrefixBucket[V] | None = self._trie.get(prefix)
        if bucket is None:
            return []
        if bucket.all is None:
            return self._gather(prefix)
        if bucket.listed is None:
            bucket.listed = list(bucket.all.values())
            bucket.gone = 0
        return bucket.listed

    def _gather(self, prefix: list[bytes]) -> list[Entry[V]]:
        """The values of a bucket with few names, and of those below."""
        buckets: list[PrefixBucket[V]] = self._trie.values(prefix)
        return [entry for bucket in buckets for entry in bucket.here]

    def _put_in_buckets(self, entry: Entry[V]) -> None:
        levels = entry.topic.split(b"/")[:-1][:BUCKET_LEVELS]
        buckets: list[PrefixBucket[V]] = [step.value for step in self._trie.prefixes(levels)]
        while len(buckets) < len(levels):
            bucket: PrefixBucket[V] = PrefixBucket()
            self.buckets += 1
            self._trie[levels[: len(buckets) + 1]] = bucket
            buckets.append(bucket)
        if buckets and buckets[-1].all is None:
            buckets[-1].here.append(entry)
        for depth, bucket in enumerate(buckets):
            bucket.count += 1
            if bucket.all is not None:
                bucket.all[entry.topic] = entry
                if bucket.listed is not None:
                    bucket.listed.append(entry)
            elif bucket.count > MANY:
                bucket.all = {each.topic: each for each in self._gather(levels[: depth + 1])}
                bucket.here = []

    def _take_from_buckets(self, entry: Entry[V]) -> None:
        levels = entry.topic.split(b"/")[:-1][:BUCKET_LEVELS]
        buckets: list[PrefixBucket[V]] = [step.value for step in self._trie.prefixes(levels)]
        for depth in range(len(buckets) - 1, -1, -1):
            bucket = buckets[depth]
            bucket.count -= 1
            if bucket.all is not None:
                del bucket.all[entry.topic]
                bucket.gone += 1
                if bucket.gone > bucket.count:
                    bucket.listed = None
                if bucket.count < FEW:
                    bucket.here = [each for each in bucket.all.values() if _is_last(each, depth + 1)]
                    bucket.all = bucket.listed = None
            elif depth == len(buckets) - 1:
                bucket.here.remove(entry)
            if bucket.count == 0:
                self.buckets -= 1
                del self._trie[levels[: depth + 1]]


def _is_last(entry: Entry[V], depth: int) -> bool:
    """Whether a name has no bucket below that of `depth` levels."""
    return depth == BUCKET_LEVELS or entry.topic.count(b"/") == depth
