"""The heap of deadlines: in order, cancelled without a trace, swept before it grows."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.deadlines import SLACK, Deadline, Deadlines


def popped(deadlines: Deadlines, now: float) -> list[str]:
    found = []
    while (deadline := deadlines.pop(now)) is not None:
        found.append(deadline.client_id)
    return found


def test_nothing_is_due_where_nothing_was_added() -> None:
    deadlines = Deadlines()
    assert deadlines.pop(1e9) is None
    assert deadlines.next_at() is None


def test_what_is_due_comes_out_in_order_of_time_then_of_addition() -> None:
    deadlines = Deadlines()
    for at, name in [(3.0, "c"), (1.0, "a"), (2.0, "b1"), (2.0, "b2"), (9.0, "z")]:
        deadlines.add(at, 0, client_id=name)
    assert deadlines.next_at() == 1.0
    assert popped(deadlines, 3.0) == ["a", "b1", "b2", "c"]
    assert deadlines.next_at() == 9.0


def test_a_deadline_is_due_at_its_time_and_not_before() -> None:
    deadlines = Deadlines()
    deadlines.add(5.0, 0)
    assert deadlines.pop(4.999) is None
    assert deadlines.pop(5.0) is not None


def test_a_deadline_carries_what_it_was_given() -> None:
    deadline = Deadlines().add(5.0, 2, 7, "x")
    assert (deadline.at, deadline.kind, deadline.number, deadline.client_id) == (5.0, 2, 7, "x")


def test_a_popped_deadline_can_ring_again() -> None:
    deadlines = Deadlines()
    deadlines.add(1.0, 0, client_id="a")
    deadline = deadlines.pop(1.0)
    assert deadline is not None
    deadlines.again(deadline, 2.0)
    assert deadline.at == 2.0
    assert popped(deadlines, 1.0) == []
    assert popped(deadlines, 2.0) == ["a"]


def test_a_cancelled_deadline_does_not_ring_and_cancelling_twice_is_harmless() -> None:
    deadlines = Deadlines()
    first = deadlines.add(1.0, 0, client_id="a")
    deadlines.add(2.0, 0, client_id="b")
    deadlines.cancel(first)
    deadlines.cancel(first)
    assert popped(deadlines, 5.0) == ["b"]
    assert len(deadlines) == 0


def test_cancelled_deadlines_are_swept_before_they_outnumber_the_others() -> None:
    deadlines = Deadlines()
    kept = [deadlines.add(float(at), 0, number=at) for at in range(10)]
    for _ in range(20 * SLACK):
        deadlines.cancel(deadlines.add(1e6, 0))
        assert len(deadlines) <= len(kept) + SLACK + 1
    assert popped(deadlines, 1e9) == [""] * len(kept)


def test_few_cancelled_deadlines_among_many_are_left_where_they_are() -> None:
    deadlines = Deadlines()
    many = [deadlines.add(float(at), 0) for at in range(4 * SLACK)]
    for deadline in many[: SLACK + 10]:
        deadlines.cancel(deadline)
    assert len(deadlines) == len(many)
    assert len(popped(deadlines, 1e9)) == len(many) - SLACK - 10


@given(st.lists(st.tuples(st.sampled_from(["add", "cancel", "pop"]), st.integers(0, 20)), max_size=60))
def test_the_heap_equals_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    oracle: list[tuple[float, int, Deadline]] = []
    for order, (step, number) in enumerate(steps):
        if step == "add":
            oracle.append((float(number), order, deadlines.add(float(number), 0)))
        elif step == "cancel" and oracle:
            deadlines.cancel(oracle.pop(number % len(oracle))[2])
        elif step == "pop":
            oracle.sort(key=lambda entry: entry[:2])
            expected = oracle.pop(0)[2] if oracle and oracle[0][0] <= number else None
            assert deadlines.pop(float(number)) is expected
