"""The id of a durable message is given once: its publisher, the queue and a broker that starts again say the same."""

from pathlib import Path

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.operations.admin import QueuedMessage
from mqttlite.server import Broker
from mqttlite.wire.packets import Ack
from tests.integration.conftest import Rig

LISTENER = ListenerOptions(port=0, capabilities=Capabilities(tell_delivery=True))


async def test_a_message_has_one_id_over_a_restart(rig: Rig, tmp_path: Path) -> None:
    config = Config(listeners=(LISTENER,), data_dir=str(tmp_path))
    async with Broker(config) as broker:
        away = await rig.device(broker.port, "away", expiry=100)
        await away.subscribe("t", 1)
        await away.disconnect()
        publisher = await rig.device(broker.port, "p")
        publisher.publish("t", b"x", 1)
        acknowledgement = await publisher.expect(Ack)
        told = dict(acknowledgement.properties.user_properties)["message-id"]
        before = await first_waiting(broker)
        assert (before.message_id, before.sequence) == (told, 0)
        await publisher.disconnect()
    async with Broker(config) as broker:
        assert await first_waiting(broker) == before
        publisher = await rig.device(broker.port, "p")
        publisher.publish("t", b"y", 1)
        acknowledgement = await publisher.expect(Ack)
        later = dict(acknowledgement.properties.user_properties)["message-id"]
        assert int(later) > int(told)
        await publisher.disconnect()


async def first_waiting(broker: Broker) -> QueuedMessage:
    peek = await broker.admin.peek_queue("away", 1)
    assert peek is not None
    return peek.messages[0]
