"""How many messages are traced, and what they stand for."""

import pytest

from mqttlite.core.tracer import NO_SAMPLES
from mqttlite.telemetry.sampling import Sampler


class Core:
    """Counts messages down as the core does: by whole runs."""

    def __init__(self, per_s: float, seed: int = 1) -> None:
        self.now = 0.0
        self.sampler = Sampler(per_s, self.now, seed)
        self.left = self.sampler.begin()
        self.messages = 0
        self.weights: list[int] = []

    def run(self, messages: int, receivers: int = 1) -> int:
        """How many of the run are traced."""
        self.messages += messages
        self.left -= messages
        traced = 0
        while self.left <= 0:
            self.left += self.sampler.next(self.now)
            traced += 1
        for _ in range(traced):
            self.weights.append(self.sampler.weight())
            self.sampler.spend(receivers)
        return traced

    def second(self, runs: int, length: int = 1, receivers: int = 1) -> int:
        """So many runs in a second, evenly; how many messages are traced."""
        traced = 0
        for _ in range(runs):
            self.now += 1.0 / runs
            traced += self.run(length, receivers)
        self.left = self.sampler.hurry(self.left, self.now)
        return traced


def test_while_there_are_few_all_are_followed_and_each_stands_for_itself() -> None:
    core = Core(200)
    for _ in range(20):
        assert core.second(200) == 200
    assert set(core.weights) == {1}


@pytest.mark.parametrize("length", [1, 200])
def test_a_seconds_worth_at_once_is_followed_whole(length: int) -> None:
    core = Core(200)
    for _ in range(5):
        core.now += 1.0
        assert sum(core.run(length) for _ in range(200 // length)) == 200


@pytest.mark.parametrize("runs", [300, 2_000, 10_000])
def test_of_more_about_so_many_are_followed(runs: int) -> None:
    core = Core(200)
    core.second(runs)
    core.second(runs)
    for _ in range(10):
        assert 140 <= core.second(runs) <= 290


@pytest.mark.parametrize(("runs", "length"), [(100, 5_000), (1_000, 500), (20_000, 3), (5_000, 1)])
def test_the_weights_of_followed_messages_add_up_to_all_that_passed(runs: int, length: int) -> None:
    core = Core(200)
    for _ in range(8):
        core.second(runs, length)
    assert 0 <= core.messages - sum(core.weights) < 4 * core.sampler.mean
    assert core.sampler.weight() == 0


@pytest.mark.long
def test_a_burst_out_of_nothing_is_followed_a_little_all_along() -> None:
    core = Core(200)
    traced = [core.run(1) for _ in range(200_000)]
    assert 200 < sum(traced) < 1_500
    assert 200 < Core(200).run(1_000_000) < 1_500
    for tenth in range(0, 200_000, 20_000):
        assert any(traced[tenth : tenth + 20_000])


def test_after_a_flood_all_are_followed_again_within_two_seconds() -> None:
    core = Core(200)
    for _ in range(3):
        core.second(20_000)
    core.second(20)
    core.second(20)
    assert [core.second(20) for _ in range(3)] == [20, 20, 20]
    assert sum(core.weights) == core.messages


def test_messages_for_many_receivers_are_followed_more_seldom() -> None:
    core = Core(200)
    for _ in range(3):
        core.second(200, receivers=1_000)
    assert 1 <= sum(core.second(200, receivers=1_000) for _ in range(5)) <= 30


def test_a_repeated_event_does_not_hide_others() -> None:
    """Every tenth message is of a kind: as many of the traced are."""
    core = Core(200)
    kinds = [0] * 10
    for _ in range(10):
        core.second(2_000)
    for number in range(40_000):
        core.now += 1 / 2_000
        if core.run(1):
            kinds[number % 10] += 1
    assert sum(kinds) > 2_500
    assert max(kinds) < 1.35 * min(kinds)


def test_chosen_messages_are_for_the_dataset_as_often_as_others() -> None:
    sampler = Sampler(200, 0.0, 1)
    weights = []
    for number in range(20_000):
        weights.append(sampler.choose(number / 2_000))
    taken = [weight for weight in weights if weight]
    assert sum(taken) == pytest.approx(20_000, rel=0.02)
    assert 1_500 <= len(taken) <= 3_500
    for second in (11, 12):
        sampler.hurry(1, second)
    assert all(sampler.choose(20.0 + second) for second in range(10))


def test_where_none_is_wanted_none_is_followed() -> None:
    sampler = Sampler(0, 0.0)
    assert sampler.begin() == NO_SAMPLES
    assert sampler.hurry(NO_SAMPLES - 1_000_000, 5.0) == NO_SAMPLES - 1_000_000
    assert sampler.choose(6.0) == 0
