"""The heap of deadlines: in order, cancelled without a trace, swept before it grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.deadlines import SLACK, Deadline, Deadlines


def armed(deadlines: Deadlines, at: float) -> Deadline:
    deadline = Deadline()
    deadlines.arm(deadline, at)
    return deadline


def popped(deadlines: Deadlines, now: float) -> list[Deadline]:
    found = []
    while (deadline := deadlines.pop(now)) is not None:
        found.append(deadline)
    return found


def test_nothing_is_due_where_nothing_was_armed() -> None:
    deadlines = Deadlines()
    assert deadlines.pop(1e9) is None
    assert deadlines.next_at() is None


def test_due_timers_come_out_in_order_of_time_then_of_arming() -> None:
    deadlines = Deadlines()
    c, a, first, second, last = [armed(deadlines, at) for at in (3.0, 1.0, 2.0, 2.0, 9.0)]
    assert deadlines.next_at() == 1.0
    assert popped(deadlines, 3.0) == [a, first, second, c]
    assert deadlines.next_at() == 9.0
    assert popped(deadlines, 9.0) == [last]


def test_a_deadline_is_due_at_its_time_and_not_before() -> None:
    deadlines = Deadlines()
    deadline = armed(deadlines, 5.0)
    assert deadlines.pop(4.999) is None
    assert deadlines.pop(5.0) is deadline


def test_every_owner_says_what_its_deadline_does() -> None:
    with pytest.raises(NotImplementedError):
        Deadline().on_due()


def test_a_popped_deadline_can_be_armed_again() -> None:
    deadlines = Deadlines()
    deadline = armed(deadlines, 1.0)
    assert popped(deadlines, 1.0) == [deadline]
    deadlines.arm(deadline, 2.0)
    assert deadline.at == 2.0
    assert popped(deadlines, 1.0) == []
    assert popped(deadlines, 2.0) == [deadline]


def test_a_cancelled_deadline_is_never_due_and_cancelling_twice_is_harmless() -> None:
    deadlines = Deadlines()
    first, second = armed(deadlines, 1.0), armed(deadlines, 2.0)
    deadlines.cancel(first)
    deadlines.cancel(first)
    assert popped(deadlines, 5.0) == [second]
    assert len(deadlines) == 0


def test_the_heap_is_swept_when_more_than_the_slack_and_more_than_half_are_cancelled() -> None:
    deadlines = Deadlines()

    def left(count: int, cancelled: int) -> int:
        """How many of so many deadlines stay in the heap when the first are cancelled."""
        for deadline in [armed(deadlines, 1.0) for _ in range(count)][:cancelled]:
            deadlines.cancel(deadline)
        stay = len(deadlines)
        popped(deadlines, 1.0)
        return stay

    for _ in range(2):  # cancelled deadlines that were swept or popped no longer count
        assert left(SLACK, SLACK) == SLACK
        assert left(2 * SLACK + 2, SLACK + 1) == 2 * SLACK + 2
        assert left(2 * SLACK + 1, SLACK + 1) == SLACK


@given(st.lists(st.tuples(st.sampled_from(["arm", "cancel", "pop"]), st.integers(0, 20)), max_size=60))
def test_the_heap_equals_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    oracle: list[tuple[float, int, Deadline]] = []
    for order, (step, number) in enumerate(steps):
        if step == "arm":
            oracle.append((float(number), order, armed(deadlines, float(number))))
        elif step == "cancel" and oracle:
            deadlines.cancel(oracle.pop(number % len(oracle))[2])
        elif step == "pop":
            oracle.sort(key=lambda entry: entry[:2])
            expected = oracle.pop(0)[2] if oracle and oracle[0][0] <= number else None
            assert deadlines.pop(float(number)) is expected
