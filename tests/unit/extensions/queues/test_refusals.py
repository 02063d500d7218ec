"""`$nack` and PUBACK for the same delivery: a refusal counts while the message has not ended, and not later."""

import pytest

from mqttlite.core.connect.attempts import Attempt, GivenUp
from mqttlite.core.limits import Limits
from mqttlite.extensions.queues.options import DeliveryOptions
from mqttlite.log.deliveries import ARRIVAL_S
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Publish, Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes
from tests.support.queues import QueueWorld, ack, consumer, deliveries, options, told
from tests.support.recorder import Recorder


def nack(client: Client, packet: Publish, qos: int = 1) -> Ack | None:
    """Refuse a delivery by its `ack-id`, or its packet identifier where the consumer has none; the PUBACK."""
    name = told(packet)["ack-id"] if client.version == V5 else str(packet.packet_id)
    client.send(Publish(b"$queue/q/$nack", f"{name} 1".encode(), qos, packet_id=900 if qos else 0))
    answers = [each for each in client.received() if isinstance(each, Ack)]
    return answers[0] if answers else None


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_refusal_after_the_deadline_is_not_undone_by_the_puback_of_that_delivery(version: int, qos: int) -> None:
    world = QueueWorld([options()])
    client = consumer(world, version=version, receive_maximum=1 if version == V5 else None)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    world.advance(10.0 + ARRIVAL_S)  # the deadline is over, and the back-off has begun
    answer = nack(client, packet, qos)
    assert answer is None or answer.reason_code == 0
    ack(client, packet)
    assert (world.ends(), world.queues.state("q").depth) == ({}, 1)
    world.advance(1.1)
    (again,) = publishes(client.received())
    assert again.payload == b"x"
    ack(client, packet)
    assert world.ends() == {}, "the PUBACK of the refused delivery means nothing, however late"
    ack(client, again)
    assert world.ends() == {"acknowledged": 1}
    assert world.queues.state("q").failures["deadline"] == 1, "an attempt has one outcome"
    world.end()


def test_a_puback_alone_acknowledges_also_after_the_deadline() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    world.advance(10.0 + ARRIVAL_S)
    ack(client, packet)
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_a_refusal_marks_its_own_attempt_only() -> None:
    world = QueueWorld([options()])
    client = consumer(world)
    world.publish("a", "x")
    (first,) = publishes(client.received())
    world.advance(11.2)
    (second,) = publishes(client.received())
    nack(client, first)
    ack(client, second)
    assert world.ends() == {"acknowledged": 1}
    world.end()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_refusal_after_the_puback_changes_nothing_and_is_counted_and_explained(version: int) -> None:
    world = QueueWorld([options()])
    world.broker.watch(Recorder(topics=(b"a",)))
    attempts = Attempts()
    world.queues._builder.context.attempts = attempts
    client = consumer(world, version=version)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    ack(client, packet)
    answer = nack(client, packet)
    assert answer is not None
    if version == V5:
        assert answer.reason_code == 0x10
        assert "already acknowledged" in str(answer.properties.reason_string)
    assert world.ends() == {"acknowledged": 1}
    assert world.queues.state("q").nacked_late == 1
    late = attempts.seen[-1]
    assert (late.consumer, late.number, late.outcome, late.detail) == (
        "c",
        1,
        "refused too late",
        "already acknowledged",
    )
    world.end()


def test_late_refusals_of_few_messages_are_remembered() -> None:
    world = QueueWorld([options()])
    world.broker.watch(Recorder(topics=(b"a",)))
    attempts = Attempts()
    world.queues._builder.context.attempts = attempts
    client = consumer(world)
    packets = []
    for _ in range(101):
        world.publish("a", "x")
        packets += publishes(client.received())
        ack(client, packets[-1])
    seen = len(attempts.seen)
    for packet in packets[:2]:
        nack(client, packet)
    assert len(attempts.seen) - seen == 1, "the first one is forgotten"
    assert world.queues.state("q").nacked_late == 2
    world.end()


class Attempts:
    """An `AttemptTracer` that takes every attempt."""

    def __init__(self) -> None:
        self.seen: list[Attempt] = []

    def sample(self, is_failure: bool) -> int:
        return 1

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        self.seen.append(attempt)

    def on_given_up(self, letter: GivenUp) -> None:
        raise AssertionError("no message is given up")


# ── explicit acknowledgement ───────────────────────────────────────────────────────────────────────────────────────


def say(client: Client, action: str, packet: Publish, seconds: str = "") -> None:
    name = told(packet)["ack-id"] if client.version == V5 else str(packet.packet_id)
    client.send(Publish(f"$queue/q/{action}".encode(), f"{name} {seconds}".encode()))


@pytest.mark.parametrize("version", [V311, V5])
def test_with_explicit_acknowledgement_only_a_command_or_the_deadline_settles(version: int) -> None:
    world = QueueWorld([options(ack="explicit", max_attempts=3)])
    client = consumer(world, version=version, auto_ack=True)
    for payload in "xyz":
        world.publish("a", payload)
    x, y, z = publishes(client.received())
    assert (world.ends(), world.queues.state("q").leased) == ({}, 3)
    say(client, "$ack", x)
    say(client, "$nack", y, "2")
    assert (world.ends(), world.queues.state("q").leased) == ({"acknowledged": 1}, 1)
    world.advance(2.0)
    (again,) = publishes(client.received())
    assert again.payload == b"y"
    say(client, "$extend", z, "100")
    say(client, "$ack", again)
    world.advance(90)
    assert (client.received(), world.ends()) == ([], {"acknowledged": 2})
    world.advance(12)
    (again,) = publishes(client.received())
    assert again.payload == b"z"
    assert world.queues.state("q").failures["nacked"] == world.queues.state("q").failures["deadline"] == 1
    world.end()


def test_consumers_are_told_that_acknowledgement_is_explicit() -> None:
    world = QueueWorld([options(ack="explicit"), options("other")])
    client = world.connect("c")
    client.subscribe("$queue/q", "$queue/other", qos=1)
    world.publish("a", "x")
    assert sorted(told(each).get("ack", "") for each in publishes(client.received())) == ["", "explicit"]
    world.end()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_consumer_holds_as_many_unsettled_messages_as_its_window_has_places(version: int) -> None:
    world = QueueWorld([options(ack="explicit")], limits=Limits(max_inflight=3))
    client = consumer(world, version=version, auto_ack=True)
    for number in range(5):
        world.publish("a", str(number))
    first, second, _third = publishes(client.received())
    say(client, "$ack", second)
    (fourth,) = publishes(client.received())
    assert fourth.payload == b"3"
    say(client, "$nack", first, "60")
    (fifth,) = publishes(client.received())
    assert fifth.payload == b"4"
    world.end()


def test_a_packet_identifier_is_not_used_again_while_its_message_is_unsettled() -> None:
    world = QueueWorld([options(ack="explicit")])
    client = consumer(world, version=V311, auto_ack=True)
    client.subscribe("plain", qos=1)
    world.publish("a", "kept")
    (kept,) = publishes(client.received())
    world.session("c").window.continue_at(kept.packet_id)
    world.publish("plain", "1", 1)
    (other,) = publishes(client.received())
    assert other.packet_id == kept.packet_id + 1
    say(client, "$ack", kept)
    assert world.ends() == {"acknowledged": 1}
    world.session("c").window.continue_at(kept.packet_id)
    world.publish("plain", "2", 1)
    (other,) = publishes(client.received())
    assert other.packet_id == kept.packet_id
    world.end()


@pytest.mark.parametrize("acknowledges", [False, True])
def test_unsettled_messages_go_to_another_consumer_when_the_connection_ends(acknowledges: bool) -> None:
    world = QueueWorld([options(ack="explicit")])
    client = consumer(world, auto_ack=acknowledges, expiry=100)
    for payload in "xy":
        world.publish("a", payload)
    x, y = publishes(client.received())
    say(client, "$ack", y)
    client.lose()
    other = consumer(world, "d", auto_ack=True)
    (again,) = publishes(other.received())
    assert deliveries([again]) == [("x", 2)]
    client = world.connect("c", clean_start=False, expiry=100)
    say(client, "$ack", x)  # late, but the message has not ended
    assert world.ends() == {"acknowledged": 2}
    world.end()


def test_a_refusal_by_reason_code_settles_an_explicit_delivery() -> None:
    world = QueueWorld([options(ack="explicit")])
    client = consumer(world)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    ack(client, packet, 0x80)
    assert world.queues.state("q").failures["nacked"] == 1
    world.end()


def test_a_purge_frees_the_places_of_unsettled_messages() -> None:
    world = QueueWorld([options(ack="explicit")], limits=Limits(max_inflight=2))
    client = consumer(world, auto_ack=True)
    for payload in "xyz":
        world.publish("a", payload)
    assert len(publishes(client.received())) == 2
    assert world.queues.purge("q") == 3
    world.settle()
    world.publish("a", "new")
    (packet,) = publishes(client.received())
    assert packet.payload == b"new"
    world.end()


def test_a_message_too_large_for_an_explicit_consumer_keeps_no_identifier() -> None:
    world = QueueWorld([options(ack="explicit", max_attempts=1)])
    client = consumer(world, maximum_packet_size=100)
    world.publish("a", "x" * 200)
    assert (client.received(), world.ends()) == ([], {"dead_lettered": 1})
    world.end()


@pytest.mark.parametrize(("asked", "code"), [("explicit", 1), ("puback", 0x8F), ("other", 0x8F)])
def test_a_subscriber_asks_for_explicit_acknowledgement(asked: str, code: int) -> None:
    world = QueueWorld([options(ack="explicit")], delivery=DeliveryOptions(create_by_subscribing=True))
    client = world.connect("c")
    for topic_filter in ("$queue/q", "$queue/mine/a/#"):
        properties = Properties(user_properties=[("ack", asked)])
        client.send(Subscribe(1, (SubscriptionRequest(topic_filter.encode(), 1),), properties))
    answers = [each for each in client.received() if isinstance(each, Suback)]
    assert answers[0].reason_codes[0] == code
    assert answers[1].reason_codes[0] == (0x8F if asked == "other" else 1)
    if asked != "other":
        assert world.queues.options("mine").ack == asked
    world.end()


# ── what the tracer hears ──────────────────────────────────────────────────────────────────────────────────────────


def test_attempts_end_for_the_tracer_and_are_no_drops() -> None:
    world = QueueWorld([options(max_attempts=9)])
    recorder = Recorder(topics=(b"a",))
    world.broker.watch(recorder)
    client = consumer(world)
    world.publish("a", "x")
    (first,) = publishes(client.received())
    world.advance(10.0 + ARRIVAL_S)
    world.advance(1.1)
    (second,) = publishes(client.received())
    ack(client, second, 0x80)
    world.advance(2.2)
    (third,) = publishes(client.received())
    world.queues.ack("q", [told(first)["ack-id"]])
    ack(client, third)
    returned = [each[2:] for each in recorder.told if each[0] == "returned"]
    assert returned == [("c", "deadline"), ("c", "nacked (reason code 0x80)"), ("c", "acknowledged")]
    assert recorder.drops == {}
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_an_own_puback_is_reported_once() -> None:
    world = QueueWorld([options()])
    recorder = Recorder(topics=(b"a",))
    world.broker.watch(recorder)
    client = consumer(world)
    world.publish("a", "x")
    (packet,) = publishes(client.received())
    ack(client, packet)
    assert [each[0] for each in recorder.told if each[0] in ("returned", "acknowledged")] == ["acknowledged"] * 2
    world.end()
