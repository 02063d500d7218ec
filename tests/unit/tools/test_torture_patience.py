"""How long the harness waits for a broker, also on a machine that stands still."""

from tools.torture_patience import LONGEST_STEP_S, Patience


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steps_until_over(patience: Patience, clock: Clock, step_s: float) -> int:
    steps = 0
    while not patience.is_over():
        clock.now += step_s
        steps += 1
    return steps


def test_patience_is_over_after_its_time() -> None:
    clock = Clock()
    assert steps_until_over(Patience(10, clock), clock, 0.5) == 20


def test_time_in_which_the_process_stood_still_counts_as_one_step() -> None:
    clock = Clock()
    patience = Patience(10, clock)
    clock.now += 1_000
    assert not patience.is_over()
    assert steps_until_over(patience, clock, LONGEST_STEP_S) == 9


def test_patience_begins_anew_when_something_has_happened() -> None:
    clock = Clock()
    patience = Patience(10, clock)
    for _ in range(100):
        clock.now += 0.5
        assert not patience.is_over()
        patience.renew()
    assert steps_until_over(patience, clock, 0.5) == 20
