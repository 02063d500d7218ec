"""`mqttlite serve` is killed with SIGKILL again and again, and every session still has one row."""

import asyncio
import json
import math
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_serve_process import Served, serving
from tests.support.device import Device, Gone

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["uvloop"])]

LIVES = 3
SURE_S = 2.0
"""A session that began so long before is in the journal, unless the machine stood still."""


async def come_and_go(served: Served, life: int, names: dict[str, float], seed: int) -> None:
    """Clients connect, and some leave, until the broker is gone."""
    dice = random.Random(seed)
    loop = asyncio.get_running_loop()
    devices: list[Device] = []
    try:
        while True:
            name = f"c{life}-{len(names)}"
            device = await Device.dial(served.port)
            devices.append(device)
            names[name] = math.inf
            await device.connect(name)
            names[name] = loop.time()
            if dice.random() < 0.5:
                await devices.pop(dice.randrange(len(devices))).disconnect()
            await asyncio.sleep(dice.random() * 0.05)
    except (OSError, EOFError, Gone):
        pass  # it is dead
    finally:
        for device in devices:
            device.drop()


def rows(folder: Path) -> list[dict[str, Any]]:
    files = folder.glob("table=sessions/**/part-*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def test_every_session_has_one_row_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    folder = tmp_path / "telemetry"
    config.write_text(f'[telemetry]\ndirectory = "{folder}"\nformat = "jsonl"\nrotate_after_s = 0.05\n')
    flags = ("--config", str(config), "--port", "0")
    sure: set[str] = set()
    maybe: set[str] = set()
    dice = random.Random(1)
    loop = asyncio.get_running_loop()
    for life in range(LIVES):
        async with serving(*flags) as served:
            names: dict[str, float] = {}
            clients = asyncio.create_task(come_and_go(served, life, names, life))
            await asyncio.sleep(SURE_S + dice.random())
            killed_at = loop.time()
            served.process.kill()
            await served.process.wait()
            await asyncio.wait([clients])
            assert names
            maybe |= set(names)
            sure |= {name for name, at in names.items() if at < killed_at - SURE_S}
    async with serving(*flags) as served:
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends(20) == 0
    found = rows(folder)
    names_found = [row["client_id"] for row in found]
    assert len(names_found) == len(set(names_found))
    assert sure <= set(names_found) <= maybe
    assert {row["close_reason"] for row in found} >= {"broker_crash", "client_disconnected"}
    keys = {(row["broker_id"], row["connection_id"]) for row in found}
    assert len(keys) == len(found)
    assert [path.name for path in folder.rglob(".*")] == []
