"""Whatever comes through a socket, the others do not notice, nothing is logged as an error, and memory stays."""

import pytest

from tests.fuzz.sockets import MAX_GROWTH_BYTES, fuzz
from tests.support.rounds import todays

FUZZ_S = 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", todays(range(8)))
async def test_a_broker_that_is_fuzzed_serves_the_polite(seed: int) -> None:
    report = await fuzz(FUZZ_S, seed)
    assert report.errors == []
    assert report.growth_bytes <= MAX_GROWTH_BYTES
    assert report.connections > FUZZ_S
    assert report.exchanged > FUZZ_S
