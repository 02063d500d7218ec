"""Messages that are kept, traced or named have numbers: each its own, later ones higher, over restarts too."""

import pytest

from mqttlite.core.changes import Enqueue, LatestNumber, SaveDelayed, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.message import Message
from mqttlite.core.message_numbers import MICROSECONDS, MessageNumbers
from tests.support.core_driver import World
from tests.support.stores import loaded

NOON_US = 1_795_262_594_000_000


def test_a_number_is_the_microsecond_of_its_message_or_the_next_that_is_free() -> None:
    numbers = MessageNumbers(NOON_US)
    assert [numbers.next(now) for now in (1.5, 1.5, 2.0)] == [
        NOON_US + 1_500_000,
        NOON_US + 1_500_001,
        NOON_US + 2_000_000,
    ]


def test_a_clock_that_was_set_back_repeats_no_number() -> None:
    numbers = MessageNumbers(NOON_US)
    numbers.latest = NOON_US + 60 * MICROSECONDS
    assert numbers.next(1.0) == NOON_US + 60 * MICROSECONDS + 1


def test_a_message_keeps_its_number() -> None:
    effects = Effects()
    message = Message(b"t", b"x")
    assert effects.identify(message) == effects.identify(message) == message.number
    assert message.for_topic(b"other").number == message.number
    assert message.untraced().number == message.number


def test_a_kept_message_has_one_number_for_all_its_receivers() -> None:
    world = World()
    for name in ("a", "b"):
        away = world.connect(name, expiry=100)
        away.subscribe("t", qos=1)
        away.lose()
    publisher = world.connect("p")
    publisher.publish("t", "1", qos=1, retain=True)
    publisher.publish("$delayed/10/later", "2", qos=1)
    publisher.publish("nobody", "3", qos=1)
    numbers = {type(each): set[int]() for each in world.changes}
    for change in world.changes:
        if isinstance(change, Enqueue):
            numbers[Enqueue].add(change.delivery.message.number)
        elif isinstance(change, SaveRetained | SaveDelayed):
            numbers[type(change)].add(change.message.number)
    assert len(numbers[Enqueue]) == len(numbers[SaveRetained]) == len(numbers[SaveDelayed]) == 1
    assert numbers[Enqueue] == numbers[SaveRetained]
    assert max(numbers[SaveDelayed]) > max(numbers[Enqueue]) > 0


@pytest.mark.parametrize("topic", ["t", "$delayed/10/t"])
def test_numbers_go_on_after_a_restart(topic: str) -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    world.connect("p").publish(topic, "1", qos=1)
    (latest,) = [change for batch in world.store.load() for change in batch if isinstance(change, LatestNumber)]
    assert latest.number == world.broker.effects.numbers.latest > 0
    again = world.restart()
    assert again.broker.effects.numbers.latest == latest.number
    assert any(
        change.delivery.message.number == latest.number for change in loaded(again.store) if isinstance(change, Enqueue)
    ) or topic.startswith("$delayed")
