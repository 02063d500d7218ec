"""Deliveries of a shared cursor: the cases that a queue meets rarely."""

import pytest

from mqttlite.log.deliveries import ARRIVAL_S, BLOCKED, DONE, READY, Deliveries, Entry


def deliveries() -> Deliveries[str]:
    return Deliveries(lambda: 0.0)


def test_a_blocked_message_that_ends_leaves_its_lane() -> None:
    each = deliveries()
    first, second, third = (Entry(sequence, "m", key="k") for sequence in range(3))
    assert each.add(first, 0.0)
    assert not each.add(second, 0.0)
    assert not each.add(third, 0.0)
    assert (second.state, third.state) == (BLOCKED, BLOCKED)
    each.settle(second)
    assert second.state == DONE
    assert each.in_lane("k") == 2
    each.lease(first, 0.0, 1.0, "c", 1)
    each.settle(first)
    assert third.state == READY
    assert each.pop() is third


def test_leases_that_are_extended_again_and_again_take_bounded_memory_and_end_in_time() -> None:
    each = deliveries()
    entry = Entry(0, "m")
    each.add(entry, 0.0)
    each.lease(entry, 0.0, 1.0, "c", 1)
    assert each.start(entry, entry.lease, 0.0)
    longest = 0
    for now in range(3_000):
        each.extend(entry, float(now), 1.0)
        longest = max(longest, len(each._timed))
    assert 1_000 < longest < 1_100
    assert each.next_at() is not None
    assert each.take_due(2_999.9) is None
    assert each.take_due(3_000.0) is entry


def test_a_lease_that_is_shorter_than_an_older_one_ends_before_it() -> None:
    each = deliveries()
    entries = [Entry(sequence, "m") for sequence in range(4)]
    for entry in entries:
        each.add(entry, 0.0)
    old, short, equal, last = entries
    each.lease(old, 0.0, 600.0, "c", 1)
    each.lease(short, 1.0, 1.0, "c", 1)
    assert each.start(old, old.lease, 1.0)
    assert each.start(short, short.lease, 1.5)
    assert each.next_at() == 2.0, "it may be too early"
    assert each.take_due(2.5) is None
    assert each.take_due(2.5 + ARRIVAL_S) is short
    each.lease(equal, 3.0, 598.0, "c", 1)
    assert each.start(equal, equal.lease, 3.0)
    assert each.take_due(601.0 + ARRIVAL_S) is old
    assert each.take_due(601.0 + ARRIVAL_S) is equal
    each.lease(last, 602.0, 1.0, "c", 1)
    assert each.start(last, last.lease, 602.0)
    assert not each._timed, "the older leases are over"
    assert each.take_due(603.0 + ARRIVAL_S) is last


@pytest.mark.parametrize("is_usual", [True, False])
def test_a_lease_does_not_end_before_its_consumer_could_get_the_message(is_usual: bool) -> None:
    each = deliveries()
    waiting, other = Entry(0, "m"), Entry(1, "m")
    for entry in (waiting, other):
        each.add(entry, 0.0)
        each.lease(entry, 0.0, 10.0, "c", 1, is_usual)
    for now in (10.0, 25.0, 300.0):
        assert each.take_due(now) is None
        next_at = each.next_at()
        assert next_at is not None
        assert next_at > now, "else the clock would ring all the time"
    assert each.start(waiting, waiting.lease, 301.0)
    assert each.start(other, other.lease, 302.0)
    assert each.take_due(311.0) is None
    assert each.take_due(311.0 + ARRIVAL_S) is waiting
    assert each.take_due(311.0 + ARRIVAL_S) is None
    assert each.take_due(312.0 + ARRIVAL_S) is other


def test_a_lease_that_is_taken_back_is_no_attempt_and_starts_no_later_one() -> None:
    each = deliveries()
    entry = Entry(0, "m")
    each.add(entry, 0.0)
    each.lease(entry, 0.0, 10.0, "gone", 1)
    before = entry.lease
    each.take_back(entry)
    assert (entry.attempts, entry.state, each.leased) == (0, READY, 0)
    assert not each.start(entry, before, 1.0), "it was taken back"
    assert each.pop() is entry
    assert each.lease(entry, 2.0, 10.0, "c", 2)
    assert not each.start(entry, before, 3.0), "it is another lease"
    assert not each.was_taken_back(entry, before), "it is leased again"
    assert not entry.is_sent
    assert each.start(entry, entry.lease, 4.0)
    assert (entry.attempts, entry.is_sent) == (1, True)
    each.settle(entry)
    assert each.start(entry, entry.lease, 4.0), "it was sent, though it has ended"


def test_leases_that_are_taken_back_during_one_commit_are_one() -> None:
    each = deliveries()
    entry = Entry(0, "m")
    each.add(entry, 0.0)
    assert each.lease(entry, 0.0, 10.0, "a", 1)
    before = entry.lease
    each.take_back(entry)
    each.pop()
    assert not each.lease(entry, 2.0, 10.0, "b", 1)
    assert each.start(entry, before, 3.0), "its commit is that of the first"
    assert (entry.attempts, entry.is_sent, entry.consumer) == (1, True, "b")
    each.retry(entry, 4.0, 0.0)
    each.pop()
    assert each.lease(entry, 4.0, 10.0, "c", 1), "the first one was an attempt"


def test_a_commit_is_told_once_that_its_lease_was_taken_back() -> None:
    each = deliveries()
    waiting, ended = Entry(0, "m"), Entry(1, "n")
    for entry in (waiting, ended):
        each.add(entry, 0.0)
        each.lease(entry, 0.0, 10.0, "gone", 1)
        each.take_back(entry)
    each.settle(ended)
    assert not each.was_taken_back(ended, 2)
    assert [each.was_taken_back(waiting, 1) for _ in range(2)] == [True, False]


def test_a_ready_message_that_ends_is_not_taken() -> None:
    each = deliveries()
    entries = [Entry(sequence, "m") for sequence in range(2)]
    for entry in entries:
        assert each.add(entry, 0.0)
        each.push(entry)
    each.settle(entries[0])
    assert each.pop() is entries[1]
    assert each.pop() is None
