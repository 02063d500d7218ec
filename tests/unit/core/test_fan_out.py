"""A message for very many receivers reaches them over several iterations of the loop, and nothing overtakes it."""

import pytest

from mqttlite.core.changes import Enqueue, SaveReceived
from mqttlite.core.limits import CROWD, ITERATION_BYTES, ITERATION_WORK
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Disconnect, Publish, Subscribe, SubscriptionRequest
from tests.support.core_driver import Client, World

RECEIVERS = 50


def crowd(world: World, qos: int, identifier: int = 0) -> list[Client]:
    clients = [world.connect(f"reader-{number}") for number in range(RECEIVERS)]
    for client in clients:
        client.subscribe("t", qos=qos, identifier=identifier)
    return clients


def feed(writer: Client, *packets: Publish | Subscribe) -> None:
    """Hand packets to the broker in an iteration of the loop whose budget is nearly used up."""
    broker = writer.world.broker
    broker.effects.work = ITERATION_WORK - 40
    broker.feed(writer.connection, b"".join([encode(packet, writer.version) for packet in packets]), writer.world.now)


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_acknowledgement_waits_for_the_last_receiver(qos: int, version: int) -> None:
    world = World()
    readers = crowd(world, qos)
    writer = world.connect("writer", version)
    feed(writer, Publish(b"t", b"x", qos, packet_id=1))
    assert len(world.broker.jobs) == 1
    assert not writer.connection.outbox.chunks
    world.settle()
    assert {packet.packet_id for packet in writer.received() if isinstance(packet, Ack)} == {1}
    assert [reader.payloads() for reader in readers] == [["x"]] * RECEIVERS


@pytest.mark.parametrize("qos", [0, 1])
def test_the_next_messages_of_the_publisher_do_not_overtake(qos: int) -> None:
    world = World()
    readers = crowd(world, qos, identifier=7)
    writer = world.connect("writer")
    messages = [Publish(b"t", b"%d" % number, qos, packet_id=number if qos else 0) for number in (1, 2, 3)]
    feed(writer, messages[0])
    assert len(world.broker.jobs) == 1
    for message in messages[1:]:
        world.broker.feed(writer.connection, encode(message, V5), world.now)
    world.settle()
    assert [reader.payloads() for reader in readers] == [["1", "2", "3"]] * RECEIVERS


def test_a_message_with_properties_does_not_overtake_either() -> None:
    world = World()
    readers = crowd(world, 0)
    writer = world.connect("writer")
    feed(writer, Publish(b"t", b"1", retain=True))
    assert len(world.broker.jobs) == 1
    world.broker.feed(writer.connection, encode(Publish(b"t", b"2"), V5), world.now)
    world.settle()
    assert [reader.payloads() for reader in readers] == [["1", "2"]] * RECEIVERS


def test_other_clients_go_on_meanwhile() -> None:
    world = World()
    crowd(world, 1)
    writer, other = world.connect("writer"), world.connect("other")
    feed(writer, Publish(b"t", b"x", 1, packet_id=1))
    world.broker.effects.work = 0
    world.broker.feed(other.connection, encode(Publish(b"nobody", b"", 1, packet_id=5), V5), world.now)
    assert len(world.broker.jobs) == 1
    assert other.connection.outbox.chunks == [encode(Ack(PUBACK, 5, 0x10), V5)]


def test_every_receiver_gets_the_message_of_a_publisher_that_is_gone() -> None:
    world = World()
    readers = crowd(world, 1)
    writer = world.connect("writer", expiry=100)
    feed(writer, Publish(b"t", b"x", 2, packet_id=1))
    writer.lose()
    assert [reader.payloads() for reader in readers] == [["x"]] * RECEIVERS
    again = world.connect("writer", expiry=100, clean_start=False)
    again.publish("t", "x", 2, packet_id=1, dup=True)
    assert [reader.payloads() for reader in readers] == [[]] * RECEIVERS, "the identifier was taken"


def test_a_receiver_whose_session_ends_meanwhile_gets_nothing() -> None:
    world = World()
    readers = crowd(world, 1)
    writer = world.connect("writer")
    feed(writer, Publish(b"t", b"x", 1, packet_id=1))
    world.broker.close(readers[-1].connection, world.now)
    world.settle()
    assert [reader.payloads() for reader in readers[:-1]] == [["x"]] * (RECEIVERS - 1)
    assert len(world.broker.jobs) == 0


def test_a_program_s_message_is_done_when_all_have_it() -> None:
    world = World()
    readers = crowd(world, 1)
    world.broker.effects.work = ITERATION_WORK - 40
    fan_out = world.broker.publish(b"t", b"x", 1, False, world.now)
    told: list[int] = []
    fan_out.on_done = lambda: told.append(fan_out.tally.sent)
    assert (fan_out.done, told) == (False, [])
    world.settle()
    assert (fan_out.done, told) == (True, [RECEIVERS])
    assert [reader.payloads() for reader in readers] == [["x"]] * RECEIVERS


def test_a_subscription_meanwhile_is_for_the_next_message() -> None:
    world = World()
    crowd(world, 1)
    writer, late = world.connect("writer"), world.connect("late")
    feed(writer, Publish(b"t", b"1", 1, packet_id=1))
    late.send(Subscribe(1, (SubscriptionRequest(b"t", 1),)))
    writer.publish("t", "2", 1, packet_id=2)
    assert late.payloads() == ["2"]


@pytest.mark.parametrize("qos", [0, 1])
def test_sinks_have_their_message_over_several_iterations_too(qos: int) -> None:
    world = World()
    groups = [world.connect(f"member-{number}") for number in range(RECEIVERS)]
    for number, member in enumerate(groups):
        member.subscribe(f"$share/{number}/t", qos=qos)
    writer = world.connect("writer")
    feed(writer, Publish(b"t", b"x", qos, packet_id=qos))
    assert len(world.broker.jobs) == 1
    world.settle()
    assert [member.payloads() for member in groups] == [["x"]] * RECEIVERS


def test_a_job_that_uses_up_the_budget_leaves_the_next_to_another_iteration() -> None:
    world = World()
    crowd(world, 1)
    writers = [world.connect(f"writer-{number}") for number in range(2)]
    for writer in writers:
        feed(writer, Publish(b"t", b"x", 1, packet_id=1))
    world.broker.effects.work = ITERATION_WORK - 40
    world.broker.jobs.run()
    assert world.broker.effects.work >= ITERATION_WORK
    assert len(world.broker.jobs) == 2
    world.settle()
    assert [len(writer.received()) for writer in writers] == [1, 1]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publisher_that_is_disconnected_meanwhile_gets_no_acknowledgement(qos: int) -> None:
    world = World()
    readers = crowd(world, qos, identifier=7)
    writer = world.connect("writer")
    feed(writer, Publish(b"t", b"x", qos, packet_id=qos))
    assert world.broker.kick("writer", world.now)
    world.settle()
    assert [type(packet) for packet in writer.received()] == [Disconnect]
    assert [reader.payloads() for reader in readers] == [["x"]] * RECEIVERS


@pytest.mark.parametrize("filter_", ["t", "$share/g{}/t"])
@pytest.mark.parametrize(("receivers", "waits"), [(CROWD, False), (CROWD + 1, True)])
@pytest.mark.parametrize("qos", [0, 1])
def test_bytes_for_others_hold_back_a_message_for_many_but_not_for_few(
    qos: int, receivers: int, waits: bool, filter_: str
) -> None:
    world = World()
    readers = [world.connect(f"reader-{number}") for number in range(receivers)]
    for number, reader in enumerate(readers):
        reader.subscribe(filter_.format(number), qos=qos, identifier=1)
    writer = world.connect("writer")
    world.broker.effects.pending_bytes = ITERATION_BYTES
    packet = encode(Publish(b"t", b"x", qos, packet_id=qos), V5)
    world.broker.feed(writer.connection, packet, world.now)
    assert len(world.broker.jobs) == waits
    world.broker.effects.pending_bytes = 0
    world.settle()
    assert [reader.payloads() for reader in readers] == [["x"]] * receivers


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize(("receivers", "passes"), [(CROWD, False), (CROWD + 1, True)])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_for_one_is_written_before_the_copies_of_one_for_many(
    qos: int, receivers: int, passes: bool, version: int
) -> None:
    world = World()
    readers = [world.connect(f"reader-{number}", version) for number in range(receivers)]
    for reader in readers:
        reader.subscribe("t", qos=qos)
    reader = world.connect("reader")
    reader.subscribe("one")
    writers = [world.connect(f"writer-{number}") for number in range(2)]
    effects = world.broker.effects
    for writer, topic in zip(writers, (b"t", b"one"), strict=True):
        world.broker.feed(writer.connection, encode(Publish(topic, b"x", qos, packet_id=qos), V5), world.now)
    order = [outbox.number for outbox in effects.take_dirty()]
    copies = [each.connection.number for each in readers]
    answers = [writer.connection.number for writer in writers] if qos else []
    one = reader.connection.number
    if passes:
        assert order == [*answers[:1], one, *answers[1:], *copies]
    else:
        assert order == [*copies, *answers[:1], one, *answers[1:]]
    assert effects.take_dirty() == []


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("receivers", [2, CROWD])
def test_qos_2_messages_of_a_kept_session_are_committed_with_their_identifiers(
    version: int, is_shared: bool, receivers: int
) -> None:
    """Else, after a crash between two commits, the receivers of the first one would get the messages twice."""
    world = World()
    for number in range(receivers):
        reader = world.connect(f"reader-{number}", clean_start=False, expiry=600)
        reader.subscribe(f"$share/{number}/t" if is_shared else "t", qos=2)
        reader.lose()
    writer = world.connect("writer", version, clean_start=False, expiry=600)
    feed(writer, *[Publish(b"t", b"%d" % number, 2, packet_id=number) for number in range(1, 101)])
    changes = world.broker.effects.changes
    received = [change for change in changes if isinstance(change, SaveReceived)]
    assert received
    assert len([change for change in changes if isinstance(change, Enqueue)]) == receivers * len(received)
    world.settle()
    acks = [packet for packet in writer.received() if isinstance(packet, Ack) and packet.packet_type == PUBREC]
    assert len(acks) == 100
