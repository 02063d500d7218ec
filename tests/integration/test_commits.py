"""True on disk before true on the wire: what a slow and a failing store may hold up, and what it may not."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.changes import Enqueue
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.core.reasons import HoldReason
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of, loop_driver_of
from tests.support.stores import SlowStore

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


@pytest.fixture
def store() -> SlowStore:
    """Commits at once until a test sets `patient`."""
    store = SlowStore()
    store.patient = False
    return store


@pytest.fixture
def rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Its brokers try a commit again at once."""
    start = rig.broker

    async def broker(*arguments: Any, **options: Any) -> Broker:
        started = await start(*arguments, **options)
        loop_driver_of(started).commits.retry_commit_s = 0.001
        return started

    monkeypatch.setattr(rig, "broker", broker)
    return rig


async def durable_client(rig: Rig, port: int, *filters: str) -> Device:
    """A durable client with QoS 2 subscriptions, connected."""
    device = await rig.device(port, "absent", expiry=1_000)
    for topic_filter in filters:
        await device.subscribe(topic_filter, 2)
    return device


async def test_a_connack_of_a_durable_session_waits_for_its_commit(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    store.patient = True
    durable, passing = await rig.dial(broker.port), await rig.dial(broker.port)
    durable.hello("durable", expiry=60)
    await until(lambda: store.busy)
    await passing.connect("passing")  # has nothing to commit, and waits for nobody
    await passing.ping()
    assert durable.waiting() == []
    store.hurry()
    assert (await durable.expect(Connack)).reason_code == 0


@pytest.mark.long
@asyncio_only
async def test_the_deadline_of_a_queue_counts_from_when_its_consumer_gets_the_message(
    rig: Rig, store: SlowStore, jump: Callable[[float], None]
) -> None:
    queue = QueueOptions(name="q", filters=("a",))
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(queue,)), store=store)
    consumer, publisher = await rig.device(broker.port, "consumer"), await rig.device(broker.port, "publisher")
    await consumer.subscribe("$queue/q", 1)
    store.patient = True
    publisher.publish("a", b"x", qos=1)
    await until(lambda: store.busy)
    jump(8)  # a slow disk
    store.hurry()
    first = await consumer.expect(Publish)
    jump(5)
    await consumer.ping()
    assert consumer.waiting() == [], "the deadline is 10 seconds, and half of it is left"
    jump(5.1)
    second = await consumer.expect(Publish)
    assert dict(second.properties.user_properties)["delivery-attempt"] == "2"
    assert first.packet_id != second.packet_id


async def test_a_consumer_that_comes_and_goes_while_the_disk_stands_still_uses_up_no_attempt(
    rig: Rig, store: SlowStore
) -> None:
    queue = QueueOptions(name="q", filters=("a",), max_attempts=2)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(queue,)), store=store)
    publisher = await rig.device(broker.port, "publisher")
    publisher.publish("a", b"x", qos=1)
    await publisher.expect(Ack)
    store.patient = True
    for _ in range(4):
        consumer = await rig.device(broker.port, "consumer")
        await consumer.subscribe("$queue/q", 1)
        await until(lambda: broker.queues.state("q").leased == 1)
        assert consumer.waiting() == [], "the lease is not on disk"
        await consumer.close()
        await until(lambda: broker.queues.state("q").leased == 0)
    store.hurry()
    consumer = await rig.device(broker.port, "consumer")
    await consumer.subscribe("$queue/q", 1)
    packet = await consumer.expect(Publish)
    assert dict(packet.properties.user_properties)["delivery-attempt"] == "1"
    state = broker.queues.state("q")
    assert (state.attempts, state.redeliveries, state.depth) == (1, 0, 1)
    assert not any(state.failures.values())


async def test_pings_are_answered_while_what_is_before_them_waits_for_a_late_commit(rig: Rig, store: SlowStore) -> None:
    queue = QueueOptions(name="q", filters=("a",))
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(queue,)), store=store)
    loop_driver_of(broker).commits.late_commit_s = 0.01
    consumer, publisher = await rig.device(broker.port, "consumer"), await rig.device(broker.port, "publisher")
    await consumer.subscribe("$queue/q", 1)
    store.patient = True
    publisher.publish("a", b"x", qos=1)
    await until(lambda: store.busy)
    for device in (consumer, publisher, consumer):
        await device.ping()
        assert device.waiting() == []
    store.hurry()
    assert (await consumer.expect(Publish)).payload == b"x"
    await publisher.expect(Ack)
    await consumer.ping()


@pytest.mark.parametrize(("qos", "answer"), [(1, 4), (2, 5)])
@pytest.mark.parametrize("version", [V311, V5])
async def test_an_acknowledgement_waits_for_its_commit_and_qos_0_for_nothing(
    rig: Rig, store: SlowStore, qos: int, answer: int, version: int
) -> None:
    broker = await rig.broker(store=store)
    receiver = await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher", version)
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("passing")
    store.patient = True
    packet_id = publisher.publish("kept", b"1", qos)
    await until(lambda: store.busy)
    publisher.publish("passing", b"on")
    assert await watcher.message() == ("passing", b"on")
    assert publisher.waiting() == []
    assert receiver.waiting() == []
    store.hurry()
    ack = await publisher.expect(Ack)
    assert (ack.packet_type, ack.packet_id) == (answer, packet_id)
    assert (await receiver.expect(Publish)).payload == b"1"


async def test_a_suback_waits_for_its_commit(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    receiver = await durable_client(rig, broker.port)
    store.patient = True
    receiver.send(Subscribe(9, (SubscriptionRequest(b"a"),)))
    await until(lambda: store.busy)
    other = await rig.device(broker.port, "other")
    await other.ping()
    assert receiver.waiting() == []
    store.hurry()
    assert (await receiver.expect(Suback)).packet_id == 9


async def test_changes_that_gather_during_a_commit_are_one_commit(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    publishers = [await rig.device(broker.port, f"publisher-{number}") for number in range(5)]
    store.patient = True
    store.attempts.clear()
    publishers[0].publish("kept", b"0", 1)
    await until(lambda: store.busy)
    for publisher in publishers[1:]:
        publisher.publish("kept", b"n", 1)
    pending = loop_driver_of(broker).commits.uncommitted
    await until(lambda: len(pending) == 4)
    store.finish()
    assert (await publishers[0].expect(Ack)).packet_type == 4
    await until(lambda: store.busy)
    assert [len(changes) for changes in store.attempts] == [1, 4]
    assert all(publisher.waiting() == [] for publisher in publishers[1:])
    store.hurry()
    for publisher in publishers[1:]:
        await publisher.expect(Ack)


async def test_steady_traffic_does_not_hold_an_acknowledgement_back(rig: Rig, store: SlowStore) -> None:
    """Each commit lets go what it holds, though another is always about to begin."""
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher", properties=Properties(receive_maximum=1_000))
    store.patient = True
    sent = [publisher.publish("kept", b"", 1)]
    for _ in range(20):
        await until(lambda: store.busy)
        sent.append(publisher.publish("kept", b"", 1))
        pending = loop_driver_of(broker).commits.uncommitted
        await until(lambda: len(pending) > 0)  # noqa: B023
        store.finish()
        assert (await publisher.expect(Ack)).packet_id == sent.pop(0)
    store.hurry()


async def test_frames_that_came_too_late_for_a_commit_wait_for_theirs_in_order(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher")
    await publisher.subscribe("echo")
    other = await rig.device(broker.port, "other")
    store.patient = True
    first = publisher.publish("kept", b"", 1)
    await until(lambda: store.busy)
    publisher.publish("echo", b"waits too: the order of one client's packets stays")
    second = publisher.publish("kept", b"", 1)
    pending = loop_driver_of(broker).commits.uncommitted
    await until(lambda: len(pending) == 1)
    store.finish()
    assert (await publisher.expect(Ack)).packet_id == first
    await until(lambda: store.busy)
    await other.ping()
    assert publisher.waiting() == []
    store.finish()
    assert (await publisher.expect(Publish)).topic == b"echo"
    assert (await publisher.expect(Ack)).packet_id == second
    store.patient = False


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("a bug in a store")])
async def test_a_failed_commit_is_tried_again_with_the_same_changes(
    rig: Rig, store: SlowStore, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    broker = await rig.broker(store=store)
    receiver = await durable_client(rig, broker.port, "kept")
    publisher, watcher = await rig.device(broker.port, "publisher"), await rig.device(broker.port, "watcher")
    await watcher.subscribe("passing")
    store.patient = True
    store.attempts.clear()
    publisher.publish("kept", b"1", 1)
    for _ in range(3):
        await until(lambda: store.busy)
        store.fail(error)
        watcher.publish("passing", b"on")
        assert await watcher.message() == ("passing", b"on")
    publisher.publish("kept", b"2", 1)
    await until(lambda: store.busy)
    assert publisher.waiting() == []
    store.hurry()
    assert [(await publisher.expect(Ack)).packet_id for _ in range(2)] == [1, 2]
    assert [await receiver.message() for _ in range(2)] == [("kept", b"1"), ("kept", b"2")]
    tried = [[type(change) for change in changes] for changes in store.attempts[:4]]
    assert tried == [[Enqueue]] * 4
    assert all(changes == store.attempts[0] for changes in store.attempts[:4])
    assert "commit of 1 changes failed (attempt 1)" in caplog.text
    assert "succeeded at attempt 4" in caplog.text


async def test_a_store_that_raises_at_once_is_tried_again_too(
    rig: Rig, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await rig.broker(store=store)
    receiver = await durable_client(rig, broker.port, "kept")
    good, failures = store.commit, [OSError("not yet"), ValueError("nor now")]

    def commit(changes: list[object]) -> object:
        if failures:
            raise failures.pop()
        return good(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "commit", commit)
    publisher = await rig.device(broker.port, "publisher")
    assert await publisher.published("kept", b"1") == 0
    assert await receiver.message() == ("kept", b"1")
    assert failures == []


async def test_links_may_close_while_they_wait(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    links = loop_driver_of(broker).links
    store.patient = True
    in_time, late, patient = [await rig.device(broker.port, name) for name in ("in-time", "late", "patient")]
    in_time.publish("kept", b"1", 1)
    await until(lambda: store.busy)
    late.publish("kept", b"2", 1)
    patient.publish("kept", b"3", 1)
    await until(lambda: len(loop_driver_of(broker).commits.late) == 2)
    in_time.drop()
    late.drop()
    await until(lambda: len(links) == 2)  # they do not wait for the store
    store.finish()
    await until(lambda: store.busy)
    store.finish()
    assert (await patient.expect(Ack)).packet_type == 4
    store.patient = False
    again = await rig.device(broker.port, "absent", clean_start=False, expiry=1_000)
    assert [await again.message() for _ in range(3)] == [("kept", b"1"), ("kept", b"2"), ("kept", b"3")]


async def test_the_last_word_to_a_client_waits_for_the_commit_with_the_rest(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    publisher, other = await rig.device(broker.port, "publisher"), await rig.device(broker.port, "other")
    store.patient = True
    publisher.publish("kept", b"1", 1)
    await until(lambda: store.busy)
    publisher.send_bytes(b"\x00\x00")  # and now it breaks a rule
    await until(lambda: len(core_of(broker).connections) == 2)
    await other.disconnect()  # a client without anything to wait for is closed at once
    await until(lambda: len(loop_driver_of(broker).links) == 2)
    assert publisher.waiting() == []
    store.finish()
    assert (await publisher.expect(Ack)).packet_id == 1
    assert (await publisher.expect(Disconnect)).reason_code == 0x82
    store.hurry()


async def test_a_takeover_while_the_store_is_slow_loses_nothing(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    first = await durable_client(rig, broker.port, "kept")
    store.patient = True
    await publish_soon(broker, store)
    second = await rig.dial(broker.port)
    second.hello("absent", clean_start=False, expiry=1_000)
    await until(lambda: len(loop_driver_of(broker).commits.late) > 0 or len(loop_driver_of(broker).commits.held) > 1)
    store.hurry()
    assert await first.goodbye() == 0x8E
    assert (await second.expect(Connack)).session_present
    assert await second.message() == ("kept", b"program")


async def publish_soon(broker: Broker, store: SlowStore) -> None:
    task = asyncio.create_task(broker.publish("kept", b"program", qos=1))
    await until(lambda: store.busy)
    assert not task.done()
    task.add_done_callback(lambda done: done.result())


async def test_a_programs_publish_with_many_receivers_waits_for_its_commit(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    for number in range(3):
        device = await rig.device(broker.port, f"absent-{number}", expiry=1_000)
        await device.subscribe("kept", 1)
        await device.disconnect()
    store.patient = True
    core_of(broker).effects.work = ITERATION_WORK  # so that the fan-out needs another iteration
    task = asyncio.create_task(broker.publish("kept", b"program", qos=1))
    await until(lambda: store.busy)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    store.hurry()
    assert await task == 0
    assert sum(isinstance(change, Enqueue) for changes in store.attempts for change in changes) == 3


async def test_a_program_that_publishes_qos_0_does_not_wait_for_the_store(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher")
    store.patient = True
    publisher.publish("kept", b"", 1)
    await until(lambda: store.busy)
    assert await broker.publish("passing", b"") == 0x10
    waiting = asyncio.create_task(broker.publish("kept", b"", qos=1))
    await until(lambda: len(loop_driver_of(broker).commits.uncommitted) == 1)
    store.finish()
    await until(lambda: store.busy)
    assert not waiting.done()
    store.hurry()
    assert await waiting == 0


async def test_a_client_that_waits_for_a_slow_commit_is_not_read(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    loop_driver_of(broker).commits.stall_changes = 10
    receiver = await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher")
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("passing")
    store.patient = True
    publisher.publish("kept", b"0", 1)
    await until(lambda: store.busy)
    for number in range(1, 12):
        publisher.publish("kept", b"%d" % number, 1)
    await until(lambda: loop_driver_of(broker).is_stalled)
    gathered = len(loop_driver_of(broker).commits.uncommitted)
    for number in range(12, 200):
        publisher.publish("kept", b"%d" % number, 1)
    await publisher.writer.drain()
    for _ in range(5):  # time enough to read what was sent, if anybody did
        watcher.publish("passing", b"on")
        assert await watcher.message() == ("passing", b"on")
    assert len(loop_driver_of(broker).commits.uncommitted) == gathered
    store.hurry()
    assert [(await publisher.expect(Ack)).packet_id for _ in range(200)] == list(range(1, 201))
    assert [(await receiver.message())[1] for _ in range(200)] == [b"%d" % number for number in range(200)]


async def test_a_sender_of_retained_qos_0_during_a_slow_commit_is_not_read_and_not_silent(
    rig: Rig, store: SlowStore
) -> None:
    """Nothing waits for such a message, and still it is a change that is to be committed."""
    broker = await rig.broker(store=store)
    loop_driver_of(broker).commits.stall_changes = 10
    publisher = await rig.device(broker.port, "publisher", keep_alive=1)
    other = await rig.device(broker.port, "other")
    store.patient = True
    for number in range(12):
        publisher.publish("kept", b"%d" % number, retain=True)
        await other.ping()
    await until(lambda: loop_driver_of(broker).is_stalled)
    publisher.publish("kept", b"the last that is read", retain=True)
    await until(lambda: any(each.hold_reasons & HoldReason.COMMIT for each in core_of(broker).connections.values()))
    gathered = len(loop_driver_of(broker).commits.uncommitted)
    for number in range(200):
        publisher.publish("kept", b"%d" % number, retain=True)
    await publisher.writer.drain()
    for _ in range(5):
        await other.ping()
    assert len(loop_driver_of(broker).commits.uncommitted) == gathered
    now = asyncio.get_running_loop().time()
    core_of(broker).tick(now + 2)  # it could not be heard for longer than its keep-alive allows
    assert any(each.client_id == "publisher" for each in core_of(broker).connections.values())
    store.hurry()
    await publisher.ping()
    await other.subscribe("kept")
    assert await other.message() == ("kept", b"199")


async def test_a_durable_subscriber_that_waits_keeps_no_more_than_its_outbox_may(rig: Rig, store: SlowStore) -> None:
    broker = await rig.broker(store=store)
    loop_driver_of(broker).commits.stall_bytes = 100_000
    receiver = await durable_client(rig, broker.port, "#")
    publisher = await rig.device(broker.port, "publisher")
    store.patient = True
    receiver.send(Subscribe(9, (SubscriptionRequest(b"more"),)))
    await until(lambda: store.busy)
    limit = broker.config.limits.max_outbox_bytes
    for _ in range(limit // 50_000 * 3):
        publisher.publish("flood", bytes(50_000))
        await publisher.writer.drain()
    await publisher.ping()
    connection = next(each for each in core_of(broker).connections.values() if each.client_id == "absent")
    held = sum(map(len, connection.outbox.chunks)) + connection.outbox._backlog_bytes
    assert held <= limit + 1_000_000
    assert connection.outbox.drops["buffer_full"] > 0
    store.hurry()
    while not isinstance(await receiver.next(), Suback):
        pass


async def test_a_broker_stops_in_time_though_its_store_never_does(
    rig: Rig, store: SlowStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), stop_timeout_s=0.05), store=store)
    await durable_client(rig, broker.port, "kept")
    publisher = await rig.device(broker.port, "publisher")
    store.patient = True
    publisher.publish("kept", b"1", 1)
    await until(lambda: store.busy)
    async with asyncio.timeout(60):
        await broker.stop()
    assert not any(isinstance(packet, Ack) for packet in publisher.waiting())
    assert "were not committed; none of them was acknowledged" in caplog.text
