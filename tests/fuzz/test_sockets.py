"""Whatever comes through a socket, the others do not notice, nothing is logged as an error, and memory stays."""

import pytest

from tests.fuzz.sockets import MAX_GROWTH_BYTES, fuzz

SEED = 20_250_101


async def be_rude_for(seconds: float) -> None:
    report = await fuzz(seconds, SEED)
    assert report.errors == []
    assert report.growth_bytes <= MAX_GROWTH_BYTES
    assert report.connections > seconds
    assert report.exchanged > seconds


@pytest.mark.slow
async def test_a_broker_that_is_fuzzed_for_a_moment_serves_the_polite() -> None:
    await be_rude_for(1.5)


@pytest.mark.slow
async def test_a_broker_that_is_fuzzed_for_longer_serves_the_polite() -> None:
    await be_rude_for(20)
