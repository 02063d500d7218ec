"""What waits is written when the pass of the loop is over, or as soon as it is much; and in order."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.net.link import ITERATION_BYTES, LONG_BYTES, WRITE_BUFFER_BYTES, Link
from mqttlite.server import Broker
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of, loop_driver_of


def link_of(broker: Broker, device: Device) -> Link:
    (link,) = [each for each in loop_driver_of(broker).links.values() if each.connection.client_id == device.client_id]
    return link


@pytest.mark.parametrize(
    ("receivers", "size", "at_once"),
    [
        (1, LONG_BYTES // 2, False),
        (1, LONG_BYTES + 1, True),
        (3, LONG_BYTES - 1_000, False),
        (3, LONG_BYTES + 1, True),
        (12, ITERATION_BYTES // 12 - 1_000, False),
        (12, ITERATION_BYTES // 12, True),
    ],
)
async def test_it_is_written_at_once_when_it_is_much(rig: Rig, receivers: int, size: int, at_once: bool) -> None:
    broker = Broker(port=0)
    await rig.enter(broker)
    readers = [await rig.device(broker.port, f"reader{number}") for number in range(receivers)]
    for reader in readers:
        await reader.subscribe("t")
    sender = await rig.device(broker.port, "sender")
    outboxes = [link_of(broker, reader).connection.outbox for reader in readers]
    link_of(broker, sender).data_received(encode(Publish(b"t", b"x" * size), V5))
    assert [outbox.dirty for outbox in outboxes] == [not at_once] * receivers
    for reader in readers:
        assert await reader.message() == ("t", b"x" * size)


@pytest.mark.slow
async def test_bytes_that_a_full_socket_does_not_take_follow_in_order(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_packet_bytes=64 << 20, max_outbox_bytes=64 << 20))
    reader = await rig.device(broker.port, "reader", small_buffers=True)
    await reader.subscribe("t")
    reader.freeze()
    link = link_of(broker, reader)
    frames = [encode(Publish(b"t", b"%d" % number * 100_000), V5) for number in range(10, 99)]
    for frame in frames:
        link.write(frame)
    assert link.unsent_bytes > WRITE_BUFFER_BYTES
    reader.thaw()
    for number in range(10, 99):
        assert (await reader.message())[1] == b"%d" % number * 100_000
    await until(lambda: link.is_drained)
    link.write(frames[0])
    assert (await reader.message())[1] == b"10" * 100_000


async def test_a_socket_that_was_reset_ends_its_connection_and_no_other(rig: Rig) -> None:
    broker = await rig.broker()
    lost, stays = await rig.device(broker.port, "lost"), await rig.device(broker.port, "stays")
    link = link_of(broker, lost)

    def is_gone_after_a_write() -> bool:
        link.write(b"\xd0\0")
        return link.gone

    lost.drop()
    await until(is_gone_after_a_write)
    link.write(b"\xd0\0")
    await stays.ping()
    assert [each.client_id for each in core_of(broker).connections.values()] == ["stays"]
