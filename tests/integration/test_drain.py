"""Lame duck: a broker that is to be replaced takes nobody new, and sends those who are here away in good time."""

import asyncio
import os
import signal
import sys

import pytest

from mqttlite.config import Config, LameDuckOptions, ListenerOptions
from mqttlite.wire.constants import V311
from tests.integration.conftest import Rig
from tests.support.device import Device

HERE = (ListenerOptions(port=0),)


@pytest.mark.parametrize(("reference", "code"), [("other.example:1883", 0x9C), ("", 0x8B)])
async def test_clients_are_sent_away_and_nobody_comes_in(rig: Rig, reference: str, code: int) -> None:
    options = LameDuckOptions(deadline_s=0.3, server_reference=reference)
    broker = await rig.broker(Config(listeners=HERE, lame_duck=options))
    port = broker.port
    newer = [await rig.device(port, f"newer-{number}") for number in range(4)]
    older = await rig.device(port, "older", V311)
    drain = asyncio.create_task(broker.drain())
    assert [await device.goodbye() for device in newer] == [code] * 4
    assert await older.goodbye() is None
    with pytest.raises(ConnectionRefusedError):
        await Device.dial(port)
    for device in (*newer, older):
        await device.close()
    async with asyncio.timeout(60):
        await drain
    await broker.drain()  # once more is harmless


async def test_a_negative_deadline_is_refused() -> None:
    with pytest.raises(ValueError, match="deadline_s is -1"):
        LameDuckOptions(deadline_s=-1)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(signal.SIGUSR1,), (signal.SIGUSR1, signal.SIGTERM)])
async def test_sigusr1_drains_a_served_broker_and_sigterm_cuts_that_short(
    rig: Rig, numbers: tuple[signal.Signals, ...]
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", "serve", "--port", "0"), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = b""
            while b"listening" not in line:
                line = await process.stderr.readline()
                assert line
            port = int(line.rsplit(b":", 1)[1].split()[0])
            device = await rig.device(port, "device")
            for number in numbers:
                os.kill(process.pid, number)
            assert await device.goodbye() == 0x8B
            await device.close()
            assert await process.wait() == 0
            await process.stderr.read()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
