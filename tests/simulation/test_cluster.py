"""Clusters of machines with all their faults, each from its seed: nothing acknowledged is lost, and one machine serves
in the end."""

from pathlib import Path

import pytest

from tests.simulation.cluster import run_cluster
from tests.support.rounds import todays

QUICK = 3
ALL = 300


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_cluster_keeps_what_it_acknowledged(seed: int, tmp_path: Path) -> None:
    run_cluster(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 27) for first in range(QUICK, ALL, 27)]), ids=str)
def test_clusters_keep_what_they_acknowledged(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        run_cluster(seed, tmp_path)
