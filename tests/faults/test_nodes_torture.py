"""Three nodes and their servers of NATS, whatever is killed, stopped or cut off.
`tools/torture --nodes` does it longer."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.nats_servers import nats_server
from tests.support.rounds import todays
from tools.torture_nodes import FAULTS, NodesTorture

pytest.importorskip("nats")

SERVE = [sys.executable, "-m", "mqttlite", "serve"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", todays(list(FAULTS)))
async def test_nothing_acknowledged_is_lost_between_nodes_and_a_client_has_one_session(
    tmp_path: Path, fault: str
) -> None:
    nats_server()
    folder = tmp_path / "nodes"
    folder.mkdir()
    result = await NodesTorture(SERVE, folder, 1, [fault], longest_s=2.0).run(1)
    shutil.rmtree(folder)
    assert result.is_good, str(result)
