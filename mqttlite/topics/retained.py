"""The retained messages, by topic name (5.0 §3.3.1.3): one for a topic, found by filter.

pygtrie finds the names below a filter's literal prefix. It holds buckets, one for each of the first `BUCKET_LEVELS`
levels of a name. A bucket with many names holds all names below it in a flat dictionary, because walking a trie takes
microseconds per name; a bucket with few names holds only its own. So a search quickly gets a list, and goes through it
in steps. The core defines the values and their limits.

Invariant: a search finds the values that existed at its beginning and still exist.
"""

from typing import Final, Generic, TypeVar, final

import pygtrie

from mqttlite.topics.names import has_wildcard, matches

V = TypeVar("V")

BUCKET_LEVELS: Final = 8
"""Levels with buckets. Each level makes adding a name more expensive, and few filters have more literal levels before a
wildcard; their buckets also hold other names."""

MANY: Final = 100
FEW: Final = 50
"""With more names than this, a bucket has a dictionary of all names below it. Walking the trie for this many takes a
fraction of a millisecond."""

EMPTY_ENTRIES: Final = 100
"""Empty entries to keep: most get a new value at once, because that is how a value is replaced."""


@final
class Entry(Generic[V]):
    """The entry for a topic's value. After the topic is dropped, the entry stays empty."""

    __slots__ = ("serial", "topic", "value")

    def __init__(self, topic: bytes) -> None:
        self.topic: Final = topic
        self.value: V | None = None
        self.serial: int = 0
        """The serial number of its value."""


@final
class PrefixBucket(Generic[V]):
    """The names below one prefix."""

    __slots__ = ("all", "count", "gone", "here", "listed")

    def __init__(self) -> None:
        self.count: int = 0
        self.here: list[Entry[V]] = []
        """The entries that are in no bucket below this one."""
        self.all: dict[bytes, Entry[V]] | None = None
        """All entries, including the buckets below, if they are many."""
        self.listed: list[Entry[V]] | None = None
        """All entries as a list that searches share: each search goes to the end that the list had at its beginning."""
        self.gone: int = 0
        """How many listed entries were removed."""


@final
class Search(Generic[V]):
    """The values that a filter matches: those at the beginning of the search, without those removed since."""

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
        """Whether all remaining entries match, unless they are removed."""
        self._ending: Final = b"" if topic_filter.endswith(b"#") else topic_filter[topic_filter.rfind(b"+") + 1 :]
        self._leading: Final = topic_filter[0] in b"+#"
        self._at = 0

    def __len__(self) -> int:
        """How many names are left to examine."""
        return self._end - self._at + (self._parent is not None)

    def end(self) -> None:
        """End the search."""
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

    __slots__ = ("_empty", "_entries", "_gone", "_listed", "_path", "_path_levels", "_serial", "_trie", "buckets")

    def __init__(self) -> None:
        self._trie: Final = pygtrie.Trie()
        self._entries: Final[dict[bytes, Entry[V]]] = {}
        self._empty: Final[dict[bytes, None]] = {}
        self._listed: list[Entry[V]] | None = None  # like `PrefixBucket.listed`; `_gone` likewise
        self._gone = 0
        self._serial = 0
        self._path_levels: list[bytes] = []
        self._path: list[PrefixBucket[V]] = []
        """The levels with buckets of the latest new name, and these buckets: the next name often has some of them."""
        self.buckets: int = 0
        """The number of buckets, for the memory account."""

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
        """Remove and return the value of a topic. Harmless if there is none."""
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
        """Start a search for the values of all topics that a valid filter matches."""
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
        everything = levels[literal] == b"#" and literal <= BUCKET_LEVELS  # otherwise the bucket holds other names, too
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
        """The entries of a bucket with few names, and of the buckets below."""
        buckets: list[PrefixBucket[V]] = self._trie.values(prefix)
        return [entry for bucket in buckets for entry in bucket.here]

    def _put_in_buckets(self, entry: Entry[V]) -> None:
        levels = entry.topic.split(b"/")[:-1][:BUCKET_LEVELS]
        shared = 0
        for level, known in zip(levels, self._path_levels, strict=False):
            if level != known:
                break
            shared += 1
        buckets = self._path[:shared]
        has_more = True
        while len(buckets) < len(levels):
            prefix = levels[: len(buckets) + 1]
            bucket: PrefixBucket[V] | None = self._trie.get(prefix) if has_more else None
            if bucket is None:
                has_more = False  # where there is no bucket, there is none below
                bucket = self._trie[prefix] = PrefixBucket()
                self.buckets += 1
            buckets.append(bucket)
        self._path_levels, self._path = levels, buckets
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
                self._path_levels, self._path = [], []
                del self._trie[levels[: depth + 1]]


def _is_last(entry: Entry[V], depth: int) -> bool:
    """Whether a name has no bucket deeper than `depth` levels."""
    return depth == BUCKET_LEVELS or entry.topic.count(b"/") == depth
