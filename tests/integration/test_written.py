"""A program that traces messages is told when they are handed to a socket, and of no others."""

import pytest

from mqttlite.server import Broker
from mqttlite.wire.packets import Ack, Publish
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of
from tests.support.recorder import Recorder
from tests.support.stores import SlowStore


def watch(broker: Broker) -> tuple[Recorder, list[int]]:
    """Follows what is published to `f`, and notes the numbers of the connections that something is written to."""
    recorder, written = Recorder(topics=(b"f",)), list[int]()
    core_of(broker).watch(recorder)
    loop_driver_of(broker).writer.on_written = written.append
    return recorder, written


def number_of(broker: Broker, client_id: str) -> int:
    (number,) = [each.number for each in core_of(broker).connections.values() if each.client_id == client_id]
    return number


@pytest.mark.parametrize("qos", [0, 1])
async def test_once_for_each_outbox_with_such_messages_in_it(rig: Rig, qos: int) -> None:
    broker = await rig.broker()
    recorder, written = watch(broker)
    reader, writer = await rig.device(broker.port, "reader"), await rig.device(broker.port, "writer")
    await reader.subscribe("#", qos)
    writer.publish("other", b"1")
    await reader.message()
    assert written == []
    for _ in range(2):
        writer.publish("f", b"2", qos)
        await reader.message()
    writer.publish("other", b"3")
    await reader.message()
    assert written == [number_of(broker, "reader")] * 2
    assert len([each for each in recorder.told if each[0] == "sent"]) == 2


async def test_frames_that_wait_for_a_commit_are_not_written(rig: Rig) -> None:
    store = SlowStore()
    store.patient = False
    broker = await rig.broker(store=store)
    recorder, written = watch(broker)
    reader = await rig.device(broker.port, "reader", expiry=1_000)
    await reader.subscribe("#", 1)
    writer = await rig.device(broker.port, "writer")
    store.patient = True
    writer.publish("f", b"1", 1)
    await until(lambda: store.busy)
    assert [each[0] for each in recorder.told if each[0] in ("received", "sent")] == ["received", "sent"]
    assert written == []
    store.hurry()
    assert (await reader.expect(Publish)).payload == b"1"
    await writer.expect(Ack)
    assert written == [number_of(broker, "reader")]


async def test_a_last_word_is_written_with_what_is_before_it(rig: Rig) -> None:
    store = SlowStore()
    store.patient = False
    broker = await rig.broker(store=store)
    _recorder, written = watch(broker)
    reader = await rig.device(broker.port, "reader")
    await reader.subscribe("f")
    number = number_of(broker, "reader")
    core = core_of(broker)
    connection = core.connections[number]
    core.block(connection, 0.0)
    core.publish(b"f", b"1", 0, False, 0.0)
    connection.outbox.unblock()
    connection.outbox.block()  # blocked again before anything was written
    core.send_away(connection, "", 0.0)
    loop_driver_of(broker).run()
    assert (await reader.expect(Publish)).payload == b"1"
    assert written == [number]
    assert not connection.outbox.traced


async def test_no_question_is_needed(rig: Rig) -> None:
    broker = await rig.broker()
    core_of(broker).watch(Recorder(topics=(b"f",)))
    reader = await rig.device(broker.port, "reader")
    await reader.subscribe("f")
    reader.publish("f", b"1")
    assert await reader.message() == ("f", b"1")
    assert not core_of(broker).connections[number_of(broker, "reader")].outbox.traced
