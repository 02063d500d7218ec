"""A stuck ordering key does not hold up the others, however many messages it has; and what is kept for it."""

import random

import pytest

from mqttlite.extensions.queues.limits import MAX_LANE
from mqttlite.store.memory import MemoryStore
from tests.support.queues import QueueWorld, options


def a_world(max_lane: int = 2, **fields: object) -> QueueWorld:
    return QueueWorld([options(ordering=True, **fields)], MemoryStore(pages=True), max_lane=max_lane)


def publish(world: QueueWorld, key: str, *payloads: str) -> None:
    for payload in payloads:
        world.publish("a", payload, 1, user_properties=[("ordering-key", key)])


def take(world: QueueWorld, stuck: str = "") -> list[str]:
    """Pull and acknowledge until there is nothing; those of the stuck key are held."""
    found: list[str] = []
    nothing = 0
    while nothing < 3:
        pulled = world.queues.pull("q", 100)
        nothing = 0 if pulled else nothing + 1
        world.queues.ack("q", [each.ack_id for each in pulled if each.ordering_key != stuck])
        world.settle()
        found += [each.message.payload.decode() for each in pulled]
    return found


@pytest.mark.long
def test_other_keys_go_on_beside_one_with_more_messages_than_a_lane_has() -> None:
    world = a_world(MAX_LANE)
    many = [f"s{at}" for at in range(MAX_LANE + 200)]
    publish(world, "stuck", *many)
    publish(world, "other", "x", "y")
    assert take(world, "stuck") == ["s0", "x", "y"]
    assert world.queues.state("q").depth == len(many)
    world.advance(15)
    assert take(world) == many
    state = world.queues.state("q")
    assert (state.depth, state.retained, world.ends()) == (0, 0, {"acknowledged": len(many) + 2})
    world.end()


def test_a_poisoned_key_goes_to_the_dead_letters_and_goes_on() -> None:
    world = a_world(max_attempts=1)
    publish(world, "k", *"abcdef")
    publish(world, "l", "x")
    pulled = world.queues.pull("q", 10)
    assert [each.message.payload for each in pulled] == [b"a", b"x"]
    world.queues.nack("q", [pulled[0].ack_id])
    world.settle()
    again = world.restart()
    assert take(again) == list("bcdef")
    again.end()


@pytest.mark.long
def test_deferred_state_is_whole_after_purges_and_restarts() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        world = a_world(retain_acked=seed % 2 == 0, max_attempts=100)
        open_of: dict[str, list[str]] = {key: [] for key in "abc"}
        for at in range(60):
            key = rng.choice("aaabc")
            publish(world, key, str(at))
            open_of[key].append(str(at))
            for pulled in world.queues.pull("q", rng.choice([0, 0, 1, 3])):
                payload = pulled.message.payload.decode()
                assert open_of[pulled.ordering_key][0] == payload
                if rng.random() < (0.2 if pulled.ordering_key == "a" else 0.8):
                    assert world.queues.ack("q", [pulled.ack_id]) == [True]
                    open_of[pulled.ordering_key].pop(0)
            world.settle()
            assert world.queues.state("q").depth == sum(map(len, open_of.values()))
            what = rng.random()
            if what < 0.05:
                world = world.restart()
            elif what < 0.06:
                assert world.queues.purge("q") == sum(map(len, open_of.values()))
                open_of = {key: [] for key in "abc"}
                world.settle()
            elif what < 0.2:
                world.advance(rng.choice([1, 4]))
        world.advance(15)
        found = take(world)
        assert sorted(found) == sorted(each for payloads in open_of.values() for each in payloads)
        for payloads in open_of.values():
            assert [each for each in found if each in payloads] == payloads
        world.end()
