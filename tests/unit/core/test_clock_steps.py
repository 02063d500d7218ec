"""The wall clock steps while the broker runs: what ends at a time of the wall clock follows it, nothing else does."""

import pytest

from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World


@pytest.mark.parametrize("stepped_s", [90.0, -90.0])
def test_a_session_expires_by_the_new_time(stepped_s: float) -> None:
    world = World()
    world.connect("c", V5, expiry=100).disconnect()
    world.broker.follow_wall(stepped_s)
    world.advance(99.0 - stepped_s)
    assert world.broker.sessions.get("c") is not None
    world.advance(2.0)
    assert world.broker.sessions.get("c") is None


def test_a_delayed_will_and_a_delayed_message_are_due_by_the_new_time() -> None:
    world = World()
    reader = world.connect("reader", V5)
    reader.subscribe("#")
    will = Will(b"gone", b"will", 0, False, Properties(will_delay_interval=100))
    world.connect("c", V5, expiry=1_000, will=will).lose()
    world.connect("p", V5).publish("$delayed/100/later", "message", 0)
    world.broker.follow_wall(50.0)
    world.advance(49.0)
    assert reader.messages() == []
    world.advance(2.0)
    assert sorted(reader.messages()) == [("gone", "will"), ("later", "message")]


def test_a_connection_lives_by_seconds_that_do_not_step() -> None:
    world = World()
    client = world.connect("c", V5, keep_alive=60)
    world.broker.follow_wall(10_000.0)
    world.advance(89.0)
    assert not client.closed
    world.advance(2.0)
    assert client.closed
