"""Clusters of machines with all their faults, each from its seed: nothing acknowledged is lost, and one machine serves
in the end."""

import asyncio
from pathlib import Path

import pytest

from tests.simulation.cluster import World, cluster_in_one_process, run_cluster
from tests.support.rounds import todays

QUICK = 3
ALL = 300
SEED_OF_A_LARGE_LOG = 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(QUICK))
def test_a_cluster_keeps_what_it_acknowledged(seed: int, tmp_path: Path) -> None:
    run_cluster(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 18) for first in range(QUICK, ALL, 18)]), ids=str)
def test_clusters_keep_what_they_acknowledged(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        run_cluster(seed, tmp_path)


def test_a_machine_whose_disk_is_full_leaves_the_lease_to_another(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(SEED_OF_A_LARGE_LOG, tmp_path)
        world.faults = 0.0
        a, b, c = world.machines
        a.start()
        await asyncio.sleep(5)
        assert a.serves
        b.start()
        c.start()
        await asyncio.sleep(5)
        await c.stop()
        b.disk.is_full = True
        await a.crash(loses=False)
        await asyncio.sleep(5)
        assert not b.serves
        c.start()
        await asyncio.sleep(10)
        assert c.serves, "and the first does not keep the lease"
        assert b.node is not None
        assert b.node.role == "cannot serve"
        b.disk.is_full = False
        await asyncio.sleep(5)
        assert b.node.role == "follows"
        for machine in (b, c):
            await machine.stop()

    with cluster_in_one_process() as runner:
        runner.run(play())
