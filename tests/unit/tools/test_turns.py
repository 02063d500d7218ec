"""Four days that follow each other run all files, and each day runs a set of each group."""

import pytest

from tests.support.never_quick import MARKED_BY_FOLDER
from tests.support.parts import COMPILED, OTHERS, PARTS, is_in, takes_turns
from tests.support.rounds import turn
from tests.support.turns import SLOW_TURNS, rests, runs_today
from tests.test_architecture import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
NAMED = {ROOT / "tests" / name for group in SLOW_TURNS for names in group for name in names}
DAYS = ("20788", "20789", "20790", "20791")


def test_each_file_that_takes_turns_is_there_has_slow_tests_and_is_in_one_group() -> None:
    assert [path for path in NAMED if not path.is_file()] == []
    assert len(NAMED) == sum(len({name for names in group for name in names}) for group in SLOW_TURNS)
    marked_here = [path for path in NAMED if not str(path).startswith(MARKED_BY_FOLDER)]
    assert [path for path in marked_here if "mark.slow" not in path.read_text(encoding="utf-8")] == []


def test_four_days_run_the_slow_tests_of_each_file_and_a_day_those_of_one_set_of_each_group() -> None:
    for path in FILES:
        days = [not rests(path, day) for day in DAYS]
        assert any(days)
        assert all(days) == (path not in NAMED), path
    for group in SLOW_TURNS:
        for day in DAYS:
            today = {name for names in group for name in names if not rests(ROOT / "tests" / name, day)}
            assert today in [set(names) for names in group]


@pytest.mark.parametrize("day", DAYS)
def test_each_day_runs_each_file_and_one_that_takes_turns_on_one_build(day: str) -> None:
    for path in FILES:
        parts = [part for part in PARTS if is_in(path, part)]
        today = [part for part in parts if runs_today(path, part, day)]
        assert len(today) == (1 if takes_turns(path) else len(parts)), path
    halves = [sum(runs_today(path, part, day) for path in FILES if takes_turns(path)) for part in (OTHERS, COMPILED)]
    assert min(halves) > sum(halves) / 3


def test_the_next_day_runs_the_other_build() -> None:
    for path in filter(takes_turns, FILES):
        for part in (OTHERS, COMPILED):
            assert [runs_today(path, part, day) for day in DAYS] in ([True, False] * 2, [False, True] * 2)


@pytest.mark.parametrize("parts", [2, 3, 4, 6, 8, 16, 32])
def test_a_file_that_runs_every_second_or_fourth_day_comes_to_each_seed(parts: int) -> None:
    for step in (1, 2, 4):
        for first in range(step):
            assert {turn(day) % parts for day in range(first, 2_000, step)} == set(range(parts))


def test_without_a_day_everything_runs() -> None:
    assert not [path for path in FILES if rests(path, "")]
    assert [path for path in FILES for part in PARTS if runs_today(path, part, "") != is_in(path, part)] == []
