"""The search for a place in a log by a number."""

import random

from mqttlite.log.bisection import Bisection


def search(
    numbers: dict[int, int], number: int, low: int, high: int, high_number: int = 0, low_number: int = -1
) -> tuple[int, int]:
    """Where the first entry with at least this number is, or the next lost one before it; and how many were read."""
    bisection, reads = Bisection(number, low, high, high_number, low_number), 0
    while not bisection.is_over:
        first, reads = bisection.next_offset(), reads + 1
        assert low <= first < high
        at = next((each for each in range(first, bisection.high) if each in numbers), None)
        if at is None:
            bisection.found_none()
        else:
            bisection.found(at, numbers[at])
    return bisection.low, reads


def test_all_entries_before_the_place_are_older_and_none_behind_it() -> None:
    rng = random.Random(7)
    for _ in range(300):
        numbers = sorted(rng.choices(range(100), k=rng.randrange(1, 30)))
        entries = {at: each for at, each in enumerate(numbers, 5) if rng.random() < 0.8}
        wanted, end = rng.randrange(101), 5 + len(numbers)
        place, _ = search(entries, wanted, 5, end, rng.choice([0, 50, 101]), rng.choice([-1, 0, 60]))
        assert all(each < wanted for at, each in entries.items() if at < place)
        assert all(each >= wanted for at, each in entries.items() if at >= place)


def test_entries_at_a_constant_rate_are_found_with_few_reads() -> None:
    entries = {at: 1_000 + 10 * at for at in range(100_000)}
    assert search(entries, 1_000 + 10 * 77_777, 0, 100_000, 1_000 + 10 * 100_000)[0] == 77_777
    reads = [search(entries, 1_000 + 10 * at, 0, 100_000, 1_001_000)[1] for at in range(9_973, 100_000, 9_973)]
    assert max(reads) <= 8, "halving alone takes 17"
    reads = [search(entries, 1_000 + 10 * at, 0, 100_000, 1_001_000, 1_000)[1] for at in range(9_973, 100_000, 9_973)]
    assert max(reads) <= 4, "with the numbers at both ends"


def test_an_empty_log_has_its_end() -> None:
    assert search({}, 5, 3, 3) == (3, 0)
    assert search({}, 5, 3, 9) == (3, 3)
