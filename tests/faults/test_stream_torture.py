"""A short run of what `tools/torture --stream` does in a hundred rounds."""

import sys
from pathlib import Path

import pytest

from tools.torture_streams import StreamTorture


@pytest.mark.slow
async def test_a_group_loses_nothing_while_brokers_and_members_are_killed_and_stopped(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "mqttlite", "serve"]
    verdict = await StreamTorture(serve, tmp_path, seed=4, partitions=6).run(rounds=4)
    assert verdict.is_good, str(verdict)
