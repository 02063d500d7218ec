"""Clients that come to one node after the other, each from its seed: one session each, and nothing lost or twice."""

import pytest

from tests.simulation.roaming import run_roaming
from tests.support.rounds import todays

QUICK = 1
ALL = 16


@pytest.mark.long
@pytest.mark.parametrize("seed", range(QUICK))
def test_a_client_has_one_session_wherever_it_connects(seed: int) -> None:
    run_roaming(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 2) for first in range(QUICK, ALL, 2)]), ids=str)
def test_clients_have_one_session_wherever_they_connect(seeds: range) -> None:
    for seed in seeds:
        run_roaming(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 2) for first in range(0, ALL, 2)]), ids=str)
def test_clients_have_one_session_again_when_nodes_were_apart(seeds: range) -> None:
    for seed in seeds:
        run_roaming(seed, roamers=4, takeovers=120, parts=True)
