"""Two days that follow each other run all files, and each day runs a part of each pair."""

import pytest

from tests.support.never_quick import SLOW, is_left_out
from tests.support.parts import COMPILED, OTHERS, PARTS, is_in, takes_turns
from tests.support.turns import SLOW_TURNS, has_turn_tomorrow, runs_today
from tests.test_architecture import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
NAMED = [ROOT / "tests" / name for pair in SLOW_TURNS for side in pair for name in side]
DAYS = ("20788", "20789")


def test_each_file_that_takes_turns_is_there_has_slow_tests_and_is_named_once() -> None:
    assert [path for path in NAMED if not path.is_file()] == []
    assert len(set(NAMED)) == len(NAMED)
    assert [path for path in NAMED if is_left_out(path, SLOW)] == []


def test_the_slow_tests_of_a_file_run_on_one_of_two_days() -> None:
    for path in FILES:
        assert [has_turn_tomorrow(path, day) for day in DAYS].count(True) == (path in NAMED), path
    for pair in SLOW_TURNS:
        for day in DAYS:
            left = {has_turn_tomorrow(ROOT / "tests" / side[0], day) for side in pair}
            assert left == {True, False}


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
            assert len({runs_today(path, part, day) for day in DAYS}) == 2


def test_without_a_day_everything_runs() -> None:
    assert not [path for path in FILES if has_turn_tomorrow(path, "")]
    assert [path for path in FILES for part in PARTS if runs_today(path, part, "") != is_in(path, part)] == []
