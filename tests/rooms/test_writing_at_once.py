"""What waits is written when the pass of the loop is over, or as soon as it is much."""

import pytest

from mqttlite.net.link import LONG_BYTES, PASS_BYTES
from mqttlite.server import Broker
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.rooms.conftest import Rig


@pytest.mark.parametrize(
    ("receivers", "size", "at_once"),
    [
        (1, LONG_BYTES // 2, False),
        (1, LONG_BYTES + 1, True),
        (3, LONG_BYTES - 1_000, False),
        (3, LONG_BYTES + 1, True),
        (12, PASS_BYTES // 12 - 1_000, False),
        (12, PASS_BYTES // 12, True),
    ],
)
async def test_it_is_written_at_once_when_it_is_much(rig: Rig, receivers: int, size: int, at_once: bool) -> None:
    broker = Broker(port=0)
    await rig.enter(broker)
    readers = [await rig.device(broker.port, f"reader{number}") for number in range(receivers)]
    for reader in readers:
        await reader.subscribe("t")
    await rig.device(broker.port, "sender")
    of = {connection.client_id: connection for connection in broker._turns.broker.connections.values()}
    outboxes = [of[f"reader{number}"].outbox for number in range(receivers)]
    broker._turns.links[of["sender"].number].data_received(encode(Publish(b"t", b"x" * size), V5))
    assert [outbox.dirty for outbox in outboxes] == [not at_once] * receivers
    for reader in readers:
        assert await reader.message() == ("t", b"x" * size)
