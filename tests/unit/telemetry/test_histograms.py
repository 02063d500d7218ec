"""Buckets as docs/reference/telemetry.md says, and topics that share a histogram where there is no room."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.telemetry.histograms import Histogram, Histograms, Key, Labels, bounds_of, bucket_of

microseconds = st.integers(0, 1 << 50) | st.integers(0, 100) | st.integers(5, 50).map(lambda power: 1 << power)


def by_the_reference(bucket: int) -> tuple[int, int]:
    """*low* and *width*, word by word."""
    if bucket < 32:
        return bucket, 1
    e = bucket // 16 - 1
    return (bucket % 16 + 16) * 2**e, 2**e


@given(st.integers(0, 800))
def test_a_bucket_has_the_bounds_of_the_reference(bucket: int) -> None:
    low, width = by_the_reference(bucket)
    assert bounds_of(bucket) == (low, low + width)
    assert bucket < 32 or width <= low * 0.0625


@given(microseconds)
def test_a_duration_is_within_its_bucket(duration: int) -> None:
    low, beyond = bounds_of(bucket_of(duration))
    assert low <= duration < beyond


@given(st.integers(0, 800))
def test_buckets_follow_one_another(bucket: int) -> None:
    low, beyond = bounds_of(bucket)
    assert bucket_of(low) == bucket_of(beyond - 1) == bucket
    assert bucket_of(beyond) == bucket + 1


def test_a_duration_below_zero_is_counted_as_none() -> None:
    assert bucket_of(-3) == 0


@given(st.lists(microseconds, min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_histogram_adds_up_and_has_quantiles(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.note(duration)
    assert sum(histogram.counts.values()) == histogram.messages == len(durations)
    assert histogram.sum_us == sum(durations)
    assert histogram.max_us == max(durations)
    limit = histogram.at_most(share)
    assert sum(duration < limit for duration in durations) >= share * len(durations) - 1e-9
    assert limit <= max(durations) + 1


def test_of_an_empty_histogram_nothing_is_told() -> None:
    assert Histogram().at_most(0.5) == 0


def test_topics_beyond_the_limit_share_the_label_of_their_first_level_and_then_one() -> None:
    labels = Labels(2)
    assert [labels.of(topic) for topic in (b"a", b"b/c")] == [b"a", b"b/c"]
    assert [labels.of(topic) for topic in (b"x/1", b"x/2", b"y", b"z/1", b"a", b"x/3")] == [
        b"x/#",
        b"x/#",
        b"y/#",
        b"#",
        b"a",
        b"x/#",
    ]


def test_histograms_are_kept_by_stage_and_qos_and_topic() -> None:
    histograms = Histograms(1)
    for stage, qos, topic, duration in (
        ("route", 0, b"a", 1),
        ("route", 0, b"a", 3),
        ("route", 1, b"a", 5),
        ("queue", 0, b"a", 7),
        ("queue", 0, b"b/1", 9),
        ("queue", 0, b"b/2", 11),
    ):
        histograms.note(stage, qos, topic, duration)
    assert {key: histogram.sum_us for key, histogram in histograms.all()} == {
        Key("route", 0, b"a"): 4,
        Key("route", 1, b"a"): 5,
        Key("queue", 0, b"a"): 7,
        Key("queue", 0, b"b/#"): 20,
    }
