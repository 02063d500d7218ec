"""A short run of what `tools/torture --queue` does for hours."""

import asyncio
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from tools.torture_queues import Link, QueueTorture, Result


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


async def test_an_attempt_that_is_read_late_from_another_link_is_not_a_repeated_one(tmp_path: Path) -> None:
    torture = QueueTorture([], tmp_path, seed=1, messages=1, keys=1)
    slow, quick = Link(asyncio.StreamReader(), Mock()), Link(asyncio.StreamReader(), Mock())
    slow.era = quick.era = 0
    torture._note(quick, 7, 0, 2)
    torture._note(slow, 7, 0, 1)  # sent before the other, for all that is known
    assert torture.result.repeated == 0
    torture._note(quick, 7, 0, 1)
    assert torture.result.repeated == 1
    slow.sent_after = time.monotonic()
    torture._note(slow, 7, 0, 1)  # the same attempt for somebody else
    assert torture.result.repeated == 2
