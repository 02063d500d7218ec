"""A client resumes its session while answers to its former connection are still on their way."""

import pytest

from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL
from mqttlite.wire.packets import Ack
from tests.support.core_driver import World, publishes


@pytest.mark.parametrize("qos", [1, 2])
def test_an_answer_to_a_message_that_waits_to_be_sent_again_is_taken_and_it_is_not_sent_again(qos: int) -> None:
    world = World()
    first = world.connect("reader", clean_start=False, expiry=100, auto_ack=False)
    first.subscribe("a", qos=qos)
    for payload in "xyz":
        world.publish("a", payload, qos)
    ids = [packet.packet_id for packet in publishes(first.received())]
    first.lose()
    again = world.connect("reader", clean_start=False, expiry=100, auto_ack=False, receive_maximum=1)
    assert [packet.payload for packet in publishes(again.received())] == [b"x"]
    again.send(Ack(PUBACK if qos == 1 else PUBREC, ids[1]))
    if qos == 2:
        assert again.received() == [Ack(PUBREL, ids[1])]
        again.send(Ack(PUBCOMP, ids[1]))
    assert again.received() == []  # the window is still full
    for number in (0, 2):
        again.send(Ack(PUBACK if qos == 1 else PUBREC, ids[number]))
        if qos == 2:
            assert again.received()[0] == Ack(PUBREL, ids[number])
            again.send(Ack(PUBCOMP, ids[number]))
        assert [packet.payload for packet in publishes(again.received())] == ([b"z"] if number == 0 else [])
    session = world.session("reader")
    assert (session.queued, session.window.quota, len(session.inflight), len(session.window.released)) == (0, 1, 0, 0)
