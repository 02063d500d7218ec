"""A thousand simulations, each from its seed: the invariants hold, and no promised message is lost."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mqttlite.wire.framer import packet_size
from tests.simulation.reference import SHARED_TOPIC
from tests.simulation.world import run_world
from tests.support.recorder import Everything, Recorder
from tests.support.rounds import todays

QUICK = 60
QUICK_TRACED = 6
ALL = 1_000


@pytest.mark.parametrize("seed", range(QUICK_TRACED, QUICK))
def test_invariants_hold_with_misbehaving_clients(seed: int) -> None:
    run_world(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 59) for first in range(QUICK, ALL, 59)]), ids=str)
def test_invariants_hold_in_many_simulations(seeds: range) -> None:
    for seed in seeds:
        run_world(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(QUICK_TRACED))
def test_clients_are_sent_the_same_with_and_without_a_tracer(seed: int) -> None:
    same_with_and_without_a_tracer(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", todays([range(first, first + 25) for first in range(QUICK_TRACED, 206, 25)]), ids=str)
def test_clients_are_sent_the_same_with_and_without_a_tracer_in_many_simulations(seeds: range) -> None:
    for seed in seeds:
        same_with_and_without_a_tracer(seed)


def assert_same(these: Mapping[Any, bytearray], those: Mapping[Any, bytearray]) -> None:
    """The same bytes; or the same packets, where a client has a topic twice, shared and not: of a batch it gets all for
    the one subscription and then all for the other, of single messages each for both."""
    assert these.keys() == those.keys()
    for connection, written in those.items():
        if these[connection] != written:
            assert sorted(packets(bytes(these[connection]))) == sorted(packets(bytes(written)))


def packets(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = packet_size(data, at) or len(data) - at
        yield data[at : at + size]
        at += size


def same_with_and_without_a_tracer(seed: int) -> None:
    """Tracing messages, all or some, changes nothing of what is written."""
    written = run_world(seed)
    everything = Everything()
    assert_same(run_world(seed, tracer=everything), written)
    assert_same(run_world(seed, tracer=Recorder(clients=("ann",), one_in=3)), written)
    everything.check_outcomes(SHARED_TOPIC.decode())
