"""A thousand worlds, each out of its seed: what is always true stays true, and what was promised is kept."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mqttlite.wire.framer import packet_size
from tests.simulation.reference import SHARED_TOPIC
from tests.simulation.world import live
from tests.support.recorder import Everything, Recorder

QUICK = 60
QUICK_WATCHED = 6
ALL = 1_000


@pytest.mark.parametrize("seed", range(QUICK_WATCHED, QUICK))
def test_promises_are_kept_in_a_rude_world(seed: int) -> None:
    live(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 47) for first in range(QUICK, ALL, 47)], ids=str)
def test_promises_are_kept_in_many_rude_worlds(seeds: range) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.parametrize("seed", range(QUICK_WATCHED))
def test_clients_are_sent_the_same_whoever_watches(seed: int) -> None:
    same_whoever_watches(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 50) for first in range(QUICK_WATCHED, 206, 50)], ids=str)
def test_clients_are_sent_the_same_whoever_watches_in_many_worlds(seeds: range) -> None:
    for seed in seeds:
        same_whoever_watches(seed)


def assert_same(these: Mapping[Any, bytearray], those: Mapping[Any, bytearray]) -> None:
    """The same bytes; or the same packets, where a client has a topic twice, shared and not: of a run it gets all for
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


def same_whoever_watches(seed: int) -> None:
    """To follow messages one by one, all or some, changes nothing of what is written."""
    written = live(seed)
    everything = Everything()
    assert_same(live(seed, tracer=everything), written)
    assert_same(live(seed, tracer=Recorder(clients=("ann",), one_in=3)), written)
    everything.check_outcomes(SHARED_TOPIC.decode())
