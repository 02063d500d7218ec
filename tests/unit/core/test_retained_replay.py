"""More retained messages than fit a pass: they are found by and by, and are those of the SUBSCRIBE."""

import pytest

from mqttlite.core.limits import FILL_BYTES, ITERATION_BYTES, LOOKING_BYTES, RETAINED_LOOKED_AT, SENDING_BYTES
from mqttlite.core.message import Message
from mqttlite.core.reasons import QOS0_OFFLINE
from mqttlite.core.retained.retained_replay import RetainedReplay, RetainedReplays
from mqttlite.topics.retained import RetainedMessages
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Subscribe, SubscriptionRequest
from tests.support.core_driver import Client, World, publishes

MANY = 4 * FILL_BYTES // SENDING_BYTES


def world_of(count: int = MANY, topic: str = "t/%d") -> World:
    world = World()
    for number in range(count):
        world.broker.router.retained.restore(Message((topic % number).encode(), b"%d" % number, 1, True))
    return world


def begin(client: Client, *topic_filters: str, qos: int = 0) -> None:
    """SUBSCRIBE, and no pass of the loop after it."""
    requests = tuple(SubscriptionRequest(each.encode(), qos) for each in topic_filters)
    client.world.broker.feed(client.connection, encode(Subscribe(1, requests), client.version), client.world.now)


def sent(client: Client) -> int:
    """How many messages are ready to be written."""
    return len(client.connection.outbox.chunks)


@pytest.mark.long
def test_a_pass_holds_only_so_many_and_all_arrive() -> None:
    world = world_of()
    client = world.connect("c")
    begin(client, "#")
    most = FILL_BYTES // SENDING_BYTES + 2
    assert 1 < sent(client) <= most
    for _ in range(3):
        world.broker.effects.pending_bytes = 0
        before = sent(client)
        world.broker.tick(world.now)
        assert before < sent(client) <= before + most
    assert world.broker.due_at() == world.now
    world.settle()
    assert sorted(int(payload) for payload in client.payloads()) == list(range(MANY))
    assert world.session("c").queued == 0


@pytest.mark.long
def test_names_that_do_not_match_are_looked_at_by_and_by_too() -> None:
    world = world_of((ITERATION_BYTES + 5 * FILL_BYTES) // LOOKING_BYTES, "t/%d/x")
    world.publish("t/z/y", "found", 1, retain=True)
    client = world.connect("c")
    begin(client, "+/+/y")
    passes = 0
    while world.broker.effects.backlogged:
        assert world.session("c").queued == 1  # which is that something is to be looked for
        world.broker.effects.pending_bytes = 0
        world.broker.tick(world.now)
        passes += 1
    assert passes > 4
    world.settle()
    assert client.payloads() == ["found"]


@pytest.mark.long
def test_a_retained_message_replaced_or_cleared_before_it_is_found_is_left_out() -> None:
    world = world_of()
    client = world.connect("c")
    begin(client, "#")
    last = MANY - 1
    world.broker.publish(b"t/%d" % last, b"new", 1, True, world.now)
    world.broker.publish(b"t/%d" % (last - 1), b"", 1, True, world.now)
    world.broker.publish(b"t/other", b"other", 1, True, world.now)
    world.settle()
    got = [(packet.payload, packet.retain) for packet in publishes(client.received())]
    assert sorted(got) == sorted(
        [(b"%d" % number, True) for number in range(last - 1)] + [(b"new", False), (b"", False), (b"other", False)]
    )


@pytest.mark.long
def test_later_messages_wait_until_all_that_was_retained_is_sent() -> None:
    world = world_of()
    client = world.connect("c", receive_maximum=10)
    begin(client, "#", qos=1)
    world.broker.publish(b"later", b"later", 1, False, world.now)
    world.settle()
    payloads = client.payloads()
    assert payloads[-1] == "later"
    assert len(payloads) == MANY + 1


@pytest.mark.reaches
@pytest.mark.long
def test_a_retained_message_that_expires_before_it_is_found_is_left_out() -> None:
    world = world_of()
    world.publish("z", "short", 1, retain=True, message_expiry_interval=5)
    client = world.connect("c")
    begin(client, "#")
    world.now += 6
    world.settle()
    assert len(client.payloads()) == MANY


@pytest.mark.long
@pytest.mark.parametrize(("expiry", "qos", "kept"), [(100, 1, MANY), (100, 0, 0), (0, 1, 0)])
def test_a_client_that_leaves_meanwhile_finds_the_rest_if_its_session_keeps_it(
    expiry: int, qos: int, kept: int
) -> None:
    world = world_of(topic="t/%d/x")
    client = world.connect("c", expiry=expiry, receive_maximum=1, auto_ack=False)
    begin(client, "+/+/x", qos=qos)
    client.lose()  # which takes no search: there may be thousands
    back = world.connect("c", expiry=100, clean_start=False, receive_maximum=10)
    assert back.connection.session_present is (expiry > 0)
    assert len(set(back.payloads())) == kept
    assert world.session("c").queued == 0


def test_messages_sent_before_come_before_retained_ones_yet_to_be_found() -> None:
    """And what came later after it, also if the client leaves again and again."""
    world = world_of(50)
    client = world.connect("c", expiry=100, receive_maximum=5, auto_ack=False)
    begin(client, "t/+", qos=1)
    world.settle()
    world.publish("t/x", "later", 1)
    order = [packet.payload for packet in publishes(client.received())]
    for window in (3, 1, 10):
        client.lose()
        client = world.connect("c", expiry=100, clean_start=False, receive_maximum=window, auto_ack=False)
        again = publishes(client.received())
        assert [packet.dup for packet in again] == [packet.payload in order for packet in again]
        payloads = [packet.payload for packet in again]
        assert payloads == [*order, *payloads[len(order) :]][:window]
        order += payloads[len(order) :]
    while publishes(again):
        client.send(*[Ack(PUBACK, packet.packet_id) for packet in publishes(again)])
        again = client.received()
        order += [packet.payload for packet in publishes(again)]
    assert len(order) == len(set(order)) == 51
    assert order[-1] == b"later"


def test_retained_messages_at_qos_0_are_lost_with_the_connection_and_counted() -> None:
    world = world_of(3)
    client = world.connect("c", expiry=100)
    client.block()
    begin(client, "t/+", "t/0", qos=0)
    begin(client, "t/1", qos=1)
    client.lose()
    assert world.session("c").drops == {QOS0_OFFLINE: 4}
    back = world.connect("c", expiry=100, clean_start=False)
    assert back.payloads() == ["1"]


@pytest.mark.long
def test_searches_of_several_filters_follow_each_other() -> None:
    world = world_of(MANY, "t/%d")
    world.publish("u", "u", 1, retain=True)
    client = world.connect("c")
    begin(client, "t/+", "u", "none", "+")
    world.settle()
    payloads = client.payloads()
    assert len(payloads) == MANY + 2
    assert payloads[-2:] == ["u", "u"]


def test_a_burst_counts_what_waits() -> None:
    retained: RetainedMessages[Message] = RetainedMessages()
    for number in range(2 * RETAINED_LOOKED_AT):
        retained.put(b"t/%d" % number, Message(b"t/%d" % number, b"x"))
    retained_replay = RetainedReplays()
    retained_replay.add(RetainedReplay(retained.search(b"none"), 0, ()))
    assert len(retained_replay) == 0
    retained_replay.add(RetainedReplay(retained.search(b"t/+"), 1, ()))
    assert (len(retained_replay), retained_replay.first()) == (1, None)
    assert retained_replay.look(0.0) == RETAINED_LOOKED_AT * LOOKING_BYTES
    assert retained_replay.first() is not None
    assert len(retained_replay) == RETAINED_LOOKED_AT + 1
    retained_replay.add(RetainedReplay(retained.search(b"#"), 0, ()))
    assert len(retained_replay) == 3 * RETAINED_LOOKED_AT + 1
    assert retained_replay.give_up(False) == 0
    assert len(retained_replay) == RETAINED_LOOKED_AT + 1
    retained_replay.add(RetainedReplay(retained.search(b"#"), 1, ()))
    retained_replay.give_up(True)
    assert len(retained_replay) == RETAINED_LOOKED_AT
    for _ in range(RETAINED_LOOKED_AT):
        retained_replay.pop()
    assert not retained_replay
    retained_replay.add(RetainedReplay(retained.search(b"+/none"), 1, ()))
    retained_replay.look(0.0)
    assert len(retained_replay) == 1
    retained_replay.look(0.0)
    assert not retained_replay


def test_a_filter_is_searched_for_once_at_a_time() -> None:
    retained: RetainedMessages[Message] = RetainedMessages()
    for number in range(3 * RETAINED_LOOKED_AT):
        retained.put(b"t/%d" % number, Message(b"t/%d" % number, b"x"))
    retained_replay = RetainedReplays()
    for _ in range(2):
        retained_replay.add(RetainedReplay(retained.search(b"t/+"), 1, ()))
        retained_replay.add(RetainedReplay(retained.search(b"#"), 1, ()))
        assert len(retained_replay) == 1 + 3 * RETAINED_LOOKED_AT
    retained_replay.look(0.0)
    retained_replay.add(RetainedReplay(retained.search(b"t/+"), 1, ()))  # what was found for it before is still sent
    assert len(retained_replay) == RETAINED_LOOKED_AT + 1 + 3 * RETAINED_LOOKED_AT
    retained_replay.discard(b"t/+")
    retained_replay.discard(b"t/+")
    assert len(retained_replay) == 3 * RETAINED_LOOKED_AT
    retained_replay.discard(b"#")
    assert not retained_replay


def test_acknowledgements_open_the_window_for_what_is_yet_to_be_found() -> None:
    world = world_of(500)
    client = world.connect("c", receive_maximum=1, auto_ack=False)
    begin(client, "t/+", qos=1)
    world.settle()
    got = 0
    while True:
        packets = publishes(client.received())
        if not packets:
            break
        got += len(packets)
        client.send(*[Ack(PUBACK, packet.packet_id) for packet in packets])
    assert got == 500
