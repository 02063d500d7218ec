"""A subscriber that stops reading costs its publisher and its neighbours nothing, and itself what the policy says."""

import asyncio
from collections.abc import Callable

import pytest

from mqttlite.core.connect.connection import Connection
from mqttlite.core.limits import Limits
from mqttlite.core.memory import FRAME_BYTES, PLACE_BYTES
from mqttlite.net.link import WRITE_BUFFER_BYTES
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Disconnect
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import PATIENCE_S, Device, until
from tests.support.inside import core_of, loop_driver_of

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])

PAYLOAD_BYTES = 16_384
OUTBOX_BYTES = 200_000


def connection(broker: Broker, client_id: str) -> Connection:
    return next(each for each in core_of(broker).connections.values() if each.client_id == client_id)


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(PAYLOAD_BYTES - 4)


def numbers(messages: list[bytes]) -> list[int]:
    return [int.from_bytes(message[:4], "big") for message in messages]


async def frozen(rig: Rig, broker: Broker, qos: int = 0, version: int = V5, **options: object) -> Device:
    """A subscriber of `flood` that reads nothing any more."""
    device = await rig.device(broker.port, "frozen", version, small_buffers=True, **options)
    await device.subscribe("flood", qos)
    device.freeze()
    return device


async def flood_until(publisher: Device, done: Callable[[], bool], first: int = 0) -> int:
    """Publish numbered messages at QoS 0 until something is so; how many."""
    sent = first
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            publisher.publish("flood", payload(sent))
            sent += 1
            await publisher.ping()
    return sent


@pytest.mark.long
@pytest.mark.parametrize(("policy", "version"), [("drop_newest", V5), ("drop_oldest", V5), ("drop_newest", V311)])
async def test_a_frozen_subscriber_keeps_what_the_policy_says_and_its_neighbour_everything(
    rig: Rig, policy: str, version: int
) -> None:
    broker = await rig.broker(limits=Limits(on_overflow=policy, max_outbox_bytes=OUTBOX_BYTES))
    subscriber = await frozen(rig, broker, version=version)
    neighbour = await rig.device(broker.port, "neighbour")
    await neighbour.subscribe("flood")
    publisher = await rig.device(broker.port, "publisher", version)
    state = connection(broker, "frozen")
    sent = await flood_until(publisher, lambda: state.outbox.drops.get("buffer_full", 0) >= 20)
    assert numbers([(await neighbour.message())[1] for _ in range(sent)]) == list(range(sent))
    assert state.outbox.backlog_bytes <= OUTBOX_BYTES
    assert state.outbox.high_water_bytes <= OUTBOX_BYTES
    assert loop_driver_of(broker).links[state.number]._transport.get_write_buffer_size() < 2 * WRITE_BUFFER_BYTES
    assert set(state.outbox.drops) == {"buffer_full"}
    dropped = state.outbox.drops["buffer_full"]
    link_bytes = state.outbox.held_bytes - state.outbox.waiting_bytes

    subscriber.thaw()
    got = numbers([(await subscriber.message())[1] for _ in range(sent - dropped)])
    if policy == "drop_newest":
        assert got == list(range(sent - dropped))
    else:
        kept = (OUTBOX_BYTES - link_bytes) // (PLACE_BYTES + FRAME_BYTES + PAYLOAD_BYTES + 20)
        assert got[-kept:] == list(range(sent - kept, sent))
        assert got == sorted(got)
    assert state.backpressure_s > 0
    assert state.backpressure_count >= 1
    publisher.publish("flood", payload(sent))
    assert numbers([(await subscriber.message())[1]]) == [sent]
    await subscriber.ping()
    assert subscriber.waiting() == []


@pytest.mark.long
async def test_disconnect_is_a_policy_too(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(on_overflow="disconnect", max_outbox_bytes=OUTBOX_BYTES))
    subscriber = await frozen(rig, broker)
    publisher = await rig.device(broker.port, "publisher")
    state = connection(broker, "frozen")
    await flood_until(publisher, lambda: state.number not in core_of(broker).connections)
    assert (str(state.close_reason), state.drops["buffer_full"] > 0) == ("buffer_full", True)
    subscriber.thaw()
    assert await subscriber.goodbye() == 0x97


@asyncio_only
async def test_a_frozen_client_that_is_cut_off_is_gone_when_its_time_is_over(
    rig: Rig, jump: Callable[[float], None]
) -> None:
    broker = await rig.broker(limits=Limits(on_overflow="disconnect", max_outbox_bytes=OUTBOX_BYTES))
    await frozen(rig, broker)
    publisher = await rig.device(broker.port, "publisher")
    state = connection(broker, "frozen")
    await flood_until(publisher, lambda: state.number not in core_of(broker).connections)
    (listener,) = broker.listeners
    assert len(listener._links) == 2
    jump(5.1)
    await until(lambda: len(listener._links) == 1)


@pytest.mark.long
async def test_qos_1_in_window_and_queue_is_not_lost(rig: Rig) -> None:
    limits = Limits(max_outbox_bytes=OUTBOX_BYTES, max_inflight=10, max_queued_messages=100)
    broker = await rig.broker(limits=limits)
    subscriber = await frozen(rig, broker, qos=1, properties=Properties(receive_maximum=10))
    publisher = await rig.device(broker.port, "publisher")
    codes = [await publisher.published("flood", payload(number)) for number in range(150)]
    assert codes == [0] * 110 + [0x97] * 40  # told, not silent
    state = connection(broker, "frozen")
    assert state.session is not None
    assert state.session.drops == {"queue_full": 40}
    subscriber.thaw()
    assert numbers([(await subscriber.message())[1] for _ in range(110)]) == list(range(110))
    assert await publisher.published("flood", payload(150)) == 0
    assert numbers([(await subscriber.message())[1]]) == [150]


@pytest.mark.slow
async def test_a_client_that_asks_and_never_reads_the_answers_is_cut_off(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_outbox_bytes=20_000))
    neighbour = await rig.device(broker.port, "neighbour")
    greedy = await rig.device(broker.port, "greedy", small_buffers=True)
    greedy.freeze()
    state = connection(broker, "greedy")
    async with asyncio.timeout(60):
        while state.number in core_of(broker).connections:
            greedy.send_bytes(b"\xc0\x00" * 100_000)
            await neighbour.ping()
    assert str(state.close_reason) == "buffer_full"


@pytest.mark.long
@pytest.mark.parametrize("ending", ["lost", "taken over"])
async def test_a_frozen_client_that_ends_disturbs_no_other(rig: Rig, ending: str) -> None:
    """What its outbox kept is counted, and the link that is free again writes for nobody."""
    broker = await rig.broker(limits=Limits(max_outbox_bytes=OUTBOX_BYTES))
    subscriber = await frozen(rig, broker)
    neighbour = await rig.device(broker.port, "neighbour")
    await neighbour.subscribe("flood")
    publisher = await rig.device(broker.port, "publisher")
    state = connection(broker, "frozen")
    sent = await flood_until(publisher, lambda: state.outbox.blocked and state.outbox._backlog_messages >= 5)
    kept = state.outbox._backlog_messages
    if ending == "lost":
        subscriber.drop()
        await until(lambda: state.number not in core_of(broker).connections)
    else:
        await rig.device(broker.port, "frozen")
        subscriber.thaw()
        seen = [(await subscriber.message())[1] for _ in range(sent - kept)]
        assert numbers(seen) == list(range(sent - kept))
        assert await subscriber.goodbye() == 0x8E
    assert state.drops == {"buffer_full": kept}
    publisher.publish("flood", payload(sent))
    assert numbers([(await neighbour.message())[1] for _ in range(sent + 1)]) == list(range(sent + 1))


@pytest.mark.long
async def test_a_stop_sends_what_a_slow_client_was_owed_before_the_last_word(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_outbox_bytes=OUTBOX_BYTES))
    subscriber = await frozen(rig, broker)
    publisher = await rig.device(broker.port, "publisher")
    state = connection(broker, "frozen")
    sent = await flood_until(publisher, lambda: state.outbox._backlog_messages >= 5)
    stop = asyncio.create_task(broker.stop())
    await until(lambda: not core_of(broker).connections)
    subscriber.thaw()
    assert numbers([(await subscriber.message())[1] for _ in range(sent)]) == list(range(sent))
    assert (await subscriber.expect(Disconnect)).reason_code == 0x8B
    await subscriber.close()
    await publisher.close()
    await stop
