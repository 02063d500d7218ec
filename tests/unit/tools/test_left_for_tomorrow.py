"""A run of all tests has each test of a broker with sockets on one loop, and the next day on the other."""

import pytest

from tests.support.loops import HAS_UVLOOP, left_for_tomorrow

pytestmark = pytest.mark.skipif(not HAS_UVLOOP, reason="uvloop is not installed")

FILES = [
    f"tests/integration/test_{name}.py" for name in ("auth", "bridges", "doors", "drain", "quotas", "table", "tls")
]
BOTH = {
    f"{file}::test_it[{loop}{rest}]" for file in FILES for loop in ("asyncio", "uvloop") for rest in ("", "-1-uvloop")
}
ONE = {f"{file}::test_{loop}[{loop}]" for file in FILES for loop in ("asyncio", "uvloop")} | {f"{FILES[0]}::test_plain"}


def test_two_days_have_each_test_on_each_loop_and_a_day_has_it_once() -> None:
    first, second = (BOTH - left_for_tomorrow(BOTH | ONE, day) for day in ("20422", "20423"))
    assert first | second == BOTH
    assert not first & second
    assert len(first) == len(second)
    assert len({name.partition("[")[2][:3] for name in first}) == 2, "each loop has some files"


def test_a_test_that_has_one_loop_runs_each_day() -> None:
    assert not left_for_tomorrow(BOTH | ONE, "20422") & ONE
    assert left_for_tomorrow(ONE, "20423") == set()


def test_without_a_day_each_test_runs_on_both_loops() -> None:
    assert left_for_tomorrow(BOTH, "") == set()
