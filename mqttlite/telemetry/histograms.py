"""How long something took, as counts by bucket: the histograms of `latency`, and how many topics they may be of.

The buckets are those of docs/reference/telemetry.md, the same everywhere, so that histograms are merged by adding.
Invariant: whatever is noted is counted in one histogram; topics for which there is no room share one.
"""

from typing import Final, NamedTuple

STAGES: Final = ("route", "queue", "write", "total", "acknowledge")
"""What of a message's way is measured."""

_EXACT: Final = 32
"""Microseconds below which each has a bucket of its own."""

_STEPS: Final = 16
"""Buckets for each doubling above: none is wider than a sixteenth of where it begins."""


def bucket_of(microseconds: int) -> int:
    """The bucket of a duration; that of 0 for a negative one, which only a clock could make."""
    if microseconds < _EXACT:
        return microseconds if microseconds > 0 else 0
    exponent = microseconds.bit_length() - 5
    return (exponent + 1) * _STEPS + (microseconds >> exponent) - _STEPS


def bounds_of(bucket: int) -> tuple[int, int]:
    """The durations of a bucket in microseconds: from the first on, and below the second."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    exponent = bucket // _STEPS - 1
    low = (bucket % _STEPS + _STEPS) << exponent
    return low, low + (1 << exponent)


class Histogram:
    """Durations in whole microseconds."""

    __slots__ = ("counts", "max_us", "messages", "sum_us")

    def __init__(self) -> None:
        self.counts: Final[dict[int, int]] = {}
        """By bucket; none is 0."""
        self.messages: int = 0
        self.sum_us: int = 0
        self.max_us: int = 0

    def note(self, microseconds: int) -> None:
        """Count one more."""
        bucket = bucket_of(microseconds)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.messages += 1
        self.sum_us += microseconds
        if microseconds > self.max_us:
            self.max_us = microseconds

    def at_most(self, share: float) -> int:
        """A duration in microseconds that so great a share (0 to 1) of them did not reach; 0 where there are none."""
        wanted = share * self.messages
        for bucket in sorted(self.counts):
            wanted -= self.counts[bucket]
            if wanted <= 0:
                return min(bounds_of(bucket)[1], self.max_us + 1)
        return 0


class Labels:
    """The topics of one interval's rows: themselves, as long as there are not too many, else what stands for them."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics: Final = max_topics
        self._single: Final[dict[bytes, None]] = {}
        self._firsts: Final[dict[bytes, None]] = {}

    def of(self, topic: bytes) -> bytes:
        """The topic; beyond `max_topics` of them the filter of its first level, beyond as many of those `#`."""
        if topic in self._single:
            return topic
        if len(self._single) < self._max_topics:
            self._single[topic] = None
            return topic
        first = topic.split(b"/", 1)[0] + b"/#"
        if first in self._firsts:
            return first
        if len(self._firsts) < self._max_topics:
            self._firsts[first] = None
            return first
        return b"#"


class Key(NamedTuple):
    """What a histogram is of."""

    stage: str
    qos: int
    topic: bytes


class Histograms:
    """Those of one interval."""

    def __init__(self, max_topics: int) -> None:
        self._labels: Final = Labels(max_topics)
        self._by_key: Final[dict[Key, Histogram]] = {}

    def note(self, stage: str, qos: int, topic: bytes, microseconds: int) -> None:
        key = Key(stage, qos, self._labels.of(topic))
        histogram = self._by_key.get(key)
        if histogram is None:
            histogram = self._by_key[key] = Histogram()
        histogram.note(microseconds)

    def all(self) -> list[tuple[Key, Histogram]]:
        return list(self._by_key.items())
