"""What an input leaves for the loop driver to carry out, and when that is nothing."""

import pytest

from mqttlite.core.effects import AwaitsCommit
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Pingreq, Publish
from tests.support.core_driver import World


def test_effects_are_empty_when_an_input_changes_nothing_outside_the_core() -> None:
    world = World()
    effects = world.broker.effects
    client = world.connect("c", auto_ack=False)
    client.subscribe("t", qos=1)
    world.publish("t", "x", qos=1)
    (message,) = [packet for packet in client.received() if isinstance(packet, Publish)]
    effects.work = 0
    assert effects.is_empty
    world.broker.feed(client.connection, encode(Ack(PUBACK, message.packet_id), V5), world.now)
    assert effects.is_empty
    world.broker.feed(client.connection, encode(Pingreq(), V5), world.now)
    assert not effects.is_empty


def test_bytes_that_nobody_is_to_write_are_an_effect_for_they_are_counted() -> None:
    world = World()
    effects = world.broker.effects
    effects.work = 0
    assert effects.is_empty
    effects.pending_bytes = 1
    assert not effects.is_empty


def test_work_that_waits_for_a_commit_names_its_next_step() -> None:
    with pytest.raises(NotImplementedError):
        AwaitsCommit().on_committed(0.0)
