"""A short run of what `tools/torture --queue` does for hours."""

import sys
from pathlib import Path

import pytest

from tools.torture_queues import QueueTorture, Result


@pytest.mark.slow
async def test_each_message_comes_to_one_end_under_kills_refusals_and_seeks(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "mqttlite", "serve"]
    result = await QueueTorture(serve, tmp_path, seed=3, messages=4_000, keys=50).run(kills=2)
    assert result.is_good, str(result)
    assert (result.published, result.kills) == (4_000, 2)


def test_a_run_that_lost_something_is_not_good() -> None:
    assert Result(published=1).is_good
    assert not Result().is_good
    assert not Result(published=1, inversions=1).is_good
    assert not Result(published=1, older_than_seek=1).is_good
