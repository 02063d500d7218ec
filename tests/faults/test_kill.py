"""A broker that is killed at random moments loses nothing that it acknowledged; `tools/torture` does it 200 times."""

import sys
from pathlib import Path

import pytest

from tests.support.rounds import todays
from tools.torture import Torture

SERVE = [sys.executable, "-m", "mqttlite", "serve"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", todays(range(1, 5)))
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, seed: int) -> None:
    result = await Torture(SERVE, tmp_path, seed).run(kills=5)
    assert (result.lost, result.twice, result.out_of_order) == (0, 0, 0)
    assert result.acknowledged > 0
