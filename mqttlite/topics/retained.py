"""The retained messages, by topic name (5.0 §3.3.1.3): one for a topic, found by filter.

A tree of buckets finds the names below a filter's literal prefix. A bucket has the names below one prefix: a few as a
list, many as a flat dictionary and, again, in the buckets of the next level, because a search quickly gets the names of
one bucket and goes through them in steps. The core defines the values and their limits.

Invariant: a search finds the values that existed at its beginning and still exist.
"""

from typing import Final, Generic, TypeVar, final

from mqttlite.topics.names import has_wildcard, matches

V = TypeVar("V")

BUCKET_LEVELS: Final = 8
"""Levels with buckets. Each level makes adding a name more expensive, and few filters have more literal levels before a
wildcard; their buckets also hold other names."""

MANY: Final = 100
FEW: Final = 50
"""A bucket with more than `MANY` names has buckets below it, until it has fewer than `FEW`. A search goes through this
many names in a fraction of a millisecond."""

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

    __slots__ = ("all", "below", "few", "gone", "listed")

    def __init__(self) -> None:
        self.few: list[Entry[V]] = []
        """All entries, if they are few; else empty."""
        self.all: dict[bytes, Entry[V]] | None = None
        """All entries, if they are many."""
        self.below: dict[bytes, PrefixBucket[V]] | None = None
        """The buckets of the next level, if the entries are many."""
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

    __slots__ = ("_below", "_empty", "_entries", "_gone", "_listed", "_serial", "buckets")

    def __init__(self) -> None:
        self._below: Final[dict[bytes, PrefixBucket[V]]] = {}
        self._entries: Final[dict[bytes, Entry[V]]] = {}
        self._empty: Final[dict[bytes, None]] = {}
        self._listed: list[Entry[V]] | None = None  # like `PrefixBucket.listed`; `_gone` likewise
        self._gone = 0
        self._serial = 0
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
            self._put_in_buckets(self._below, entry, topic.split(b"/"), 0)
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
        entries, is_exact = self._find(levels, literal)
        everything = is_exact and levels[literal] == b"#"
        parent = self._entries.get(topic_filter[:-2]) if everything else None
        # "sport/#" also matches "sport" (§4.7.1.2), which stands one bucket higher.
        return Search(topic_filter, entries, self._serial, everything, parent)

    def _find(self, levels: list[bytes], literal: int) -> tuple[list[Entry[V]], bool]:
        """A list with all entries below the first `literal` levels, and whether it has no others."""
        below = self._below
        depth = 0
        while True:
            bucket = below.get(levels[depth])
            if bucket is None:
                return [], literal <= BUCKET_LEVELS
            depth += 1
            if bucket.all is None:
                return list(bucket.few), depth == literal
            if depth == literal or bucket.below is None:
                if bucket.listed is None:
                    bucket.listed = list(bucket.all.values())
                    bucket.gone = 0
                return bucket.listed, depth == literal
            below = bucket.below

    def _put_in_buckets(
        self, below: dict[bytes, PrefixBucket[V]], entry: Entry[V], levels: list[bytes], depth: int
    ) -> None:
        """Put an entry into the buckets from a depth on. `below` are those at this depth."""
        last = len(levels) - 1
        while depth < last:
            bucket = below.get(levels[depth])
            if bucket is None:
                bucket = below[levels[depth]] = PrefixBucket()
                self.buckets += 1
            depth += 1
            if bucket.all is None:
                bucket.few.append(entry)
                if len(bucket.few) > MANY:
                    self._split(bucket, depth)
                return
            bucket.all[entry.topic] = entry
            if bucket.listed is not None:
                bucket.listed.append(entry)
            if bucket.below is None:
                return
            below = bucket.below

    def _split(self, bucket: PrefixBucket[V], depth: int) -> None:
        """Give a bucket buckets below it, unless it is the deepest."""
        bucket.all = {each.topic: each for each in bucket.few}
        if depth < BUCKET_LEVELS:
            bucket.below = {}
            for each in bucket.few:
                self._put_in_buckets(bucket.below, each, each.topic.split(b"/"), depth)
        bucket.few = []

    def _take_from_buckets(self, entry: Entry[V]) -> None:
        below: dict[bytes, PrefixBucket[V]] | None = self._below
        for level in entry.topic.split(b"/")[:-1]:
            if below is None:
                return
            bucket = below[level]
            if bucket.all is None:
                bucket.few.remove(entry)
                if not bucket.few:
                    del below[level]
                    self.buckets -= 1
                return
            del bucket.all[entry.topic]
            bucket.gone += 1
            if bucket.gone > len(bucket.all):
                bucket.listed = None
            if len(bucket.all) < FEW:
                bucket.few = list(bucket.all.values())
                self.buckets -= _count(bucket.below)
                bucket.all = bucket.below = bucket.listed = None
                return
            below = bucket.below


def _count(buckets: dict[bytes, PrefixBucket[V]] | None) -> int:
    """The number of these buckets and of those below them."""
    return 0 if buckets is None else sum(1 + _count(each.below) for each in buckets.values())
