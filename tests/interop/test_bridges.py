"""A bridge between our broker and Mosquitto, made by either."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client, Message
from mqttlite.config.file import parse_config
from mqttlite.server import Broker
from tests.interop.support import mosquitto_broker
from tests.support.device import until

pytestmark = pytest.mark.slow

QUIET_S = 0.5


async def join(ours: int, theirs: int) -> None:
    """Publish on both sides, and see each message once on both, however it was published."""
    seen: dict[str, list[Message]] = {"ours": [], "theirs": []}

    async def read(client: Client, found: list[Message]) -> None:
        async for message in client.messages:
            found.append(message)

    async with Client("127.0.0.1", ours) as here, Client("127.0.0.1", theirs) as there:
        readers = []
        for client, found in ((here, seen["ours"]), (there, seen["theirs"])):
            await client.subscribe("#", 2, retain_as_published=True, retain_handling=2)
            readers.append(asyncio.create_task(read(client, found)))

        async def ask() -> None:
            """Until the bridge carries messages in both directions."""
            while True:
                await here.publish("probe", "ours")
                await there.publish("probe", "theirs")
                await asyncio.sleep(0.1)
                if all({"ours", "theirs"} <= {each.payload.decode() for each in found} for found in seen.values()):
                    return

        async with asyncio.timeout(30):
            await ask()
        await asyncio.sleep(QUIET_S)
        for found in seen.values():
            found.clear()
        wanted = []
        for name, client in (("ours", here), ("theirs", there)):
            for qos in (0, 1, 2):
                await client.publish(f"t/{name}/{qos}", f"{name} {qos}", qos=qos, retain=qos == 1)
                wanted.append(f"{name} {qos}")
        await until(lambda: all(len(found) >= len(wanted) for found in seen.values()))
        await asyncio.sleep(QUIET_S)
        for found in seen.values():
            assert sorted(each.payload.decode() for each in found) == sorted(wanted)
            assert {each.payload.decode() for each in found if each.retain} == {"ours 1", "theirs 1"}
            assert all(each.qos == int(each.payload[-1:]) for each in found)
        for each in readers:
            each.cancel()


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
async def test_our_bridge_to_mosquitto_is_quiet(tmp_path: Path, version: str, unused_tcp_port: int) -> None:
    bridge: dict[str, Any] = {
        "name": "m",
        "addresses": [f"127.0.0.1:{unused_tcp_port}"],
        "version": version,
        "topics": [{"pattern": "#", "direction": "both", "qos": 2}],
    }
    config = parse_config({"listeners": [{"port": 0}], "bridges": [bridge], "data_dir": str(tmp_path / "data")})
    with mosquitto_broker(tmp_path, unused_tcp_port) as theirs:
        async with Broker(config) as broker:
            await join(broker.port, theirs)


@pytest.mark.parametrize("version", ["mqttv50", "mqttv311"])
async def test_a_bridge_of_mosquitto_to_us_is_quiet(tmp_path: Path, version: str, unused_tcp_port: int) -> None:
    async with Broker(parse_config({"listeners": [{"port": 0}]})) as broker:
        lines = [
            "connection ours",
            f"address 127.0.0.1:{broker.port}",
            f"bridge_protocol_version {version}",
            "cleansession false",
            "topic # both 2",
        ]
        with mosquitto_broker(tmp_path, unused_tcp_port, *lines) as theirs:
            await join(broker.port, theirs)
