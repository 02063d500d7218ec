"""Many wills at once: published in their order, once each, and no more in one iteration than it has room for."""

import pytest

from mqttlite.core.limits import ITERATION_BYTES, ITERATION_WORK, Limits
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
    keeper = world.connect("keeper", expiry=1_000)
    keeper.subscribe("w", qos=1)
    will = Will(b"w", PAYLOAD.encode(), 1)
    for number in range(100):
        world.connect(f"c{number}", will=will)
    keeper.lose()
    world.broker.shut_down(world.now)
    world._run()
    assert world.session("keeper").queued == 100
    assert len(world.broker.jobs) == 0
