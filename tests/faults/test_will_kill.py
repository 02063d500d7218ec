"""A broker that is killed with clients connected: after its restart the wills of those that stay away are published."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from mqttlite.core.limits import WILL_GRACE_S
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish, Will
from tests.support.device import Device
from tests.support.killed import BROKEN, free_port, running

CONFIG = """
[[listeners]]
port = {port}
"""
CLIENTS = 20


async def dial(port: int, client_id: str, **options: object) -> Device:
    """A connected client, as soon as the broker is there."""
    while True:
        with contextlib.suppress(*BROKEN):
            device = await Device.dial(port)
            await device.connect(client_id, **options)
            return device
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_wills_of_clients_that_stay_away_are_published_once(tmp_path: Path) -> None:
    port = free_port()
    config = CONFIG.format(port=port)
    devices: list[Device] = []
    found: list[str] = []

    async def watch() -> None:
        device = await dial(port, "watcher", clean_start=False, expiry=600)
        devices.append(device)
        await device.subscribe("wills/#", 1)
        while True:
            message = await device.expect(Publish)
            device.send(Ack(PUBACK, message.packet_id))
            found.append(message.payload.decode())

    async with running(tmp_path, config):
        watcher = asyncio.create_task(watch())
        for number in range(CLIENTS):
            will = Will(b"wills/%d" % number, b"%d" % number, 1, False)
            devices.append(await dial(port, f"c-{number}", expiry=600 * (number % 2), will=will))
        await asyncio.sleep(0.5)  # for the commit, for which CONNACK does not wait
    assert found == []
    for _ in range(2):
        watcher.cancel()
        async with running(tmp_path, config):
            watcher = asyncio.create_task(watch())
            for number in range(2):
                devices.append(await dial(port, f"c-{number}"))
            await asyncio.sleep(WILL_GRACE_S + 1)
    watcher.cancel()
    for device in devices:
        device.drop()
        await device.close()
    assert sorted(found, key=int) == [str(number) for number in range(2, CLIENTS)]
