"""A listener with a mount point, over sockets and over a restart."""

from pathlib import Path

from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from mqttlite.wire.packets import Publish
from tests.integration.conftest import Rig


async def test_a_listener_puts_its_clients_below_its_mount_point(rig: Rig, tmp_path: Path) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0), ListenerOptions(port=0, mount_point="site7/")), data_dir=str(tmp_path)
    )
    async with Broker(config) as broker:
        outside_port, inside_port = (listener.port for listener in broker.listeners)
        inside = await rig.device(inside_port, "inside", expiry=100)
        await inside.subscribe("t/#", 1)
        await inside.disconnect()
        outside = await rig.device(outside_port, "outside")
        outside.publish("site7/t/1", b"x", 1)
        outside.publish("t/1", b"y", 1)
        await outside.disconnect()
    async with Broker(config) as broker:
        inside = await rig.device(broker.listeners[1].port, "inside", clean_start=False, expiry=100)
        message = await inside.expect(Publish)
        assert (message.topic, message.payload) == (b"t/1", b"x")
        await inside.disconnect()
