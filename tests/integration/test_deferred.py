"""Who sends what costs much is read again when the others were, whatever else holds him up."""

import asyncio
import itertools
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.reasons import HoldReason
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import (
    Ack,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from tests.integration.conftest import Rig
from tests.support.device import Device, Gone, until
from tests.support.inside import core_of, loop_driver_of
from tests.support.recorder import Everything
from tests.support.stores import SlowStore
from tests.support.web import dial as dial_web


@pytest.mark.slow
async def test_others_are_served_between_the_parts_of_a_long_chunk(rig: Rig) -> None:
    broker = await rig.broker()
    flooder, other = await rig.device(broker.port, "flooder"), await rig.device(broker.port, "other")
    subscribe = encode(Subscribe(1, (SubscriptionRequest(b"a/+/b/#"),)), V5)
    flooder.send_bytes(subscribe * 20_000)
    state = next(each for each in core_of(broker).connections.values() if each.client_id == "flooder")
    await until(lambda: state.deferred)
    await other.ping()
    assert state.requests < 20_000, "the flood goes on"
    for _ in range(20_000):
        await flooder.expect(Suback)
    await flooder.ping()
    assert not state.hold_reasons


@pytest.mark.long
async def test_a_client_that_leaves_while_it_rests_leaves_nothing_behind(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "device")
    device.send_bytes(encode(Pingreq(), V5) * 50_000)
    state = next(iter(core_of(broker).connections.values()))
    await until(lambda: state.deferred)
    device.drop()
    await until(lambda: not core_of(broker).connections)
    await until(lambda: not loop_driver_of(broker).links)
    assert not loop_driver_of(broker)._deferred


@pytest.mark.slow
@pytest.mark.parametrize("messages", [900, 12_000])
@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
async def test_all_that_was_sent_before_a_goodbye_is_looked_at_though_the_client_is_gone(
    rig: Rig, certs: Path, kind: str, messages: int
) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key")) if kind in ("tls", "wss") else None
    door = ListenerOptions(port=0, tls=tls, websocket=kind in ("ws", "wss"))
    broker = await rig.broker(Config(listeners=(door, ListenerOptions(port=0, name="plain"))))
    watcher = await rig.device(broker.listeners[1].port, "watcher")
    await watcher.subscribe("kept")
    await watcher.subscribe("will")
    context = client_context(str(certs / "ca.crt"), None, None) if tls is not None else None
    if kind in ("ws", "wss"):
        device = await dial_web(broker.port, V5, tls=context)
    else:
        device = await Device.dial(broker.port, V5, tls=context)
    await device.connect("device", will=Will(b"will", b"gone"))
    retained_replay = b"".join(
        [encode(Publish(b"kept", b"x", 1, True, packet_id=at + 1), V5) for at in range(messages)]
    )
    device.send_bytes(retained_replay + encode(Disconnect(), V5))
    await device.close()
    for _ in range(messages):
        assert (await watcher.message())[0] == "kept"
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    await watcher.ping()
    assert watcher.waiting() == [], "it said goodbye: there is no will"


@pytest.mark.long
async def test_one_that_rests_while_a_commit_takes_too_long_goes_on_afterwards(rig: Rig) -> None:
    store = SlowStore()
    store.patient = False
    broker = await rig.broker(store=store)
    loop_driver_of(broker).commits.stall_changes = 10
    device, other = await rig.device(broker.port, "device"), await rig.device(broker.port, "other")
    store.patient = True
    device.send_bytes(encode(Publish(b"kept", b"x", 1, True, packet_id=1), V5) * 10_000)
    connections = core_of(broker).connections
    await until(lambda: loop_driver_of(broker).is_stalled)
    await until(lambda: any(each.deferred and each.hold_reasons & HoldReason.COMMIT for each in connections.values()))
    await other.ping()
    store.hurry()
    for _ in range(10_000):
        await device.expect(Ack)
    await device.ping()


class Faulty(Everything):
    """A tracer that raises, which the port forbids."""

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        raise RuntimeError("as a test wants it")


@pytest.mark.long
async def test_a_fault_with_one_that_rests_is_no_ones_but_its(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await rig.broker()
    first, second = await rig.device(broker.port, "first"), await rig.device(broker.port, "second")
    core_of(broker).watch(Faulty())
    first.send_bytes(encode(Pingreq(), V5) * 20_000 + encode(Publish(b"for/nobody", b""), V5))
    second.send_bytes(encode(Pingreq(), V5) * 20_000)
    for _ in range(20_000):
        await second.expect(Pingresp)
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    assert "could not be handled" in caplog.text
    core_of(broker).watch(None)


@pytest.mark.long
async def test_a_takeover_ends_one_that_rests(rig: Rig) -> None:
    broker = await rig.broker()
    device = await rig.device(broker.port, "same")
    device.send_bytes(encode(Pingreq(), V5) * 50_000)
    state = next(iter(core_of(broker).connections.values()))
    await until(lambda: state.deferred)
    await rig.device(broker.port, "same")
    with pytest.raises(Gone):
        await _disconnect_frame(device)
    await until(lambda: len(loop_driver_of(broker).links) == 1)


async def _disconnect_frame(device: Device) -> None:
    while True:
        packet = await device.next()
        assert isinstance(packet, Pingresp) or (isinstance(packet, Disconnect) and packet.reason_code == 0x8E)


@pytest.mark.long
async def test_a_message_whose_receivers_alone_take_an_iteration_to_find_goes_on_at_once(rig: Rig) -> None:
    broker = await rig.broker()
    reader, publisher = await rig.device(broker.port, "reader"), await rig.device(broker.port, "publisher")
    levels = [b"abcdefghijklm"[at : at + 1] for at in range(13)]
    filters = [b"/".join(chosen) for chosen in itertools.product(*[(level, b"+") for level in levels])]
    reader.send(Subscribe(1, tuple([SubscriptionRequest(each) for each in filters])))
    await reader.expect(Suback)
    publisher.send(Publish(b"/".join(levels), b"x", 1, packet_id=1))
    async with asyncio.timeout(60):
        await publisher.expect(Ack)
        assert (await reader.expect(Publish)).payload == b"x"
