"""A message with a `dedup-id` is taken once by a queue."""

import pytest

from mqttlite.core.log_changes import SaveRecord
from mqttlite.core.message_filter import FilterCompiler
from mqttlite.extensions.dedup import DEDUP_IDS_OF_BLOCK
from mqttlite.extensions.queues.queue import DEDUP_MARK
from mqttlite.filters import Filters
from mqttlite.store.memory import MemoryStore
from tests.support.core_driver import publishes
from tests.support.queues import QueueWorld, ack, consumer, options


def publish(world: QueueWorld, payload: str, dedup_id: str = "", topic: str = "a") -> int:
    more = {"user_properties": [("dedup-id", dedup_id)]} if dedup_id else {"user_properties": [("other", "x")]}
    return world.publish(topic, payload, 1, **more)


def ids(world: QueueWorld) -> list[str]:
    """The names of the records of ids in the store."""
    found = [change for batch in world.store.load() for change in batch if isinstance(change, SaveRecord)]
    return [each.key for each in found if each.key.startswith(DEDUP_MARK)]


@pytest.mark.parametrize("has_pages", [False, True])
def test_a_message_that_was_taken_is_a_success_and_is_not_taken_again(has_pages: bool) -> None:
    world = QueueWorld([options()], MemoryStore(pages=has_pages))
    assert [publish(world, "1", "x"), publish(world, "1", "x"), publish(world, "2", "y"), publish(world, "3")] == [
        0
    ] * 4
    client = consumer(world)
    found = publishes(client.received())
    assert [each.payload for each in found] == [b"1", b"2", b"3"]
    for each in found:
        ack(client, each)
    assert publish(world, "1", "x") == 0, "it was acknowledged, and is known all the same"
    world = world.restart()
    assert publish(world, "1", "x") == 0
    assert publishes(consumer(world).received()) == []
    assert world.queues.state("q").duplicates == 1
    world.end()


def test_a_queue_without_ids_keeps_none_and_one_that_is_deleted_neither() -> None:
    world = QueueWorld([options()])
    publish(world, "1")
    assert ids(world) == []
    for each in range(DEDUP_IDS_OF_BLOCK + 1):
        publish(world, "2", str(each))
    assert ids(world) == [f"{DEDUP_MARK}q/0", f"{DEDUP_MARK}q/1"]
    world.queues.delete("q")
    world.settle()
    assert ids(world) == []
    world.end()


def test_the_ids_of_a_queue_that_is_lost_are_removed() -> None:
    world = QueueWorld([options()])
    world.broker.effects.record(SaveRecord(f"{DEDUP_MARK}gone/0", b""))
    world.settle()
    world = world.restart()
    world.settle()
    assert ids(world) == []


def test_a_message_that_is_not_taken_leaves_no_id() -> None:
    filters: FilterCompiler = Filters()
    world = QueueWorld([options(max_messages=1, filter="payload.n > 1")], filters=filters)
    assert publish(world, '{"n": 1}', "small") == 0x10
    assert publish(world, '{"n": 2}', "x") == 0
    assert publish(world, '{"n": 3}', "y") == 0x97, "the queue is full"
    client = consumer(world)
    ack(client, *publishes(client.received()))
    assert publish(world, '{"n": 3}', "y") == 0
    assert [each.payload for each in publishes(client.received())] == [b'{"n": 3}']
    assert publish(world, '{"n": 9}', "small") == 0x97, "the filter refused the first one"
    world.end()


def test_a_dead_letter_is_forwarded_again_after_a_replay() -> None:
    world = QueueWorld([options(max_attempts=1, dead_letter_topic="dead"), options("d", "dead")])
    publish(world, "1", "x")
    for _ in range(2):
        client = consumer(world)
        assert [each.payload for each in publishes(client.received())] == [b"1"]
        client.lose()
        world.settle()
        (letter,) = world.queues.dead_letters("q").letters()
        assert world.queues.replay("q", letter.number)
        world.settle()
    assert world.queues.state("d").depth == 2
