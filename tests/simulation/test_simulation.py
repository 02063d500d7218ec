"""A thousand worlds, each out of its seed: what is always true stays true, and what was promised is kept."""

import pytest

from tests.simulation.world import live

QUICK = 60
ALL = 1_000


@pytest.mark.parametrize("seed", range(QUICK))
def test_promises_are_kept_in_a_rude_world(seed: int) -> None:
    live(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 47) for first in range(QUICK, ALL, 47)], ids=str)
def test_promises_are_kept_in_many_rude_worlds(seeds: range) -> None:
    for seed in seeds:
        live(seed)
