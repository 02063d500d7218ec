"""Segments answer by search what a look at each of them says."""

from random import Random

import pytest

from mqttlite.log.segments import MAX_SEGMENTS, UNKNOWN, Row, Segments
from tests.support.numbers import CountedInt

ADDED = 150


def size_since(rows: list[Row], number: int) -> int:
    """By looking at each: the entries of a segment have no higher numbers than the first one of the next."""
    following = [row[1] for row in rows[1:]]
    highest = [min(row[2], after) for row, after in zip(rows, [*following, rows[-1][2]], strict=True)] if rows else []
    return sum(row[3] for row, last in zip(rows, highest, strict=True) if last >= number)


def of(rows: list[Row], offset: int) -> Row:
    """The segment of an entry, by looking at each; the first one for those before."""
    return [rows[0], *(row for row in rows if row[0] <= offset)][-1]


def restored(former: Segments, size_bytes: int, now: int) -> tuple[Segments, int]:
    """They become smaller, so that the former ones are large, and their size."""
    segments = Segments(5, 50)
    size = segments.restore(former.rows(), former.first, size_bytes, now, lateness=former.lateness())
    return segments, size


def walk(seed: int) -> tuple[Segments, int, list[int]]:
    """Segments after adding, dropping, compacting and restoring, the end of their log, and by how much each entry was
    late."""
    late: list[int] = []
    random = Random(seed)
    segments, end, now, size_bytes = Segments(random.choice((1, 20, 200)), random.choice((0, 50))), 0, 1_000, 0
    for _ in range(ADDED):
        now += random.choice((0, 0, 1, 7, 60, -30))
        size = random.randrange(1, 20)
        late.append(random.choice((0, 0, 0, 1, 30, 2_000_000)))
        segments.add(end, now, size, late[-1])
        end, size_bytes = end + 1, size_bytes + size
        if random.random() < 0.1:
            size_bytes -= segments.drop_first(end)
        if random.random() < 0.02 and len(segments) > 2:
            rows = segments.rows()
            low, high = rows[1][0], rows[-1][0] + random.randrange(2)
            sizes = {row[0]: (row[3], row[3] // 2) for row in rows[1:-1]}
            size_bytes = segments.resize(low, high, end, sizes)
        if random.random() < 0.02 and len(segments):
            segments, size_bytes = restored(segments, size_bytes, now)
        if not len(segments):
            size_bytes = 0
    if len(segments):
        segments, _ = restored(segments, size_bytes, now)
        segments.drop_first(end)
    return segments, end, late


@pytest.mark.parametrize("seed", range(40))
def test_sizes_and_numbers_are_those_that_a_look_at_each_segment_finds(seed: int) -> None:
    segments, end, _ = walk(seed)
    rows = segments.rows()
    numbers = [row[1] for row in rows]
    assert numbers == sorted(numbers), "although the clock was set back"
    for number in {each + by for row in rows for each in row[1:3] for by in (-1, 0, 1)}:
        assert segments.size_since(number) == size_since(rows, number)
    offsets = [row[0] + by for row in rows for by in (0, 1)] + [end]
    for first in offsets if rows else ():
        found = of(rows, first)
        assert (segments.number_of(first), segments.last_of(first)) == found[1:3]
        for until in (0, first, first + 1, first + 40, end):
            expected = sum(row[3] for row in rows if found[0] <= row[0] < until)
            assert segments.size_between(first, until) == expected


@pytest.mark.parametrize("seed", range(40))
def test_no_entry_is_later_than_its_segment_says(seed: int) -> None:
    segments, end, late = walk(seed)
    begins = [*segments.firsts, end]
    for first, until, expected in zip(begins[:-1], begins[1:], segments.lateness(), strict=True):
        assert expected == UNKNOWN or expected >= max(late[first:until], default=0)


def test_how_late_entries_are_is_unknown_without_a_record_and_where_the_clock_was_set_back() -> None:
    rows = [(0, 10, 20, 1), (5, 20, 30, 1)]
    segments = Segments(1, 0)
    segments.restore(rows, 0, 2, 40)
    assert segments.lateness() == [UNKNOWN, UNKNOWN]
    assert segments.add(9, 50, 1, 7), "a new segment"
    assert segments.lateness()[2] == 14
    for now, latest in ((20, 4), (19, UNKNOWN)):
        segments.restore(rows, 0, 2, now, lateness=[3, 4])
        assert segments.lateness() == [3, latest]


@pytest.mark.parametrize(("one", "two", "both"), [(3, 4, 4), (UNKNOWN, 4, UNKNOWN), (3, UNKNOWN, UNKNOWN)])
def test_of_two_segments_that_become_one_the_later_entries_count(one: int, two: int, both: int) -> None:
    segments = Segments(1, 0)
    rows = [(at, at, at, 1) for at in range(MAX_SEGMENTS)]
    segments.restore(rows, 0, MAX_SEGMENTS, MAX_SEGMENTS, lateness=[one, two] * (MAX_SEGMENTS // 2))
    segments.add(MAX_SEGMENTS, MAX_SEGMENTS, 1)
    assert set(segments.lateness()[:-1]) == {both}


def test_a_search_looks_at_few_segments() -> None:
    used = CountedInt.counter()
    segments = Segments(1, 0)
    rows = [tuple(CountedInt(used, each) for each in (at, 10 * at, 10 * at + 9, 1)) for at in range(512)]
    segments.restore(rows, 0, 512, 0)  # type: ignore[arg-type]
    for ask in (
        lambda: segments.size_since(2_505),
        lambda: segments.size_between(100, 400),
        lambda: segments.number_of(100),
        lambda: segments.last_of(100),
        lambda: segments.around(2_505, 512),
    ):
        used.clear()
        ask()
        assert used.total() <= 25, "two searches among 512 at most"


def test_a_log_without_entries_has_no_size() -> None:
    segments = Segments(10, 0)
    assert (segments.size_since(0), segments.size_between(0, 9)) == (0, 0)
    segments.add(0, 1, 5)
    segments.drop_first(1)
    segments.add(1, 2, 7)
    assert (segments.size_since(0), segments.size_since(3)) == (7, 0)
