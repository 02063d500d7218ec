"""A broker begins with what a store kept: the state before is the state after, and all go on where they were."""

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.changes import EndSession, Enqueue, SaveWill, Sent, Settled
from mqttlite.core.limits import DROP_OLDEST, Limits
from mqttlite.core.message import Delivery, Message
from mqttlite.core.reasons import EXPIRED
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Subscribe, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes, request
from tests.support.stores import loaded


def shape(delivery: Delivery) -> tuple[object, ...]:
    message = delivery.message
    return message.topic, message.payload, message.qos, message.expires_at, delivery.qos, delivery.retain


def grown_world() -> World:
    """A world with everything in it that is kept."""
    world = World()
    away = world.connect("away", expiry=100, auto_ack=False)
    away.subscribe(request("a/#", 2, retain_as_published=True), request("b", 1), "$share/g/c", identifier=7)
    for number in range(4):
        world.publish("a/b", f"message {number}", 2)
    away.send(Ack(PUBREC, 2))
    away.publish("x", "mine", 2, packet_id=9)
    away.disconnect()
    world.publish("b", "queued", 1)
    world.publish("r", "retained", 1, retain=True)
    world.publish("r/expiring", "retained", 1, retain=True, message_expiry_interval=50)
    world.connect("there", expiry=NEVER_EXPIRES, clean_start=False).subscribe("t")
    world.connect("brief").subscribe("a/#")
    return world


def test_kept_state_is_restored() -> None:
    before = grown_world()
    after = before.restart()
    assert {"away", "there"} == set(after.broker.sessions._by_client_id)
    for client_id in ("away", "there"):
        old, new = before.session(client_id), after.session(client_id)
        assert list(new.window.resend) == [*old.inflight.by_id(), *old.window.resend]
        assert list(map(shape, new.queue.deliveries)) == list(map(shape, old.queue.deliveries))
        assert new.queue.first == old.queue.first
        assert (new.username, new.version) == (old.username, old.version)
        assert new.window.released.all() == old.window.released.all()
        assert new.received.all() == old.received.all()
        assert new.subscriptions == old.subscriptions
        assert new.expiry_interval == old.expiry_interval
    assert after.broker.effects.changes == []


def test_a_client_goes_on_where_it_was() -> None:
    after = grown_world().restart()
    client = after.connect("away", clean_start=False, expiry=100, auto_ack=False)
    assert client.connection.session_present
    received = client.received()
    assert received[0] == Ack(PUBREL, 2)
    assert [(packet.packet_id, packet.payload) for packet in publishes(received)] == [
        (1, b"message 0"),
        (3, b"message 2"),
        (4, b"message 3"),
        (5, b"queued"),
    ]
    client.send(Publish(b"x", b"mine", 2, dup=True, packet_id=9), Ack(PUBREL, 9))
    assert [packet.reason_code for packet in client.received() if isinstance(packet, Ack)] == [0, 0]
    after.publish("a", "new", 2)
    (packet,) = publishes(client.received())
    assert (packet.packet_id, packet.properties.subscription_identifiers) == (6, [7])
    after.publish("c", "shared", 1)
    assert client.payloads() == ["shared"]


def test_retained_messages_are_there_again_until_they_expire() -> None:
    after = grown_world().restart()
    reader = after.connect("reader")
    reader.subscribe("#")
    assert sorted(topic for topic, _payload in reader.messages()) == ["r", "r/expiring"]
    after.advance(50)
    reader.subscribe("#")
    assert [topic for topic, _payload in reader.messages()] == ["r"]


def test_room_for_retained_messages_counts_what_was_there() -> None:
    after = grown_world().restart(Limits(max_retained_messages=2))
    assert after.publish("more", "x", retain=True) == 0x97
    assert after.publish("r", "replaced", retain=True) == 0x10


def test_a_session_that_was_left_expires_at_its_time_and_one_that_was_not_as_if_it_were_left_now() -> None:
    world = World()
    world.connect("left", expiry=100).lose()
    world.connect("there", expiry=100)
    world.advance(40)
    after = world.restart()
    after.advance(59.9)
    assert after.session("left")
    after.advance(0.1)
    assert after.broker.sessions.get("left") is None
    after.advance(39.9)
    assert after.session("there")
    after.advance(0.1)
    assert after.broker.sessions.get("there") is None
    assert loaded(after.store) == []


def test_a_session_that_expired_while_nobody_looked_is_over_at_the_first_tick() -> None:
    world = World()
    world.connect("c", expiry=10).lose()
    world.now += 1_000
    after = world.restart()
    after.advance(0)
    assert len(after.broker.sessions) == 0


def test_a_change_that_says_what_goes_is_nothing_to_restore() -> None:
    for change in (EndSession("c"), Sent("c", 1, 1), Settled("c", 1)):
        with pytest.raises(TypeError, match="says what goes"):
            Broker(Limits()).restore([[change]], 0.0)


def test_rows_of_a_session_come_after_it() -> None:
    orphan = Enqueue("c", 1, Delivery(Message(b"t", b"x", 1), 1, False))
    with pytest.raises(AssertionError, match="'c' comes after its parts"):
        Broker(Limits()).restore([[orphan]], 0.0)


def test_a_store_that_kept_nothing_gives_an_empty_broker() -> None:
    world = World(store=MemoryStore())
    assert len(world.broker.sessions) == 0
    assert world.broker.due_at() is None


# ── what was queued, and what was sent ─────────────────────────────────────────────────────────────────────────────


def test_a_message_that_expired_while_it_waited_is_dropped_after_a_restart() -> None:
    world = World()
    world.connect("c", expiry=1_000).subscribe("t", qos=1)
    world.connect("c", expiry=1_000, clean_start=False).lose()
    world.publish("t", "brief", 1, message_expiry_interval=5)
    world.publish("t", "lasting", 1)
    after = world.restart()
    after.advance(10)
    client = after.connect("c", expiry=1_000, clean_start=False)
    (packet,) = publishes(client.received())
    assert (packet.payload, packet.dup) == (b"lasting", False)
    assert after.session("c").drops == {EXPIRED: 1}
    assert after.restart().session("c").queued == 0


def test_only_what_was_sent_before_a_restart_says_that_it_may_have_come_before() -> None:
    world = World()
    client = world.connect("c", expiry=1_000, receive_maximum=2, auto_ack=False)
    client.subscribe("t", qos=2)
    for number in range(4):
        world.publish("t", f"{number}", 2)
    after = world.restart()
    client = after.connect("c", expiry=1_000, clean_start=False, auto_ack=False)
    got = [(packet.payload, packet.dup, packet.packet_id) for packet in publishes(client.received())]
    assert got == [(b"0", True, 1), (b"1", True, 2), (b"2", False, 3), (b"3", False, 4)]


def test_a_sent_message_waits_for_the_store_to_know_it() -> None:
    """Else a restart might give its packet identifier to another message."""
    world = World()
    client = world.connect("c", expiry=1_000, receive_maximum=1, auto_ack=False)
    client.subscribe("t", qos=1)
    world.publish("t", "first", 1)
    world.publish("t", "second", 1)
    client.connection.outbox.awaits_commit = False
    world.broker.feed(client.connection, encode(Ack(PUBACK, 1), V5), world.now)
    kinds = [type(change) for change in world.broker.effects.changes]
    assert kinds == [Settled, Sent]
    assert client.connection.outbox.awaits_commit
    world.settle()


def test_the_oldest_message_makes_room_after_a_restart_too() -> None:
    limits = Limits(max_queued_messages=2, on_overflow=DROP_OLDEST)
    world = World(limits)
    world.connect("c", expiry=1_000).subscribe("t", qos=1)
    world.connect("c", expiry=1_000, clean_start=False).lose()
    world.publish("t", "a", 1)
    world.publish("t", "b", 1)
    after = world.restart()
    after.publish("t", "c", 1)
    assert after.restart().connect("c", expiry=1_000, clean_start=False).payloads() == ["b", "c"]


def test_a_retained_message_that_overtook_the_queue_is_sent_again_before_it() -> None:
    world = World()
    world.publish("r", "retained", 1, retain=True)
    client = world.connect("c", expiry=1_000, receive_maximum=2, auto_ack=False)
    client.subscribe("t", qos=1)
    for payload in ("a", "b", "waits"):
        world.publish("t", payload, 1)
    client.send(Subscribe(7, (request("r", 1),)), Ack(PUBACK, 1))
    assert client.payloads() == ["a", "b", "retained"]
    after = world.restart()
    client = after.connect("c", expiry=1_000, clean_start=False, auto_ack=False)
    got = [(packet.payload, packet.dup) for packet in publishes(client.received())]
    assert got == [(b"b", True), (b"retained", True), (b"waits", False)]
    client.send(Subscribe(8, (request("r", 1),)))
    assert client.payloads() == ["retained"]
    assert len({change.sequence for change in loaded(after.store) if isinstance(change, Enqueue)}) == 4


# ── wills ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def will(delay: int) -> Will:
    return Will(b"will", b"gone", 1, False, Properties(will_delay_interval=delay))


def heirs(world: World) -> Client:
    heir = world.connect("heir")
    heir.subscribe("will", qos=1)
    return heir


def test_a_delayed_will_outlives_the_broker_and_is_sent_once() -> None:
    world = World()
    world.connect("c", expiry=1_000, will=will(60)).lose()
    world.advance(20)
    after = world.restart()
    heir = heirs(after)
    after.advance(39)
    assert heir.payloads() == []
    after.advance(1)
    assert heir.payloads() == ["gone"]
    again = after.restart()
    heir = heirs(again)
    again.advance(2_000)
    assert heir.payloads() == []


def test_a_delayed_will_that_came_due_while_there_was_no_broker_is_sent_at_the_first_tick() -> None:
    world = World()
    world.connect("c", expiry=1_000, will=will(60)).lose()
    world.now += 100
    after = world.restart()
    heir = heirs(after)
    after.advance(0)
    assert heir.payloads() == ["gone"]


def test_a_restored_will_does_not_wait_for_more_than_the_end_of_its_session() -> None:
    world = World()
    world.connect("c", expiry=30, will=will(60)).lose()
    after = world.restart()
    heir = heirs(after)
    after.advance(100)
    assert heir.payloads() == ["gone"]
    assert loaded(after.store) == []


def test_a_client_that_is_back_after_a_restart_takes_its_will_back() -> None:
    world = World()
    world.connect("c", expiry=1_000, will=will(60)).lose()
    after = world.restart()
    heir = heirs(after)
    after.connect("c", expiry=1_000, clean_start=False)
    after.restart().advance(500)
    after.advance(500)
    assert heir.payloads() == []
    assert [change for change in loaded(after.store) if isinstance(change, SaveWill)] == []


# ── who it was ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_knows_whose_it_was() -> None:
    world = World()
    world.connect("c", version=V311, username="somebody", clean_start=False).lose()
    world.connect("d", expiry=100).lose()
    after = world.restart()
    assert (after.session("c").username, after.session("c").version) == ("somebody", V311)
    assert (after.session("d").username, after.session("d").version) == (None, V5)


def test_purged_messages_do_not_come_back() -> None:
    world = World()
    away = world.connect("away", expiry=100, receive_maximum=1, auto_ack=False)
    away.subscribe("t", qos=1)
    for number in range(5):
        world.publish("t", str(number), 1)
    away.lose()
    assert world.broker.purge("away", 2, world.now) == 2
    assert world.broker.purge("nobody", 2, world.now) == 0
    world.settle()
    world.publish("t", "5", 1)
    after = world.restart()
    assert after.connect("away", clean_start=False).payloads() == ["0", "3", "4", "5"]
