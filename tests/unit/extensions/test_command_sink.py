"""Commands that wait are carried out one after the other, for publishers that may still send them."""

import asyncio

import pytest

from mqttlite.core.message import Message
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import CLIENT, Source
from mqttlite.extensions.command_sink import Command, CommandSink
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World
from tests.support.rules import OpenRules


class Refuses(OpenRules):
    """All may publish, except to one topic."""

    def __init__(self, topic: bytes) -> None:
        self.topic = topic

    def is_open(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return topic != self.topic


@pytest.mark.parametrize("taken_away", [b"$queue/q/$b", b"answers/b"])
async def test_a_command_that_waits_is_not_carried_out_for_a_publisher_that_lost_its_right(taken_away: bytes) -> None:
    world = World()
    carried_out: list[str] = []
    told: list[tuple[str, bool]] = []

    async def carry_out(command: Command) -> None:
        await asyncio.sleep(0)
        carried_out.append(command.action)
        if command.action == "$a":
            world.broker.authorize(Refuses(taken_away))
        sink.end(command, True, b"done")

    sink = CommandSink(
        *("$queue", ("$a", "$b", "$c"), lambda *_: True, carry_out, world.broker, lambda: world.now, lambda: None),
        lambda who, action, subject, is_done: told.append((subject, is_done)),
    )
    listener = world.connect("listener")
    listener.subscribe("answers/#")
    for name in "abc":
        topic, properties = f"$queue/q/${name}".encode(), Properties(response_topic=f"answers/{name}")
        sink.accept(Message(topic, b"", 1, False, properties, 0.0), Source(CLIENT, "publisher"), tally := Tally())
        assert tally.sent == 1
    while len(told) < 3:
        await asyncio.sleep(0)
    await sink.stop()
    world.settle()
    assert carried_out == ["$a", "$c"]
    assert told == [("$queue/q/$a", True), ("$queue/q/$b", False), ("$queue/q/$c", True)]
