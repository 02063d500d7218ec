"""Three machines and their engine, whatever is killed: nothing acknowledged is lost. `tools/torture --cluster` does it
longer."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.nats_servers import nats_server
from tests.support.rounds import todays
from tools.torture_cluster import FAULTS, ClusterTorture

pytest.importorskip("nats")

COMMAND = [sys.executable, "-m", "mqttlite"]


PAIRS = [["kill-serving", "lose-data"], ["kill-engine-leader", "hand-over"]]


@pytest.mark.slow
@pytest.mark.parametrize("faults", todays(PAIRS), ids=" ".join)
async def test_nothing_acknowledged_is_lost_whatever_is_killed(tmp_path: Path, faults: list[str]) -> None:
    nats_server()
    folder = tmp_path / "cluster"
    folder.mkdir()
    result = await ClusterTorture(COMMAND, folder, 1, faults).run(len(faults))
    shutil.rmtree(folder)  # the engine's files are large
    assert result.is_good, str(result)
    assert set(faults) <= set(FAULTS)
