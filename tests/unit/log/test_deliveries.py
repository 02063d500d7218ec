"""Deliveries of a shared cursor: the cases that a queue meets rarely."""

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
    each.lease(first, 0.0, 1.0, "c")
    each.settle(first)
    assert third.state == READY
    assert each.pop() is third


def test_leases_that_are_extended_again_and_again_take_bounded_memory_and_end_in_time() -> None:
    each = deliveries()
    entry = Entry(0, "m")
    each.add(entry, 0.0)
    each.lease(entry, 0.0, 1.0, "c")
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
    each.lease(old, 0.0, 600.0, "c")
    each.lease(short, 1.0, 1.0, "c")
    each.start(short, 1, 1.5)
    assert each.next_at() == 2.0, "it may be too early"
    assert each.take_due(2.5) is None
    assert each.take_due(2.5 + ARRIVAL_S) is short
    each.lease(equal, 3.0, 597.0, "c")
    assert each.take_due(600.0) is old
    assert each.take_due(600.0) is equal
    each.lease(last, 600.0, 1.0, "c")
    assert not each._timed, "the older leases are over"
    assert each.take_due(601.0) is last


def test_a_ready_message_that_ends_is_not_taken() -> None:
    each = deliveries()
    entries = [Entry(sequence, "m") for sequence in range(2)]
    for entry in entries:
        assert each.add(entry, 0.0)
        each.push(entry)
    each.settle(entries[0])
    assert each.pop() is entries[1]
    assert each.pop() is None
