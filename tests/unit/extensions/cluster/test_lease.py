"""The lease: who may try to serve, by one's own clock alone."""

from mqttlite.engine.port import Entry
from mqttlite.extensions.cluster.lease import (
    GRACE_S,
    LEASE_S,
    HandOver,
    HeldLease,
    Holder,
    LeaseView,
    decode_hand_over,
    encode,
)

A = Holder("a", "run", 1)


def entry(holder: Holder, revision: int) -> Entry:
    return Entry("lease", encode(holder), revision)


def test_a_lease_is_free_when_it_was_not_seen_to_change_for_its_time() -> None:
    view = LeaseView("b", 100.0)
    assert not view.is_free(100.0 + LEASE_S - 0.01), "what it has not heard of yet may hold"
    view.see(entry(A, 5), 101.0)
    assert not view.is_free(101.0 + LEASE_S - 0.01)
    view.see(entry(A, 6), 103.0)
    assert not view.is_free(103.0 + LEASE_S - 0.01)
    assert view.is_free(103.0 + LEASE_S)
    assert (view.expected, view.turn()) == (6, 2)


def test_a_holder_that_cannot_renew_because_the_engine_is_away_has_time_after_it() -> None:
    view = LeaseView("b", 0.0)
    view.see(entry(A, 6), 1.0)
    assert not view.is_late(2.9)
    assert view.is_late(3.0)
    view.excuse(3.0)
    assert not view.is_late(3.9), "it is asked again after a second"
    assert view.is_late(4.0)
    assert not view.is_free(2.9 + GRACE_S)
    assert view.is_free(3.0 + GRACE_S)
    view.see(entry(A, 7), 10.0)
    view.excuse(10.1)
    assert not view.is_free(10.0 + LEASE_S - 0.1), "what is excused does not make it shorter"


def test_an_older_value_does_not_keep_a_lease() -> None:
    view = LeaseView("b", 0.0)
    view.see(entry(A, 6), 1.0)
    view.see(entry(Holder("c", "r", 9), 5), 3.0)
    view.see(entry(A, 6), 3.0)
    assert view.is_free(1.0 + LEASE_S)
    assert view.holder == A


def test_a_lease_that_was_given_back_is_free_for_its_successor_at_once() -> None:
    for successor, free_at_once in (("", True), ("b", True), ("c", False)):
        view = LeaseView("b", 0.0)
        view.see(entry(Holder("", "run", 1, successor=successor), 7), 1.0)
        assert view.is_free(1.0) == free_at_once
        assert view.is_free(1.0 + LEASE_S), "the successor may be gone"


def test_a_value_of_another_version_holds_like_any_other() -> None:
    view = LeaseView("b", 0.0)
    view.see(Entry("lease", b"{", 3), 1.0)
    assert not view.is_free(1.0)
    assert view.is_free(1.0 + LEASE_S)
    assert view.turn() == 1


def test_a_lease_that_was_deleted_is_free_after_its_time() -> None:
    view = LeaseView("b", 0.0)
    view.see(entry(A, 3), 1.0)
    view.see(Entry("lease", None, 4), 2.0)
    assert not view.is_free(2.0)
    assert view.is_free(2.0 + LEASE_S)
    assert view.expected == 0


def test_the_holder_counts_from_when_it_asked() -> None:
    held = HeldLease(A, 5, 100.0)
    assert not held.is_over(100.0 + LEASE_S - 0.01)
    held.renew(6, 102.0)
    assert not held.is_over(102.0 + LEASE_S - 0.01)
    assert held.is_over(102.0 + LEASE_S)
    assert held.revision == 6


def test_the_holder_knows_its_own_lease() -> None:
    held = HeldLease(A, 5, 0.0)
    assert held.is_still(entry(A, 6))
    assert not held.is_still(entry(Holder("a", "another run", 1), 6))
    assert not held.is_still(Entry("lease", None, 6))
    assert not held.is_still(None)


def test_a_request_to_hand_over_is_read_back() -> None:
    assert decode_hand_over(encode(HandOver(3, "b"))) == HandOver(3, "b")
    assert decode_hand_over(b"[]") is None
