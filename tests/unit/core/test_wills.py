"""Many wills at once: published in their order, once each, and no more in one iteration than it has room for."""

import pytest

from mqttlite.core.limits import DUE_PATIENCE_S, ITERATION_BYTES, ITERATION_WORK, Limits
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World

PAYLOAD = "x" * 60_000


def dying(world: World, clients: int, expiry: int = 0, delay: int | None = None) -> list[Client]:
    properties = Properties(will_delay_interval=delay)
    return [
        world.connect(
            f"c{number}", expiry=expiry, will=Will(b"w", f"{number} {PAYLOAD}".encode(), 0, False, properties)
        )
        for number in range(clients)
    ]


def numbers(reader: Client) -> list[int]:
    return [int(payload.split()[0]) for payload in reader.payloads()]


def one_iteration(world: World) -> int:
    """What waits to be written at its end."""
    world.broker.tick(world.now)
    pending = world.broker.effects.pending_bytes
    world._run()
    return pending


@pytest.mark.long
def test_as_many_wills_as_the_budget_has_room_for_are_published_in_one_iteration() -> None:
    world = World()
    readers = [world.connect(f"reader-{number}") for number in range(3)]
    for reader in readers:
        reader.subscribe("w")
    clients = dying(world, 200)
    for client in clients:
        world.broker.close(client.connection, world.now)
    most = ITERATION_BYTES + 3 * 61_000
    assert ITERATION_BYTES <= world.broker.effects.pending_bytes < most
    assert world.broker.due_at() == world.now
    world._run()
    iterations = 0
    while world.broker.due_at() == world.now:
        iterations += 1
        assert one_iteration(world) < most
    assert 30 < iterations < 50
    for reader in readers:
        assert numbers(reader) == list(range(200)), "in the order in which the clients died, each once"


@pytest.mark.parametrize("end", ["session expiry", "will delay"])
def test_wills_that_come_due_later_are_no_exception(end: str) -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("w")
    for client in dying(world, 100, *((10, 20) if end == "session expiry" else (20, 10))):
        client.lose()
    world.now += 10
    iterations = 1
    while one_iteration(world) >= ITERATION_BYTES:
        iterations += 1
    assert iterations > 5
    assert numbers(reader) == list(range(100))


@pytest.mark.reaches
@pytest.mark.long
def test_wills_that_cost_much_work_wait_too() -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("w/#")
    clients = [world.connect(f"c{number}", will=Will(b"w/%d" % number, b"x")) for number in range(600)]
    for client in clients:
        world.broker.close(client.connection, world.now)
    assert 0 < reader.connection.outbox.sent_qos0 < 600
    assert world.broker.effects.work < ITERATION_WORK + 100
    world.settle()
    assert [topic for topic, _ in reader.messages()] == [f"w/{number}" for number in range(600)]


def test_a_client_that_is_back_does_not_hold_back_the_will_that_is_due() -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("w")
    (client,) = dying(world, 1)
    world.broker.effects.pending_bytes = ITERATION_BYTES
    world.broker.close(client.connection, world.now)
    world._run()
    world.connect("c0")
    world.settle()
    assert numbers(reader) == [0]


def test_a_broker_that_shuts_down_publishes_all_wills() -> None:
    world = World(Limits(max_queued_bytes=1 << 30))
    absent = world.connect("absent", expiry=1_000)
    absent.subscribe("w", qos=1)
    will = Will(b"w", PAYLOAD.encode(), 1)
    for number in range(100):
        world.connect(f"c{number}", will=will)
    absent.lose()
    world.broker.shut_down(world.now)
    world._run()
    assert world.session("absent").queued == 100
    assert len(world.broker.jobs) == 0


def held(world: World, reader: Client) -> None:
    """Let clients die, and the first of their wills block the reader's link."""
    clients = dying(world, 100)
    for client in clients:
        world.broker.close(client.connection, world.now)
    world._run()
    world.broker.block(reader.connection, world.now)
    world.broker.tick(world.now)
    world._run()


def test_wills_wait_for_a_link_that_the_wills_before_have_blocked() -> None:
    world = World()
    reader, other = world.connect("reader"), world.connect("other")
    reader.subscribe("w")
    other.subscribe("w")
    held(world, reader)
    assert world.broker.due_at() == world.now + DUE_PATIENCE_S, "nothing spins meanwhile"
    world.broker.block(other.connection, world.now)
    world.broker.unblock(reader.connection, world.now)
    assert len(world.broker.jobs) == 0
    world.broker.unblock(other.connection, world.now)
    assert len(world.broker.jobs) == 1
    world.settle()
    world.advance(1)
    assert numbers(reader) == numbers(other) == list(range(100))


@pytest.mark.parametrize(("wait_s", "more"), [(0.9 * DUE_PATIENCE_S, False), (DUE_PATIENCE_S, True)])
def test_wills_wait_only_so_long_for_a_client_that_does_not_read(wait_s: float, more: bool) -> None:
    world = World(Limits(max_outbox_bytes=500_000))
    frozen, reader = world.connect("frozen"), world.connect("reader")
    frozen.subscribe("w")
    reader.subscribe("w")
    held(world, frozen)
    before = numbers(reader)
    assert 0 < len(before) < 100
    world.advance(wait_s)
    assert numbers(reader) == (list(range(len(before), 100)) if more else [])
    world.advance(DUE_PATIENCE_S)
    frozen.unblock()
    assert len(numbers(frozen)) < 100


def test_wills_do_not_wait_for_a_link_that_was_blocked_before() -> None:
    world = World()
    frozen, reader = world.connect("frozen"), world.connect("reader")
    frozen.subscribe("w")
    reader.subscribe("w")
    frozen.block()
    for client in dying(world, 100):
        world.broker.close(client.connection, world.now)
    world.settle()
    assert numbers(reader) == list(range(100))


def test_wills_do_not_wait_for_a_blocked_link_that_ends() -> None:
    world = World()
    frozen, reader = world.connect("frozen"), world.connect("reader")
    reader.subscribe("w")
    held(world, frozen)
    before = len(numbers(reader))
    frozen.lose()
    assert numbers(reader) == list(range(before, 100))


def test_a_link_that_other_work_has_blocked_holds_no_later_will() -> None:
    world = World()
    frozen, reader = world.connect("frozen"), world.connect("reader")
    reader.subscribe("w")
    clients = [world.connect(f"c{number}") for number in range(2)]
    world.broker.effects.work = ITERATION_WORK
    world.broker.close(clients[0].connection, world.now)
    world.broker.block(frozen.connection, world.now)
    world.settle()
    dying(world, 1)[0].lose()
    assert numbers(reader) == [0]


def test_wills_that_wait_for_a_link_are_published_at_shut_down() -> None:
    world = World(Limits(max_queued_bytes=1 << 30))
    reader, absent = world.connect("reader"), world.connect("absent", expiry=1_000)
    reader.subscribe("w")
    absent.subscribe("w", qos=1)
    absent.lose()
    wills = [world.connect(f"c{number}", will=Will(b"w", PAYLOAD.encode(), 1)) for number in range(100)]
    for client in wills:
        world.broker.close(client.connection, world.now)
    world._run()
    world.broker.block(reader.connection, world.now)
    world.broker.tick(world.now)
    assert world.session("absent").queued < 100
    world.broker.shut_down(world.now)
    world._run()
    assert world.session("absent").queued == 100
