"""A queue delivers each message until a consumer acknowledges it, or gives it up; to consumers it is a subscription."""

from typing import Final

import pytest

from mqttlite.core.authentication import Grants
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.message import Delivery
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.extensions.queues.errors import QueueRecordError
from mqttlite.extensions.queues.limits import COMMIT_S, MAX_OUTSTANDING
from mqttlite.extensions.queues.options import MIN_IDLE_S, DeliveryOptions, QueueOptions, RetryOptions
from mqttlite.extensions.queues.requested import made_of
from mqttlite.log.deliveries import ARRIVAL_S
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V311
from mqttlite.wire.packets import Ack, Publish, Unsuback, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes, request
from tests.support.queues import QueueWorld, ack, consumer, deliveries, options, told
from tests.support.rules import OpenRules


class ConsumersOnly(OpenRules):
    """Clients may subscribe to `$queue/q` alone."""

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return topic_filter == b"$queue/q"

    def may_receive(self, role: int, topic: bytes) -> bool:
        return False

    def is_readable(self, topic: bytes) -> bool:
        return False


class OnlyTheClient(OpenRules):
    """One client may subscribe to `$queue/q`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id == self._client_id)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return role == 1


class SecretsOfOne(OpenRules):
    """Below `a/secret` only the client `d` receives."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if client_id == "d" else 0

    def may_receive(self, role: int, topic: bytes) -> bool:
        return role == 1 or not topic.startswith(b"a/secret/")

    def is_readable(self, topic: bytes) -> bool:
        return False


def test_a_consumer_gets_the_message_with_its_topic_and_what_is_to_be_known_of_it() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    publisher = world.connect("p")
    publisher.send(Publish(b"a/b", b"x", 1, packet_id=1, properties=Properties(user_properties=[("k", "v")])))
    assert publisher.received() == [Ack(PUBACK, 1)]
    (packet,) = publishes(client.received())
    assert (packet.topic, packet.payload, packet.qos, packet.dup, packet.retain) == (b"a/b", b"x", 1, False, False)
    properties = told(packet)
    assert list(properties) == ["k", "ack-id", "message-id", "delivery-attempt", "publish-time"]
    assert properties["delivery-attempt"] == "1"
    assert properties["publish-time"].startswith("1970-01-12T13:46:40.")
    assert world.queues.state("q").leased == 1
    ack(client, packet)
    assert (world.queues.state("q").depth, world.ends()) == (0, {"acknowledged": 1})
    world.end()


def test_messages_wait_for_a_consumer_in_their_order_and_consumers_take_turns() -> None:
    world = QueueWorld([options()])
    for number in range(6):
        assert world.publish("a/b", str(number), number % 3) == 0
    first, second = consumer(world, "1", receive_maximum=1), consumer(world, "2", receive_maximum=5)
    one, others = publishes(first.received()), publishes(second.received())
    assert deliveries(one) == [("0", 1)]
    assert deliveries(others) == [(str(number), 1) for number in range(1, 6)]
    third = consumer(world, "3")
    ack(second, others[0])
    for number in range(4):
        world.publish("a", f"new {number}")
    assert deliveries(second.received()) == [("new 1", 1)]
    assert deliveries(third.received()) == [("new 0", 1), ("new 2", 1), ("new 3", 1)]
    world.end()


def test_the_receive_maximum_is_the_window() -> None:
    world = QueueWorld([options()])
    client = consumer(world, receive_maximum=2)
    for number in range(5):
        world.publish("a", str(number))
    got: list[str] = []
    for _ in range(3):
        packets = publishes(client.received())
        assert len(packets) <= 2
        got += [packet.payload.decode() for packet in packets]
        for packet in packets:
            ack(client, packet)
    assert got == ["0", "1", "2", "3", "4"]
    assert world.ends() == {"acknowledged": 5}
    world.end()


AT_ONCE: Final = RetryOptions(min_s=1, max_s=4, on_deadline="at_once")


def test_after_the_deadline_and_never_before_it_comes_again_as_a_new_publish() -> None:
    world = QueueWorld([options(retry=AT_ONCE)])
    client = consumer(world)
    world.publish("a", "x")
    (first,) = publishes(client.received())
    world.advance(10.0)  # what is written takes a moment until its consumer has it
    assert client.received() == []
    world.advance(ARRIVAL_S)
    (second,) = publishes(client.received())
    assert (second.dup, second.packet_id != first.packet_id) == (False, True)
    assert (told(second)["delivery-attempt"], told(second)["message-id"]) == ("2", told(first)["message-id"])
    ack(client, first)  # late, but nobody else acknowledged
    assert world.ends() == {"acknowledged": 1}
    ack(client, second)
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_a_message_with_a_missed_deadline_waits_for_its_back_off() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    world.publish("a", "x")
    assert deliveries(client.received()) == [("x", 1)]
    world.advance(11.0)
    assert client.received() == []
    world.advance(0.1 + ARRIVAL_S)
    assert deliveries(client.received()) == [("x", 2)]
    world.advance(11.8)
    assert client.received() == [], "it doubles"
    world.advance(0.4 + ARRIVAL_S)
    assert deliveries(client.received()) == [("x", 3)]
    world.end()


def test_a_refused_message_waits_for_its_back_off_which_doubles_and_after_the_last_attempt_is_a_dead_letter() -> None:
    world = QueueWorld([options(max_attempts=3)])
    reader = world.connect("r")
    reader.subscribe("$dlq/#", qos=1)
    client = consumer(world)
    world.publish("a/b", "x", user_properties=[("k", "v")])
    reader.received()
    for attempt, wait in ((1, 1.0), (2, 2.0)):
        (packet,) = publishes(client.received())
        assert told(packet)["delivery-attempt"] == str(attempt)
        ack(client, packet, 0x80)
        world.advance(wait - 0.001)
        assert client.received() == []
        world.advance(wait * 0.1 + 0.001)
    (packet,) = publishes(client.received())
    ack(client, packet, 0x80)
    assert world.ends() == {"dead_lettered": 1}
    (letter,) = publishes(reader.received())
    assert (letter.topic, letter.payload) == (b"$dlq/q", b"x")
    properties = told(letter)
    assert properties["k"] == "v"
    assert (properties["dead-letter-cause"], properties["delivery-attempts"]) == ("nacked", "3")
    assert (properties["original-topic"], properties["message-id"]) == ("a/b", told(packet)["message-id"])
    assert properties["first-delivery-time"] < properties["last-delivery-time"]
    world.end()


def test_a_disconnect_gives_the_message_to_another_consumer_at_once() -> None:
    world = QueueWorld([options()])
    first = consumer(world, "1", expiry=100)
    world.publish("a", "x")
    assert deliveries(first.received()) == [("x", 1)]
    second = consumer(world, "2")
    first.lose()
    assert deliveries(second.received()) == [("x", 2)]
    again = world.open()
    again.connect("1", clean_start=False, expiry=100, auto_ack=False)
    assert again.received() == [], "it is no message of the session's own"
    world.publish("a", "y")
    world.publish("a", "z")
    assert sorted(deliveries(again.received()) + deliveries(second.received())) == [("y", 1), ("z", 1)]
    world.end()


def test_a_consumer_that_unsubscribes_gets_nothing_more_and_may_acknowledge_what_it_has() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    client.send(Unsubscribe(9, (b"$queue/q",)))
    assert client.received() == [Unsuback(9, b"\0")]
    world.publish("a", "y")
    assert client.received() == []
    ack(client, packet)
    assert world.ends() == {"acknowledged": 1}
    assert world.queues.state("q").depth == 1
    world.end()


def test_a_3_1_1_consumer_gets_the_message_as_it_is() -> None:
    world = QueueWorld([options()])
    client = world.connect("c", V311)
    assert client.subscribe("$queue/q", qos=2) == b"\x01"
    world.publish("a/b", "x")
    assert client.payloads() == ["x"]
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_a_subscription_of_qos_0_is_done_with_what_it_was_sent() -> None:
    world = QueueWorld([options()])
    client = world.connect("c")
    assert client.subscribe("$queue/q", qos=0, identifier=7) == b"\0"
    world.publish("a/b", "x", 1)
    (packet,) = publishes(client.received())
    assert (packet.qos, packet.properties.subscription_identifiers) == (0, [7])
    assert world.ends() == {"acknowledged": 1}
    world.end()


@pytest.mark.parametrize("in_payload", [False, True])
def test_a_consumer_may_say_by_a_publish_what_becomes_of_a_message(in_payload: bool) -> None:
    world = QueueWorld([options()])
    client = consumer(world)

    def say(action: str, ack_id: str, seconds: str = "") -> int:
        packet_id = client.packet_id() + 100
        payload = f"{ack_id} {seconds}" if in_payload else seconds
        properties = Properties() if in_payload else Properties(correlation_data=ack_id.encode())
        client.send(Publish(f"$queue/q/{action}".encode(), payload.encode(), 1, False, False, packet_id, properties))
        return next(each.reason_code for each in client.received() if isinstance(each, Ack))

    world.publish("a", "x")
    (packet,) = publishes(client.received())
    first = told(packet)["ack-id"]
    assert say("$extend", first, "20") == 0
    world.advance(19.9)
    assert client.received() == []
    assert say("$extend", first) == 0  # by the deadline of the queue
    world.advance(9.9)
    assert say("$nack", first, "0.5") == 0
    world.advance(0.4)
    assert client.received() == []
    world.advance(0.1)
    (packet,) = publishes(client.received())
    assert say("$nack", first) == 0, "the message is not over"
    assert say("$ack", first) == 0
    assert world.ends() == {"acknowledged": 1}
    assert say("$ack", first) == 0x10
    assert say("$ack", "nonsense") == 0x10
    assert say("$ack", "1-1-1") == 0x10
    world.end()


def test_a_3_1_1_consumer_names_a_message_by_its_packet_identifier() -> None:
    world = QueueWorld([options(), options("other", "b/#")])
    client, another = world.connect("c", V311, auto_ack=False), world.connect("d", V311)
    client.subscribe("$queue/q", qos=1)

    def say(who: Client, action: str, payload: str, queue: str = "q") -> None:
        who.send(Publish(f"$queue/{queue}/{action}".encode(), payload.encode(), 1, False, False, 50))
        assert who.received() == [Ack(PUBACK, 50)]

    world.publish("a", "x")
    (packet,) = publishes(client.received())
    number = str(packet.packet_id)
    say(another, "$ack", number)
    say(client, "$ack", number, "other")
    say(client, "$ack", "100000")
    assert world.ends() == {}, "nothing of that queue has the number on that connection"
    say(client, "$extend", f"{number} 30")
    world.advance(29)
    say(client, "$nack", f"{number} 5")
    ack(client, packet)  # as clients send it by themselves
    world.advance(4.9)
    assert (client.received(), world.ends()) == ([], {}), "the PUBACK of what was refused acknowledges nothing"
    world.advance(0.1)
    (packet,) = publishes(client.received())
    say(client, "$ack", str(packet.packet_id))
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_a_packet_identifier_from_before_a_seek_names_nothing() -> None:
    world = QueueWorld([options(retain_acked=True)])
    client = consumer(world)
    world.publish("a", "x")
    world.publish("a", "y")
    first, second = publishes(client.received())
    ack(client, first)
    world.queues.seek("q", 0, lambda: None)
    world.settle()
    client.send(Publish(b"$queue/q/$ack", b"%d" % second.packet_id, 1, False, False, 50))
    [answer] = [each for each in client.received() if isinstance(each, Ack)]
    assert answer.reason_code == 0x10
    world.end()


def test_commands_to_a_queue_that_is_not_there_change_nothing() -> None:
    world = QueueWorld()
    client = world.connect("c")
    client.send(Publish(b"$queue/q/$ack", b"1-1-1"))
    client.send(Publish(b"$queue/q/$ack", b"1-1-1", 1, False, False, 5))
    assert client.received() == [Ack(PUBACK, 5, 0x10)]
    world.end()


def test_messages_with_one_key_are_delivered_one_after_the_other() -> None:
    world = QueueWorld([options(ordering=True, max_attempts=2)])
    for number, key in enumerate("ababcb"):
        world.publish("a", f"{key}{number}", user_properties=[("ordering-key", key)])
    world.publish("a", "none")
    client = consumer(world)
    packets = publishes(client.received())
    assert [payload for payload, _ in deliveries(packets)] == ["a0", "b1", "c4", "none"]
    ack(client, packets[0])
    (a2,) = publishes(client.received())
    assert a2.payload == b"a2"
    ack(client, packets[1], 0x80)
    world.advance(5)
    (again,) = publishes(client.received())
    assert deliveries([again]) == [("b1", 2)], "the key waits for its poisoned message"
    ack(client, again, 0x80)
    assert deliveries(client.received()) == [("b3", 1)], "and goes on behind it"
    assert world.ends() == {"acknowledged": 1, "dead_lettered": 1}
    world.end()


def test_a_higher_priority_is_first() -> None:
    world = QueueWorld([options(priority=True)])
    for payload, priority in (("a", "1"), ("b", "5"), ("c", "x"), ("d", "99"), ("e", "5")):
        world.publish("a", payload, user_properties=[("priority", priority)])
    client = consumer(world)
    assert [payload for payload, _ in deliveries(client.received())] == ["d", "b", "e", "a", "c"]
    world.end()


def test_expired_messages_are_not_delivered() -> None:
    world = QueueWorld([options(expiry_s=60)])
    world.publish("a", "short", message_expiry_interval=10)
    world.publish("a", "long")
    world.advance(10)
    client = consumer(world)
    assert deliveries(client.received()) == [("long", 1)]
    client.lose()
    world.advance(51)
    assert deliveries(consumer(world, "d").received()) == []
    assert world.ends() == {"expired": 2}
    world.end()


def test_the_remaining_expiry_is_told() -> None:
    world = QueueWorld([options()])
    world.publish("a", "x", message_expiry_interval=10)
    world.advance(4)
    (packet,) = publishes(consumer(world).received())
    assert packet.properties.message_expiry_interval == 6
    world.end()


@pytest.mark.parametrize(
    ("policy", "kept", "ends"),
    [
        ("drop_newest", ["0", "1"], {}),
        ("drop_oldest", ["1", "2"], {"purged": 1}),
        ("dead_letter", ["1", "2"], {"dead_lettered": 1}),
    ],
)
def test_a_full_queue_refuses_or_gives_up_the_oldest(policy: str, kept: list[str], ends: dict[str, int]) -> None:
    world = QueueWorld([options(max_messages=2, on_overflow=policy)])
    codes = [world.publish("a", str(number), 1) for number in range(3)]
    assert codes == [0, 0, 0x97 if policy == "drop_newest" else 0]
    assert [payload for payload, _ in deliveries(consumer(world).received())] == kept
    assert world.ends() == ends
    world.end()


def test_a_message_that_a_client_takes_no_packet_for_is_tried_again_and_given_up() -> None:
    world = QueueWorld([options(max_attempts=2)])
    consumer(world, maximum_packet_size=100)
    world.publish("a", "x" * 100)
    world.advance(10)
    assert world.ends() == {"dead_lettered": 1}
    assert world.queues.state("q").failures["too_large"] == 2
    world.end()


def test_without_dead_letters_what_is_given_up_is_dropped() -> None:
    world = QueueWorld([options(max_attempts=1, dead_letter=False)])
    client = consumer(world)
    world.publish("a", "x")
    ack(client, publishes(client.received())[0], 0x80)
    assert world.ends() == {"purged": 1}
    world.end()


def test_a_blocked_consumer_gets_nothing_until_it_reads() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    client.block()
    world.publish("a", "x")
    assert world.queues.state("q").leased == 0
    client.unblock()
    assert deliveries(client.received()) == [("x", 1)]
    world.end()


def test_consumers_need_no_permission_for_the_bindings_of_a_queue() -> None:
    world = QueueWorld([options()])
    world.broker.authorize(built_in_rules(authorizer=ConsumersOnly()))
    client = world.connect("c")
    assert client.subscribe("a/#", "$queue/other", "$queue/q", "$queue/q/a/#", qos=1) == b"\x87\x87\x01\x01"
    world.publish("a/b", "x")
    assert deliveries(client.received()) == [("x", 1)]
    client.send(Publish(b"$queue/other/$ack", b"1-1-1", 1, False, False, 5))
    assert [each.reason_code for each in client.received() if isinstance(each, Ack)] == [0x87]
    world.end()


def test_a_subscriber_makes_a_queue_where_that_is_allowed() -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=True, max_queues=2))
    client = world.connect("c")
    wanted = ("$queue/q/a/+", "$queue/q/a/+", "$queue/q/b", "$queue/q", "$queue/x", "$queue/y y/a", "$queue/r/a")
    assert client.subscribe(*wanted, "$queue/s/a", qos=1) == b"\x01\x01\x8f\x01\x8f\x8f\x01\x8f"
    assert world.queues.names == ["q", "r"]
    world.end()


def test_subscribers_of_one_user_make_a_number_of_queues_and_others_still_can() -> None:
    delivery = DeliveryOptions(create_by_subscribing=True, max_queues_per_user=2)
    world = QueueWorld([QueueOptions(name="configured", filters=("x",))], delivery=delivery)
    ann, anns, nobody = world.connect("c", username="ann"), world.connect("d", username="ann"), world.connect("e")
    assert ann.subscribe("$queue/a1/a", "$queue/a1/a", "$queue/configured", qos=1) == b"\x01\x01\x01"
    assert anns.subscribe("$queue/a2/a", "$queue/a3/a", qos=1) == b"\x01\x8f"
    assert nobody.subscribe("$queue/n1/a", "$queue/n2/a", "$queue/n3/a", qos=1) == b"\x01\x01\x8f"
    world.queues.delete("a1")
    assert ann.subscribe("$queue/a3/a", "$queue/a4/a", qos=1) == b"\x01\x8f"
    world = QueueWorld(store=world.store, now=world.now, delivery=delivery)
    assert world.connect("c", username="ann").subscribe("$queue/a4/a", qos=1) == b"\x8f", "also after a restart"
    assert world.connect("f", username="bob").subscribe("$queue/b1/a", qos=1) == b"\x01"
    world.end()


def test_a_queue_that_a_subscriber_made_ends_when_all_that_it_could_have_has_expired() -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=True))
    client = world.connect("c")
    client.subscribe("$queue/usual/a", qos=1)
    for asked_s, idle_s in ((1, MIN_IDLE_S), (90_000, 90_000)):
        assert made_of("q", "a", {"expiry_s": asked_s}).idle_expiry_s == idle_s
    assert world.queues.options("usual").idle_expiry_s == world.queues.options("usual").expiry_s == 7 * 86_400
    world.end()


@pytest.mark.long
def test_a_message_to_many_queues_takes_several_iterations() -> None:
    world = QueueWorld([QueueOptions(name=f"q{number}", filters=("a",)) for number in range(1_000)])
    before = world.broker.effects.work
    world.broker.publish(b"a", b"x", 1, False, world.now)
    waiting = sum(world.queues.state(f"q{number}").depth for number in range(1_000))
    assert 0 < waiting < 500
    assert world.broker.effects.work - before < 2 * ITERATION_WORK
    world.settle()
    assert sum(world.queues.state(f"q{number}").depth for number in range(1_000)) == 1_000
    world.end()


def test_a_subscriber_makes_no_queue_of_topics_that_it_may_not_read() -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=True))
    world.broker.authorize(built_in_rules(authorizer=ConsumersOnly()))
    client = world.connect("c")
    assert client.subscribe("$queue/q/a/+") == b"\x8f"
    assert world.queues.names == []
    world.end()


def test_consumers_of_a_queue_that_a_subscriber_made_get_no_message_that_they_may_not_receive() -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=True))
    world.broker.authorize(built_in_rules(authorizer=SecretsOfOne()))
    client = world.connect("c", auto_ack=True)
    assert client.subscribe("$queue/q/a/#", qos=1) == b"\x01"
    for topic, payload in (("a/open", "1"), ("a/secret/x", "2"), ("a/open", "3")):
        world.publish(topic, payload, 1)
    assert deliveries(client.received()) == [("1", 1)]
    assert (world.queues.state("q").consumers, world.broker.permissions.denied["receive"]) == (0, 1)
    other = consumer(world, "d")
    assert deliveries(other.received()) == [("2", 1), ("3", 1)]
    assert client.subscribe("$queue/q", "$queue/q/a/#", qos=1) == b"\x01\x01"
    world.publish("a/open", "4", 1)
    assert "4" in [payload for payload, _ in deliveries([*client.received(), *other.received()])]
    world.end()


def test_a_message_that_no_consumer_may_receive_waits_over_a_restart() -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=True))
    world.broker.authorize(built_in_rules(authorizer=SecretsOfOne()))
    world.connect("c").subscribe("$queue/q/a/#", qos=1)
    world.publish("a/secret/x", "1", 1)
    world.publish("a/open", "2", 1)
    world = world.restart()
    world.broker.authorize(built_in_rules(authorizer=SecretsOfOne()))
    client = world.connect("c")
    assert client.subscribe("$queue/q", qos=1) == b"\x01"
    assert deliveries(client.received()) == []
    assert deliveries(consumer(world, "d").received()) == [("1", 1), ("2", 1)]
    world.end()


def test_no_local_retain_and_retained_messages_are_as_with_shared_subscriptions() -> None:
    world = QueueWorld([options()])
    world.publish("a", "retained", 1, retain=True)
    client = world.connect("c")
    client.subscribe(request("$queue/q", 1, no_local=True, retain_as_published=True))
    client.publish("a", "own", 0)
    assert [(each.payload, each.retain) for each in publishes(client.received())] == [
        (b"retained", False),
        (b"own", False),
    ]
    world.end()


# ── a restart ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pages", [False, True])
def test_unacknowledged_messages_survive_a_restart_with_their_attempts(pages: bool) -> None:
    world = QueueWorld([options(max_attempts=2)], MemoryStore(pages=pages))
    client = consumer(world, receive_maximum=3)
    for number in range(6):
        world.publish("a", str(number), 1)
    packets = publishes(client.received())
    ack(client, packets[1])
    world = world.restart()
    assert world.queues.state("q").depth == 5
    client = consumer(world, "d")
    assert sorted(deliveries(client.received())) == [("0", 2), ("2", 2), ("3", 2), ("4", 1), ("5", 1)]
    world = world.restart()
    client = consumer(world, "d")
    assert sorted(deliveries(client.received())) == [("4", 2), ("5", 2)]
    assert world.ends() == {"dead_lettered": 3}
    letters = [letter.value("dead-letter-cause") for letter in world.queues.dead_letters("q").letters()]
    assert letters == ["disconnected"] * 3
    world = world.restart()
    assert len(world.queues.dead_letters("q")) == 5
    world.end()


def test_a_back_off_goes_on_after_a_restart() -> None:
    world = QueueWorld([options(retry=RetryOptions(min_s=10, max_s=10))])
    client = consumer(world)
    world.publish("a", "x", 1)
    ack(client, publishes(client.received())[0], 0x80)
    world.advance(5)
    world = world.restart()
    client = consumer(world)
    world.advance(4.9)
    assert client.received() == []
    world.advance(1.2)
    assert deliveries(client.received()) == [("x", 2)]
    world.end()


def test_keys_keep_their_order_over_a_restart() -> None:
    world = QueueWorld([options(ordering=True)])
    for number in range(4):
        world.publish("a", str(number), 1, user_properties=[("ordering-key", "k")])
    client = consumer(world, expiry=1_000)
    assert deliveries(client.received()) == [("0", 1)]
    world = world.restart()
    client = world.open()
    client.connect("c", clean_start=False, expiry=1_000)
    assert deliveries(client.received()) == [("0", 2), ("1", 1), ("2", 1), ("3", 1)]
    world.end()


@pytest.mark.long
def test_a_long_backlog_is_in_the_store_and_read_by_pages() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    client = consumer(world, "1")
    client.lose()
    for number in range(1_000):
        world.publish("a", str(number))
    state = world.queues.state("q")
    assert (state.depth, len(world.queues.peek("q", 1_000))) == (1_000, 250)
    client = consumer(world, "2", auto_ack=True, receive_maximum=7)
    world.advance(1)
    assert world.ends() == {"acknowledged": 1_000}
    world.end()


class LossyStore(MemoryStore):
    """Has lost the message with that sequence, and counts how often it is read."""

    def __init__(self, lost: int) -> None:
        super().__init__(pages=True)
        self._lost = lost
        self.reads = 0

    def read(self, client_id: str, first: int, count: int) -> list[Delivery | None]:
        self.reads += 1
        assert self.reads < 20, "what is lost is read again and again"
        page = super().read(client_id, first, count)
        if first <= self._lost < first + len(page):
            page[self._lost - first] = None
        return page


@pytest.mark.long
def test_messages_that_the_store_has_lost_are_skipped_at_their_turn() -> None:
    store = LossyStore(600)
    world = QueueWorld([options()], store)
    for number in range(1_000):
        world.publish("a", str(number))
    client = consumer(world, auto_ack=True, receive_maximum=7)
    world.advance(1)
    got = [packet.payload for packet in client.received() if isinstance(packet, Publish)]
    assert got == [b"%d" % number for number in range(1_000) if number != 600]
    assert world.ends() == {"acknowledged": 999, "purged": 1}
    world.end()


def test_a_consumer_that_lost_its_right_gets_nothing_until_it_has_it_again() -> None:
    world = QueueWorld([options()])
    one, other = consumer(world, "one", auto_ack=True), consumer(world, "other", auto_ack=True)
    for holder, name in ((one, "one"), (other, "other"), (one, "one")):
        world.broker.authorize(built_in_rules(authorizer=OnlyTheClient(name)))
        world.queues.on_new_rules()
        for number in range(4):
            world.publish("a", f"{name} {number}", 1)
        got = {each: each.payloads() for each in (one, other)}
        assert got == {one: [], other: []} | {holder: [f"{name} {number}" for number in range(4)]}
    world.broker.authorize(built_in_rules(authorizer=OnlyTheClient("nobody")))
    world.queues.on_new_rules()
    before = world.broker.permissions.denied["subscribe"]
    for _ in range(3):
        world.publish("a", "waits", 1)
    assert (one.payloads(), other.payloads(), world.queues.state("q").waiting) == ([], [], 3)
    assert world.broker.permissions.denied["subscribe"] - before <= 2, "told once for each consumer"
    world.broker.authorize(built_in_rules())
    world.queues.on_new_rules()
    world.settle()
    assert sorted([*one.payloads(), *other.payloads()]) == ["waits"] * 3
    world.end()


def test_a_session_that_comes_back_without_its_right_consumes_nothing() -> None:
    world = QueueWorld([options()])
    consumer(world, expiry=100).lose()
    world.broker.authorize(built_in_rules(authorizer=OnlyTheClient("other")))
    world.publish("a", "x", 1)
    client = world.connect("c", expiry=100, clean_start=False)
    assert client.payloads() == []
    again = world.restart()
    again.broker.authorize(built_in_rules(authorizer=OnlyTheClient("other")))
    assert again.connect("c", expiry=100, clean_start=False).payloads() == []
    assert again.queues.state("q").waiting == 1
    again.end()


def test_a_queue_whose_options_cannot_be_used_is_named() -> None:
    store = MemoryStore()
    QueueWorld([options()], store).publish("a", "x")
    key = f"{LOG_MARK}$queue/q"
    for data in (b'{"options": {"name": "q", "later": 1}, "origin": "config"}', b"", b"{", b"[1]"):
        store.commit([SaveRecord(key, data)])
        with pytest.raises(QueueRecordError, match=r"the options of \$queue/q cannot be used: .* nothing was changed"):
            QueueWorld([], store)


# ── an operator ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queues_are_made_changed_and_deleted() -> None:
    world = QueueWorld()
    client = world.connect("c", auto_ack=False)
    world.queues.create(options())
    with pytest.raises(ValueError, match="already"):
        world.queues.create(options())
    assert client.subscribe("$queue/q", qos=1) == b"\x01"
    world.queues.change(options("q", "b"))
    world.publish("a", "x")
    world.publish("b", "y")
    assert deliveries(client.received()) == [("y", 1)]
    world.queues.delete("q")
    world.settle()
    with pytest.raises(LookupError, match="no queue 'q'"):
        world.queues.state("q")
    world = world.restart()
    assert world.queues.names == []
    world.end()


def test_a_paused_queue_takes_messages_and_delivers_none_also_after_a_restart() -> None:
    world = QueueWorld([options()])
    world.queues.pause("q", True)
    client = consumer(world)
    world.publish("a", "x", 1)
    assert client.received() == []
    assert world.queues.pull("q", 1) == []
    world = world.restart()
    client = consumer(world)
    assert client.received() == []
    world.queues.pause("q", False)
    world.settle()
    assert deliveries(client.received()) == [("x", 1)]
    world.end()


def test_a_purge_drops_everything_and_the_queue_goes_on() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    client = consumer(world, receive_maximum=1)
    for number in range(1_000):
        world.publish("a", str(number), 1)
    (packet,) = publishes(client.received())
    assert world.queues.purge("q") == 1_000
    world.publish("a", "new", 1)
    ack(client, packet)
    assert deliveries(client.received()) == [("new", 1)]
    assert world.ends() == {"purged": 1_000}
    world = world.restart()
    assert world.queues.state("q").depth == 1
    world.end()


def test_a_caller_that_is_no_client_pulls_acknowledges_refuses_and_extends() -> None:
    world = QueueWorld([options()])
    for number in range(4):
        world.publish("a", str(number))
    pulled = world.queues.pull("q", 3, 20.0, "someone")
    assert [(each.message.payload, each.attempt, each.deadline_s) for each in pulled] == [
        (b"0", 1, 20.0),
        (b"1", 1, 20.0),
        (b"2", 1, 20.0),
    ]
    assert world.queues.ack("q", [pulled[0].ack_id, "x"]) == [True, False]
    assert world.queues.nack("q", [pulled[1].ack_id], 0.0) == [True]
    assert world.queues.extend("q", [pulled[2].ack_id], 100.0) == [True]
    world.settle()
    assert [(each.message.payload, each.attempt) for each in world.queues.pull("q", 9)] == [(b"1", 2), (b"3", 1)]
    world.settle()
    world = world.restart()
    world.advance(10.9)
    assert world.queues.pull("q", 9) == []
    world.advance(1.3 + COMMIT_S)  # the store has the time from before its commit
    assert sorted(each.message.payload for each in world.queues.pull("q", 9)) == [b"1", b"3"]
    world.settle()
    world.advance(91)
    assert b"2" in [each.message.payload for each in world.queues.pull("q", 9)]
    world.settle()
    world.end()


def test_dead_letters_are_replayed_and_dropped() -> None:
    world = QueueWorld([options(max_attempts=1)])
    client = consumer(world)
    for payload in "xy":
        world.publish("a/b", payload, user_properties=[("k", "v")])
        (packet,) = publishes(client.received())
        ack(client, packet, 0x80)
    first, second = world.queues.dead_letters("q").letters()
    assert world.queues.replay("q", first.number)
    assert not world.queues.replay("q", first.number)
    world.settle()
    (packet,) = publishes(client.received())
    assert (packet.topic, packet.payload, told(packet)["message-id"]) == (b"a/b", b"x", first.value("message-id"))
    assert [key for key, _ in packet.properties.user_properties] == [
        "k",
        "ack-id",
        "message-id",
        "delivery-attempt",
        "publish-time",
    ]
    assert world.queues.drop_dead_letter("q", second.number)
    assert not world.queues.drop_dead_letter("q", second.number)
    world.settle()
    assert len(world.queues.dead_letters("q")) == 0
    world = world.restart()
    assert [letter.message.payload for letter in world.queues.dead_letters("q").letters()] == [b"x"]
    world.end()


def test_waiting_messages_expire_on_time_without_a_consumer() -> None:
    world = QueueWorld([options(expiry_s=60)])
    world.publish("a", "x", message_expiry_interval=10)
    for _ in range(3):
        world.publish("a", "y")
    world.advance(9.9)
    assert world.queues.state("q").depth == 4
    world.advance(0.1)
    assert world.queues.state("q").depth == 3
    world.advance(51)
    assert (world.queues.state("q").depth, world.ends()) == (0, {"expired": 4})
    world.end()


@pytest.mark.slow
def test_messages_behind_a_full_window_expire_too() -> None:
    world = QueueWorld([options(expiry_s=60, max_messages=MAX_OUTSTANDING + 3, on_overflow="drop_oldest")])
    for number in range(1, MAX_OUTSTANDING + 1):
        world.publish("a/x")
        if number % 1_000 == 0:
            assert len(world.queues.pull("q", 1_000, lease_s=600)) == 1_000
    for payload in "cdef":
        world.publish("a/x", payload)
        assert world.queues.pull("q", 1, lease_s=600) == []
    peeked = world.queues.peek("q", MAX_OUTSTANDING + 9)
    assert [each.payload for each in peeked[MAX_OUTSTANDING:]] == [b"d", b"e", b"f"]
    world.advance(61)
    assert world.ends() == {"purged": 1, "expired": 3}
    due_at = world.broker.due_at()
    assert due_at is None or due_at > world.now, "the broker would come back to it all the time"
    world.end()


@pytest.mark.parametrize(
    ("on_overflow", "waiting", "paused", "outcome", "detail"),
    [
        ("drop_newest", 0, False, QUEUED, "consumers that take messages: 0"),
        ("drop_newest", 0, True, QUEUED, "it is paused"),
        ("drop_newest", 1, False, DROPPED, "1/1"),
        ("drop_oldest", 1, False, QUEUED, "it is full (1/1), and its oldest message goes: drop_oldest"),
        ("dead_letter", 1, False, QUEUED, "it is full (1/1), and its oldest message goes: dead_letter"),
    ],
)
def test_an_explanation_says_what_a_queue_would_do(
    on_overflow: str, waiting: int, paused: bool, outcome: int, detail: str
) -> None:
    world = QueueWorld([options(max_messages=1, on_overflow=on_overflow)])
    for _ in range(waiting):
        world.publish("a/1", "x", 1)
    if paused:
        world.queues.pause("q", True)
    plan = world.broker.planner.publish("", None, b"a/1", b"x", 1, False)
    assert [(each.sink, each.outcome, each.detail) for each in plan.receivers] == [("$queue/q", outcome, detail)]
    world.publish("a/1", "x", 1)
    assert world.queues.state("q").depth == 1
    if not waiting and not paused:
        world.connect("c").subscribe("$queue/q", qos=1)
        plan = world.broker.planner.publish("", None, b"a/1", b"x", 1, False)
        assert plan.receivers[0].detail == "consumers that take messages: 1"
    control = world.broker.planner.publish("", None, b"$queue/q/$ack", b"x", 1, False)
    assert [(each.sink, each.outcome) for each in control.receivers] == [("$queue/q", SENT)]


@pytest.mark.parametrize("creates", [False, True])
def test_explain_says_that_a_queue_is_missing_and_makes_none(creates: bool) -> None:
    world = QueueWorld(delivery=DeliveryOptions(create_by_subscribing=creates))
    ask = world.broker.planner.subscribe
    before = list(world.queues.names)
    plan = ask("c", None, b"$queue/none", 1)
    assert (plan.code, plan.reason) == (0x8F, "$queue/…: there is no queue 'none'")
    assert ask("c", None, b"$queue/none/a", 1).code == (1 if creates else 0x8F)
    assert list(world.queues.names) == before
    world.end()


def test_consumers_that_come_and_go_while_the_disk_stands_still_take_no_more_memory() -> None:
    world = QueueWorld([options(max_attempts=2)])
    for number in range(10):
        world.publish("a", f"{number}", 1)
    world.stall()
    waiting = []
    for _ in range(3):
        client = consumer(world)
        assert world.queues.state("q").leased == 10
        client.lose()
        waiting.append(world.waiting_for_disk())
    assert waiting == [(10, 10)] * 3
    world.go_on()
    world = world.restart()
    assert [attempt for _, attempt in deliveries(consumer(world).received())] == [1] * 10
    world.end()


def test_a_message_that_waited_for_the_disk_when_its_consumer_went_was_not_attempted() -> None:
    world = QueueWorld([options(max_attempts=2)])
    world.publish("a", "x", 1)
    world.stall()
    for _ in range(3):
        client = consumer(world)
        world.advance(30)  # three deadlines
        assert (client.received(), world.queues.state("q").leased) == ([], 1)
        client.lose()
        assert world.queues.state("q").leased == 0
    world.go_on()
    assert (world.queues.state("q").attempts, world.ends()) == (0, {})
    world = world.restart()
    client = consumer(world)
    assert deliveries(client.received()) == [("x", 1)]
    assert world.queues.state("q").attempts == 1
    client.lose()
    client = consumer(world)
    assert deliveries(client.received()) == [("x", 2)]
    found = world.queues.state("q")
    assert (found.attempts, found.redeliveries, found.failures["disconnected"]) == (2, 1, 1)
    world.end()
