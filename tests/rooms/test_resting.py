"""Who sends what costs much is read again when the others were, whatever else holds him up."""

import pytest

from mqttlite.net import link
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe, SubscriptionRequest
from tests.rooms.conftest import Rig
from tests.support.device import Device, Gone, until


async def test_others_are_served_between_the_parts_of_a_long_chunk(rig: Rig) -> None:
    broker = await rig.broker()
    flooder, other = await rig.device(broker.port, "flooder"), await rig.device(broker.port, "other")
    subscribe = encode(Subscribe(1, (SubscriptionRequest(b"a/+/b/#"),)), V5)
    flooder.send_bytes(subscribe * 20_000)
    state = next(each for each in broker._core.connections.values() if each.client_id == "flooder")
    await until(lambda: state.resting)
    await other.ping()
    assert state.requests < 20_000, "the flood goes on"
    for _ in range(20_000):
        await flooder.expect(Suback)
    await flooder.ping()
    assert not state.unread


async def test_a_chunk_that_fills_the_buffer_is_the_last_of_its_pass(rig: Rig) -> None:
    broker = await rig.broker()
    reader, writer = await rig.device(broker.port, "reader"), await rig.device(broker.port, "writer")
    await reader.subscribe("t")
    frame = encode(Publish(b"t", bytes(50_000)), V5)
    assert len(frame) * 4 > link.FULL_BYTES
    writer.send_bytes(frame * 40)
    for _ in range(40):
        assert (await reader.message())[0] == "t"
    await writer.ping()


async def test_who_leaves_while_it_rests_leaves_nothing_behind(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    device.send_bytes(encode(Pingreq(), V5) * 50_000)
    state = next(iter(broker._core.connections.values()))
    await until(lambda: state.resting)
    device.drop()
    await until(lambda: not broker._core.connections)
    await until(lambda: not broker._turns.links)
    assert not broker._turns._resting


async def test_all_that_was_sent_before_a_goodbye_is_looked_at(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    device.send_bytes(encode(Pingreq(), V5) * 20_000 + encode(Disconnect(), V5))
    for _ in range(20_000):
        await device.expect(Pingresp)
    with pytest.raises(Gone):
        await device.next()


async def test_a_takeover_ends_one_that_rests(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "same")
    device.send_bytes(encode(Pingreq(), V5) * 50_000)
    state = next(iter(broker._core.connections.values()))
    await until(lambda: state.resting)
    await rig.device(broker.port, "same")
    with pytest.raises(Gone):
        await _farewell(device)
    await until(lambda: len(broker._turns.links) == 1)


async def _farewell(device: Device) -> None:
    while True:
        packet = await device.next()
        assert isinstance(packet, Pingresp) or (isinstance(packet, Disconnect) and packet.reason_code == 0x8E)
