"""The `ack-id` of a message: only who was told it can name the message, in its queue alone."""

import msgspec
import pytest

from mqttlite.core.log_changes import SaveRecord
from mqttlite.extensions.queues.records import Definition
from mqttlite.store.memory import MemoryStore
from tests.support.queues import QueueWorld, options


def pulled(world: QueueWorld, name: str = "q") -> str:
    (found,) = world.queues.pull(name, 1)
    world.settle()
    return found.ack_id


@pytest.mark.parametrize("does", ["ack", "nack", "extend"])
def test_an_ack_id_of_another_queue_or_a_guessed_one_does_nothing(does: str) -> None:
    world = QueueWorld([options(), options("other")])
    world.publish("a", "x")
    its, foreign = pulled(world), pulled(world, "other")
    assert its != foreign
    place, mac = its[:16], its[16:]
    guesses = [
        foreign,
        place + foreign[16:],
        place[:-1] + "2" + mac,
        place + "0" * len(mac),
        place,
        "0-1-0",
        "\u0661" * 40,
    ]
    guesses += ["g" * 40, its.replace(place, "0x" + place[2:], 1), its + "\n", "-" + its[1:], its.upper()]
    arguments = (5.0,) if does == "extend" else ()
    assert not any(getattr(world.queues, does)("q", [guess for guess in guesses if guess != its], *arguments))
    assert getattr(world.queues, does)("q", [its], *arguments) == [True]
    world.end()


def test_an_ack_id_is_valid_after_a_restart_and_no_more_once_its_queue_is_made_again() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    world.publish("a", "x", 1)
    world.publish("a", "y", 1)
    first, second = pulled(world), pulled(world)
    world = world.restart()
    assert world.queues.ack("q", [first]) == [True]
    world.queues.delete("q")
    world.queues.create(options())
    world.publish("a", "x", 1)
    world.publish("a", "y", 1)
    world.queues.pull("q", 2)
    assert world.queues.ack("q", [first, second]) == [False, False]
    world.end()


def test_a_queue_of_an_earlier_version_gets_a_key_that_it_keeps() -> None:
    world = QueueWorld([], MemoryStore(pages=True))
    world.queues.create(options())
    world.settle()
    (saved,) = (each for each in world.changes if isinstance(each, SaveRecord))
    old = msgspec.structs.replace(Definition.decode(saved), ack_key=b"")
    world.broker.effects.record(SaveRecord(saved.key, old.encode()))
    world.settle()
    world = world.restart()
    world.publish("a", "x", 1)
    its = pulled(world)
    world = world.restart()
    assert world.queues.ack("q", [its]) == [True]
    world.end()
