"""Latencies and the delivery log, from which the fleet's figures are made."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.devices.delivery_log import DeliveryLog
from tools.devices.latency import BUCKETS, RATIO, Latencies
from tools.devices.simulation import SMALLEST_BYTES, Plan, Sample, _samples, delays, payload


@given(st.lists(st.floats(1e-6, 1000), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_at_most_a_bucket_above_the_true_one(durations: list[float], share: float) -> None:
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    at_most = [one for one in sorted(durations) if sum(other <= one for other in durations) >= share * len(durations)]
    assert at_most[0] * (1 - 1e-9) <= latencies.quantile_s(share) <= at_most[0] * RATIO * (1 + 1e-9)


def test_no_latencies_have_no_summary_and_absurd_ones_have_a_place() -> None:
    latencies = Latencies()
    assert latencies.summary_ms() is None
    assert latencies.quantile_s(0.5) == 0
    for duration in (0.0, -1.0, 1e9):
        latencies.add(duration)
    last_ms = pytest.approx(1.02 ** (BUCKETS - 1) * 1e-3, rel=1e-3)
    assert latencies.summary_ms() == {"p50": 0.0, "p95": last_ms, "p99": last_ms, "max": 1e12}


def entered(numbers: Iterable[int]) -> DeliveryLog:
    delivery_log = DeliveryLog(1)
    for number in numbers:
        delivery_log.on_message(0, number)
    return delivery_log


@given(st.lists(st.integers(0, 20), max_size=60))
def test_the_delivery_log_counts_like_a_set(numbers: list[int]) -> None:
    delivery_log = entered(numbers)
    assert delivery_log.received == len(set(numbers))
    assert delivery_log.duplicates == len(numbers) - len(set(numbers))
    assert delivery_log.lost([21]) == 21 - len(set(numbers))


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_unpromised_messages_are_no_loss(came: set[int], excused: set[int]) -> None:
    assert entered(came).lost([21], [(0, number) for number in excused]) == len(set(range(21)) - came - excused)


@pytest.mark.parametrize("size", [SMALLEST_BYTES, 128, 5000])
def test_a_payload_has_its_size_and_its_sample(size: int) -> None:
    sent = payload(99_999, 9_999_999, 1234567.654321, size)
    assert len(sent) == size
    assert _samples.decode(sent) == Sample(99_999, 9_999_999, 1234567.654321)


def test_devices_begin_anywhere_in_an_interval_and_go_on_around_it() -> None:
    first: list[float] = []
    for seed in range(200):
        times = delays(5.0, 0.5, random.Random(seed))
        first.append(next(times))
        assert all(2.5 <= next(times) <= 7.5 for _ in range(20))
    assert min(first) < 0.5
    assert max(first) > 4.5


def test_a_plan_of_messages_takes_as_long_as_their_longest_intervals() -> None:
    assert Plan(devices=1, duration_s=3).publishing_s == 3
    assert Plan(devices=1, messages=4, interval_s=2, jitter=0.5).publishing_s == 12
