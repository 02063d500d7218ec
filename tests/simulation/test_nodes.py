"""Nodes with all their faults, each from its seed: nothing acknowledged is lost, and nothing of QoS 2 comes twice."""

import pytest

from tests.simulation.nodes import run_nodes
from tests.support.rounds import todays

QUICK = 2
ALL = 62


@pytest.mark.long
@pytest.mark.parametrize("seed", range(QUICK))
def test_nodes_keep_what_they_acknowledged(seed: int) -> None:
    run_nodes(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 5) for first in range(QUICK, ALL, 5)]), ids=str)
def test_many_nodes_keep_what_they_acknowledged(seeds: range) -> None:
    for seed in seeds:
        run_nodes(seed)
