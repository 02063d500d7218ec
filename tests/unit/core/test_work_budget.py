"""One budget for an iteration of the loop: links, jobs, sessions with a backlog and deadlines share it."""

import pytest

from mqttlite.core.connect.connection import CLOSED, CONNECTED
from mqttlite.core.jobs import Job
from mqttlite.core.limits import (
    BATCH_MESSAGES,
    CHUNK_BYTES_PER_WORK_UNIT,
    CLOSE_WORK,
    CONNECT_WORK,
    DELIVERY_WORK,
    FILL_BYTES,
    FORGOTTEN_PER_WORK_UNIT,
    ITERATION_WORK,
    KEPT_MESSAGES,
    LEAST_SHARE,
    MAX_PENDING_BYTES,
    QUEUED_MESSAGE_WORK,
    Limits,
)
from mqttlite.core.reasons import CloseReason
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Pingreq, Pingresp, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, end_iteration

PING = encode(Pingreq(), V5)


def ping(client: Client) -> bool:
    """Whether the broker answers at once."""
    before = client.connection.outbox.answers
    client.world.broker.feed(client.connection, PING, client.world.now)
    return client.connection.outbox.answers > before


@pytest.mark.parametrize(("used", "is_handled"), [(-1, True), (0, False), (1, False)])
def test_a_link_waits_when_the_links_before_it_have_used_up_the_budget(used: int, is_handled: bool) -> None:
    world = World()
    client = world.connect("c")
    world.broker.effects.work = ITERATION_WORK + used
    assert ping(client) == is_handled
    assert client.connection.deferred != is_handled
    world.settle()
    assert client.received() == [Pingresp()]
    assert not client.connection.deferred


@pytest.mark.parametrize(("pending", "is_handled"), [(-1, True), (0, True), (1, False)])
def test_a_link_waits_when_too_many_bytes_wait_to_be_written(pending: int, is_handled: bool) -> None:
    world = World()
    client = world.connect("c")
    world.broker.effects.pending_bytes = MAX_PENDING_BYTES + pending
    assert ping(client) == is_handled
    world.settle()
    assert client.received() == [Pingresp()]


def test_the_work_of_all_links_adds_up() -> None:
    world = World()
    clients = [world.connect(f"c{number}") for number in range(4)]
    effects = world.broker.effects
    chunk = PING * 1_000
    for client in clients:
        world.broker.feed(client.connection, chunk, world.now)
    answered = [client.connection.outbox.answers - 1 for client in clients]
    assert answered[0] == answered[1] == 1_000
    assert sum(answered) < 2_100
    assert effects.deferred == [client.connection.number for client in clients[2:]]
    world.settle()
    assert [client.connection.outbox.answers - 1 for client in clients] == [1_000] * 4


def test_messages_in_place_and_the_bytes_of_a_chunk_are_charged() -> None:
    world = World()
    client = world.connect("c")
    topics = [encode(Publish(b"t/%d" % (number % 2), bytes(2_000)), V5) for number in range(100)]
    for _ in range(2):
        end_iteration(world.broker.effects)
        chunk = b"".join(topics)
        world.broker.feed(client.connection, chunk, world.now)
    assert world.broker.effects.work == 100 + len(chunk) // CHUNK_BYTES_PER_WORK_UNIT


def test_a_client_that_is_deferred_and_continues_too_early_stays_where_it_is() -> None:
    world = World()
    client = world.connect("c")
    effects = world.broker.effects
    effects.work = ITERATION_WORK
    assert not ping(client)
    effects.deferred.clear()
    world.broker.feed(client.connection, b"", world.now)
    assert client.connection.deferred
    assert effects.deferred == [client.connection.number]
    world.settle()
    assert client.received() == [Pingresp()]


def test_packets_that_wait_are_no_silence() -> None:
    world = World()
    client = world.connect("c", keep_alive=10)
    world.broker.effects.work = ITERATION_WORK
    assert not ping(client)
    world.broker.tick(world.now + 15)
    assert client.connection.state == CONNECTED
    world.settle()
    assert client.received() == [Pingresp()]
    world.advance(40)
    assert client.connection.close_reason == CloseReason.KEEP_ALIVE_TIMEOUT


def test_links_that_use_up_the_budget_leave_jobs_backlogs_and_deadlines_their_shares() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    for _ in range(3):
        world.publish("t", "x" * FILL_BYTES, 1)
    silent = world.connect("silent", keep_alive=1)
    dying = world.connect("dying")
    world.settle = lambda: None  # type: ignore[method-assign]
    back = world.open()
    back.connect("away", clean_start=False, expiry=100, auto_ack=False)
    sent = back.connection.outbox.sent_qos1
    effects = world.broker.effects
    end_iteration(effects)
    effects.work = 2 * ITERATION_WORK
    world.broker.close(dying.connection, world.now)
    assert dying.connection.state == CONNECTED
    world.broker.tick(world.now + 2)
    assert dying.connection.state == CLOSED, "a job"
    assert back.connection.outbox.sent_qos1 > sent, "a session with a backlog"
    assert silent.connection.state == CLOSED, "a deadline"
    assert effects.work == 2 * ITERATION_WORK, "the links have had theirs"


@pytest.mark.slow
def test_jobs_that_use_up_the_budget_leave_the_links_their_share() -> None:
    world = World()
    clients = [world.connect(f"c{number}") for number in range(2_000)]
    reader = world.connect("reader")
    effects = world.broker.effects
    effects.work = ITERATION_WORK
    for client in clients:
        world.broker.close(client.connection, world.now)
    end_iteration(effects)
    world.broker.tick(world.now)
    assert len(world.broker.connections) > 1_000
    assert effects.work == ITERATION_WORK - LEAST_SHARE
    assert ping(reader)


@pytest.mark.slow
def test_many_connections_that_are_lost_at_once_end_in_several_iterations() -> None:
    """8,000 of them, say, when a load balancer dies."""
    world = World()
    clients = [world.connect(f"c{number}") for number in range(1_200)]
    for client in clients:
        world.broker.close(client.connection, world.now, "reset")
    room = ITERATION_WORK // CLOSE_WORK
    assert len(world.broker.connections) == 1_200 - room
    assert world.broker.due_at() == world.now
    closed: list[int] = []
    for _ in range(10):
        closed += world.broker.effects.closed
        world._run()
        world.broker.tick(world.now)
    assert closed == [client.connection.number for client in clients], "in the order in which they were lost"
    assert {client.connection.close_detail for client in clients} == {"reset"}
    assert len(world.broker.jobs) == 0


def lost_in_a_busy_iteration(world: World, client: Client) -> None:
    world.broker.effects.work = ITERATION_WORK
    world.broker.close(client.connection, world.now)
    assert client.connection.state != CLOSED


def test_a_lost_connection_that_waits_for_its_end_handles_nothing_more() -> None:
    world = World()
    client = world.connect("c")
    lost_in_a_busy_iteration(world, client)
    assert repr(client.connection).count("waits for its end") == 1
    end_iteration(world.broker.effects)
    assert not ping(client)
    world.settle()
    assert client.connection.close_reason == CloseReason.CONNECTION_LOST


def test_a_lost_connection_that_waits_for_its_end_may_be_taken_over() -> None:
    world = World()
    client = world.connect("c", will=Will(b"w", b"gone"))
    reader = world.connect("reader")
    reader.subscribe("w")
    successor = world.open()
    lost_in_a_busy_iteration(world, client)
    end_iteration(world.broker.effects)
    successor.connect("c")
    assert client.connection.close_reason == CloseReason.TAKEN_OVER
    world.settle()
    assert reader.payloads() == ["gone"]
    assert successor.connection.state == CONNECTED


def test_a_lost_connection_that_waits_for_its_end_is_not_accepted_any_more() -> None:
    world = World()
    client = world.open(must_authenticate=True)
    client.connect("c")
    lost_in_a_busy_iteration(world, client)
    world.answer(client, True)
    assert not client.connection.accepted
    assert client.connection.close_reason == CloseReason.CONNECTION_LOST
    assert len(world.broker.sessions) == 0


def test_a_connect_above_the_budget_is_not_lost() -> None:
    world = World()
    client = world.open()
    world.broker.effects.work = ITERATION_WORK
    world.broker.feed(client.connection, encode(Connect("c"), V5), world.now)
    assert not client.connection.accepted
    world.settle()
    assert client.connection.accepted


@pytest.mark.long
def test_as_many_clients_as_the_budget_has_room_for_connect_in_one_iteration() -> None:
    world = World()
    world.connect("same")
    clients = [world.open() for _ in range(1_000)]
    end_iteration(world.broker.effects)
    for client in clients:
        world.broker.feed(client.connection, encode(Connect("same"), V5), world.now)
    accepted = sum(client.connection.accepted for client in clients)
    assert accepted <= ITERATION_WORK // (CONNECT_WORK + CLOSE_WORK) + 1
    world.settle()
    assert all(client.connection.accepted for client in clients)
    assert [client.connection.state for client in clients[-2:]] == [CLOSED, CONNECTED]


@pytest.mark.parametrize("is_cached", [False, True])
def test_filters_that_are_compared_with_cached_topics_are_charged(is_cached: bool) -> None:
    world = World()
    client = world.connect("c", expiry=100)
    for number in range(300):
        client.subscribe(f"t/{number}/+")
    if is_cached:
        world.publish("other", "")
    effects = world.broker.effects
    end_iteration(effects)
    client.lose()
    left = 300 if is_cached else 0
    end_iteration(effects)
    client = world.open()
    world.broker.feed(client.connection, encode(Connect("c", clean_start=False), V5), world.now)
    assert left <= effects.work - CONNECT_WORK < left + 100


def test_the_shared_subscriptions_of_a_session_that_ends_are_charged() -> None:
    world = World()
    client = world.connect("c")
    for number in range(100):
        client.subscribe(f"$share/g{number}/t")
    end_iteration(world.broker.effects)
    world.broker.close(client.connection, world.now)
    assert 100 <= world.broker.effects.work - CLOSE_WORK < 200


def test_a_job_must_say_what_its_step_is() -> None:
    with pytest.raises(NotImplementedError):
        Job().step()


def test_bytes_that_wait_for_others_leave_room_for_a_session_with_a_backlog() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    for _ in range(6):
        world.publish("t", "x" * (FILL_BYTES // 4), 1)
    world.settle = lambda: None  # type: ignore[method-assign]
    back = world.open()
    back.connect("away", clean_start=False, expiry=100, auto_ack=False)
    sent = back.connection.outbox.sent_qos1
    effects = world.broker.effects
    effects.pending_bytes = MAX_PENDING_BYTES
    world.broker.tick(world.now)
    assert back.connection.outbox.sent_qos1 == 6 > sent
    assert MAX_PENDING_BYTES < effects.pending_bytes < MAX_PENDING_BYTES + 2 * FILL_BYTES


def test_a_delayed_will_and_an_expiry_are_due_as_deadlines() -> None:
    world = World(Limits())
    reader = world.connect("reader")
    reader.subscribe("w")
    will = Will(b"w", b"late", properties=Properties(will_delay_interval=5))
    world.connect("c", expiry=100, will=will).lose()
    world.advance(4)
    assert reader.payloads() == []
    world.advance(1)
    assert reader.payloads() == ["late"]
    world.advance(95)
    assert world.broker.sessions.get("c") is None


@pytest.mark.long
def test_messages_that_a_receiver_takes_one_by_one_are_charged_and_come_in_batches_of_a_bounded_size() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    publisher = world.connect("publisher")
    world.settle()
    end_iteration(world.broker.effects)
    packets = [encode(Publish(b"t", b"", 1, packet_id=number), V5) for number in range(1, 5_001)]
    world.broker.feed(publisher.connection, b"".join(packets), world.now)
    assert publisher.connection.deferred
    assert ITERATION_WORK <= world.broker.effects.work < ITERATION_WORK + BATCH_MESSAGES * (DELIVERY_WORK + 2)
    session = world.broker.sessions.get("away")
    assert session is not None
    assert 0 < session.queued <= ITERATION_WORK // DELIVERY_WORK + BATCH_MESSAGES
    world.settle()
    assert session.queued == 5_000


def test_a_route_is_charged_for_each_subscription_found() -> None:
    world = World()
    for number in range(50):
        world.connect(f"c{number}").subscribe("t")
    end_iteration(world.broker.effects)
    world.broker.publish(b"t", b"x", 0, False, world.now)
    assert world.broker.effects.work >= 50 * (1 + DELIVERY_WORK)


def full_queues(world: World, sessions: int, messages: int) -> None:
    """Leave sessions whose clients are away, with messages in their queues."""
    for number in range(sessions):
        client = world.connect(f"away{number}", expiry=100)
        client.subscribe("t", qos=1)
        client.disconnect()
    publisher = world.connect("publisher")
    for _ in range(messages):
        publisher.publish("t", "x", qos=1)


def test_clients_that_come_back_to_full_queues_take_turns() -> None:
    world = World()
    full_queues(world, sessions=30, messages=100)
    effects = world.broker.effects
    end_iteration(effects)
    clients = [world.open() for _ in range(30)]
    for number, client in enumerate(clients):
        packet = Connect(f"away{number}", clean_start=False, properties=Properties(session_expiry_interval=100))
        world.broker.feed(client.connection, encode(packet, V5), world.now)
    assert ITERATION_WORK <= effects.work < ITERATION_WORK + 100 * QUEUED_MESSAGE_WORK + 2 * CONNECT_WORK
    assert sum(client.connection.state == CONNECTED for client in clients) < 30
    world.settle()
    assert all(client.connection.state == CONNECTED for client in clients)


def test_to_forget_the_page_of_a_client_that_leaves_is_charged() -> None:
    world = World(store=MemoryStore(pages=True))
    full_queues(world, sessions=1, messages=2_000)
    client = world.connect("away0", clean_start=False, expiry=100, receive_maximum=1, auto_ack=False)
    effects = world.broker.effects
    end_iteration(effects)
    world.broker.close(client.connection, world.now)
    forgotten = 2_000 - 1 - KEPT_MESSAGES
    assert effects.work - CLOSE_WORK == pytest.approx(forgotten / FORGOTTEN_PER_WORK_UNIT, abs=2)
