"""Token buckets: how much passes in a time, and for how long a debt lasts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.load.rate_limits import DEBT_S, Buckets, BucketTable, Rate, TokenBucket

RATES = st.sampled_from([0.5, 1.0, 10.0, 1_000.0])
BURSTS = st.sampled_from([1.0, 5.0, 100.0])
STEPS = st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 200)), min_size=1, max_size=60)


@given(RATES, BURSTS, STEPS)
def test_a_sender_that_waits_out_its_debts_never_exceeds_the_rate_and_never_starves(
    rate: float, burst: float, steps: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now = earliest = taken = 0.0
    for pause_s, amount in steps:
        now = max(now + pause_s, earliest)
        assert taken <= (rate * now + burst) * (1 + 1e-9) + 1e-6, "before it takes more, there is no debt"
        taken += amount
        wait_s = bucket.take(amount, now)
        assert wait_s <= amount / rate + 1e-6, "no wait is longer than the amount is worth"
        earliest = now + wait_s
        assert bucket.left(earliest) >= -1e-6 * (1 + amount), "then it may go on"


@given(RATES, BURSTS, STEPS)
def test_without_credit_the_rate_is_never_exceeded(rate: float, burst: float, steps: list[tuple[float, int]]) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now = taken = 0.0
    for pause_s, amount in steps:
        now += pause_s
        if bucket.try_take(amount, now):
            taken += amount
        assert taken <= (rate * now + burst) * (1 + 1e-9) + 1e-6


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(10.0, 10.0, 100.0)
    assert bucket.take(10, 100.0) == 0.0
    assert bucket.left(99.0) == 0.0
    assert bucket.take(5, 99.0) == pytest.approx(0.5)
    assert bucket.left(100.5) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("rate", "messages", "size", "wait_s", "over_messages"),
    [
        (Rate(), 10**6, 10**9, 0.0, False),
        (Rate(messages_per_s=10), 10, 10**9, 0.0, False),
        (Rate(messages_per_s=10), 15, 0, 0.5, True),
        (Rate(bytes_per_s=100), 10**6, 150, 0.5, False),
        (Rate(10, 100), 15, 300, 2.0, True),
        (Rate(10, 100, burst_s=3.0), 30, 400, 1.0, False),
        (Rate(messages_per_s=0.1), 1, 0, 0.0, False),
    ],
)
def test_messages_and_bytes_are_charged_together(
    rate: Rate, messages: int, size: int, wait_s: float, over_messages: bool
) -> None:
    buckets = Buckets(rate, 0.0)
    assert buckets.take(messages, size, 0.0) == pytest.approx(wait_s)
    assert buckets.is_over_messages == over_messages
    assert rate.is_set == (rate.messages_per_s > 0 or rate.bytes_per_s > 0)


def test_a_table_forgets_the_key_that_was_silent_for_longest() -> None:
    table = BucketTable(Rate(messages_per_s=1), max_keys=2)
    first, second = table.of("first", 0.0), table.of("second", 0.0)
    assert table.of("first", 0.0) is first
    table.of("third", 0.0)
    assert len(table) == 2
    assert table.of("first", 0.0) is first
    assert table.of("second", 0.0) is not second


def test_a_shared_table_says_once_what_was_taken() -> None:
    table = BucketTable(Rate(10.0, 1000.0))
    table.share()
    for key in "uvw":
        table.of(key, 0.0).take(1, 100, 0.0)
    table.of("u", 0.0).take(2, 0, 0.0)
    table.of("silent", 0.0)
    assert [table.taken(2), table.taken(2), table.taken(2)] == [[("u", 3, 100), ("v", 1, 100)], [("w", 1, 100)], []]
    table.of("u", 0.0).take(0, 5, 0.0)
    assert table.taken(2) == [("u", 0, 5)]


def test_a_shared_table_charges_the_use_of_a_key_elsewhere_and_does_not_report_it() -> None:
    table = BucketTable(Rate(10.0, 1000.0))
    table.share()
    buckets = table.of("u", 0.0)
    table.charge("u", 4, 100, 0.0)
    table.charge("unknown", 4, 100, 0.0)
    assert (buckets.have(6, 900, 0.0), buckets.have(7, 0, 0.0), buckets.have(0, 901, 0.0)) == (True, False, False)
    assert (len(table), table.taken(9)) == (1, [])


@pytest.mark.parametrize(("rate", "messages", "size"), [(Rate(10.0), 11, 0), (Rate(0.0, 10.0), 0, 11)])
def test_a_rate_of_messages_alone_or_bytes_alone_is_charged(rate: Rate, messages: int, size: int) -> None:
    buckets = Buckets(rate, 0.0)
    buckets.charge(messages, size, 0.0)
    assert not buckets.have(0, 0, 0.0)


def test_a_debt_from_elsewhere_ends_after_a_while_whatever_was_taken_there() -> None:
    buckets = Buckets(Rate(10.0, 1000.0), 0.0)
    for _ in range(3):
        buckets.charge(1_000_000, 1_000_000_000, 0.0)
    assert not buckets.have(0, 0, DEBT_S - 0.1)
    assert buckets.have(0, 0, DEBT_S + 0.1)
    buckets.take(1_000, 0, 0.0)
    buckets.charge(1, 1, 0.0)
    assert not buckets.have(0, 0, DEBT_S + 90), "its own debt stays"
