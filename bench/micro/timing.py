"""pytest-benchmark as it is used here: rounds with a preparation that is not timed, and what a part of one costs."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pytest_benchmark.fixture import BenchmarkFixture

NS: Final = 1e9
US: Final = 1e6
MS: Final = 1e3

T = TypeVar("T")


def in_rounds(
    benchmark: BenchmarkFixture,
    target: Callable[[], T],
    *,
    before: Callable[[], None] | None = None,
    rounds: int,
    warm_up: int = 1,
) -> T:
    """Time so many calls, one by one; `before` each of them comes what is not timed. What the last call returned."""
    untyped: Any = benchmark
    result: T = untyped.pedantic(target, setup=before, rounds=rounds, warmup_rounds=warm_up)
    return result


def quickest(benchmark: BenchmarkFixture, unit: float, parts: int = 1) -> float | None:
    """What one of so many parts takes in the round that others disturbed least; None where nothing is timed."""
    return None if benchmark.stats is None else benchmark.stats.stats.min / parts * unit
