"""Histograms of durations for `latency`, with a limit of topics.

The buckets are fixed (docs/reference/telemetry.md), so that histograms can be merged by addition. Invariant: each
duration is counted in one histogram; topics beyond the limit share one.
"""

from typing import Final, NamedTuple

STAGES: Final = ("route", "queue", "write", "total", "acknowledge")
"""The measured stages of a message."""

_EXACT: Final = 32
"""Below this, each microsecond has its own bucket."""

_STEPS: Final = 16
"""Buckets for each doubling above that: a bucket is at most a sixteenth of its start wide."""


def bucket_of(microseconds: int) -> int:
    """The bucket of a duration. A negative one, caused by a clock, counts as 0."""
    if microseconds < _EXACT:
        return microseconds if microseconds > 0 else 0
    exponent = microseconds.bit_length() - 5
    return (exponent + 1) * _STEPS + (microseconds >> exponent) - _STEPS


def bounds_of(bucket: int) -> tuple[int, int]:
    """The bounds of a bucket in microseconds: inclusive start, exclusive end."""
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
        """By bucket, without zeros."""
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
        """The upper bound in microseconds of a share (0 to 1) of the durations; 0 if there are none."""
        wanted = share * self.messages
        for bucket in sorted(self.counts):
            wanted -= self.counts[bucket]
            if wanted <= 0:
                return min(bounds_of(bucket)[1], self.max_us + 1)
        return 0


class Labels:
    """The topic labels of one interval: topics up to the limit, then filters for many."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics: Final = max_topics
        self._single: Final[dict[bytes, None]] = {}
        self._firsts: Final[dict[bytes, None]] = {}

    def of(self, topic: bytes) -> bytes:
        """The topic; beyond `max_topics` topics, the filter of its first level; beyond as many of those, `#`."""
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
    """The key of a histogram."""

    stage: str
    qos: int
    topic: bytes


class Histograms:
    """The histograms of one interval."""

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
