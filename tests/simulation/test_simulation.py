"""A thousand worlds, each out of its seed: what is always true stays true, and what was promised is kept."""

import pytest

from tests.simulation.world import live

QUICK = 60
QUICK_TOGETHER = 20
ALL = 1_000


@pytest.mark.parametrize("seed", range(QUICK))
def test_promises_are_kept_in_a_rude_world(seed: int) -> None:
    live(seed)


@pytest.mark.parametrize("seed", range(QUICK_TOGETHER))
def test_promises_are_kept_by_two_workers(seed: int) -> None:
    live(seed, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 47) for first in range(QUICK, ALL, 47)], ids=str)
def test_promises_are_kept_in_many_rude_worlds(seeds: range) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seeds", [range(first, first + 50) for first in range(QUICK_TOGETHER, 520, 50)], ids=str)
def test_promises_are_kept_by_several_workers(seeds: range, workers: int) -> None:
    for seed in seeds:
        live(seed, workers=workers)
