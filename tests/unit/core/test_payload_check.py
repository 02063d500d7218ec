"""A topic whose policy has a schema: each payload is checked once, on every way that a message takes."""

import pytest

from mqttlite.core.payload_check import PayloadViolation
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.extensions.queues.limits import MAX_INVALID
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.queues import QueueWorld, options
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules


class Even:
    """A `PayloadCheck`: payloads have an even number of bytes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, str | None]] = []

    def violation(
        self, source: Source, topic: bytes, payload: bytes, properties: Properties
    ) -> PayloadViolation | None:
        self.asked.append((source.client_id, payload, properties.content_type))
        return PayloadViolation(0x99, f"{len(payload)} is odd") if len(payload) % 2 else None


class Policies(OpenRules):
    def __init__(self, policy: TopicPolicy) -> None:
        self._policy = policy

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return self._policy if topic == b"t" else NO_POLICY


@pytest.fixture
def even() -> Even:
    return Even()


@pytest.fixture
def world(even: Even) -> World:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", payload_check=even))))
    return world


def reader_of(world: World) -> Client:
    reader = world.connect("r")
    reader.subscribe("t", qos=2)
    return reader


def acks(client: Client) -> list[tuple[int, str | None]]:
    return [(each.reason_code, each.properties.reason_string) for each in client.received() if isinstance(each, Ack)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_only_valid_messages_arrive(world: World, qos: int, version: int) -> None:
    reader, publisher = reader_of(world), world.connect("p", version)
    for payload in ("ab", "abc", "abcd"):
        publisher.publish("t", payload, qos)
    assert reader.payloads() == ["ab", "abcd"]
    assert world.broker.router.drops.by_reason == {"schema_invalid": 1}
    refused = [each for each in acks(publisher) if each[0] >= 0x80]
    assert refused == ([(0x99, "3 is odd")] if qos and version == V5 else [])


def test_each_message_of_a_batch_is_checked(world: World, even: Even) -> None:
    reader, publisher = reader_of(world), world.connect("p")
    publisher.send(*[Publish(b"t", payload) for payload in (b"ab", b"cd", b"x", b"y", b"ef", b"gh")])
    assert reader.payloads() == ["ab", "cd", "ef", "gh"]
    assert [payload for _, payload, _ in even.asked] == [b"ab", b"cd", b"x", b"y", b"ef", b"gh"]
    assert world.broker.router.drops.by_reason == {"schema_invalid": 2}


def test_of_packets_of_one_size_the_valid_ones_are_forwarded() -> None:
    class NoX:
        def violation(
            self, source: Source, topic: bytes, payload: bytes, properties: Properties
        ) -> PayloadViolation | None:
            return PayloadViolation(0x99, "x") if b"x" in payload else None

    world = World()
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", payload_check=NoX()))))
    reader, publisher = reader_of(world), world.connect("p")
    publisher.send(*[Publish(b"t", payload) for payload in (b"a", b"x", b"b")])
    publisher.send(*[Publish(b"$delayed/1/t", payload) for payload in (b"c", b"x", b"d")])
    world.advance(1)
    assert reader.payloads() == ["a", "b", "c", "d"]
    assert world.broker.router.drops.by_reason == {"schema_invalid": 2}


def test_the_check_sees_who_published_and_the_properties(world: World, even: Even) -> None:
    publisher = world.connect("p")
    publisher.send(Publish(b"t", b"ab", 1, packet_id=1, properties=Properties(content_type="x")))
    publisher.send(Publish(b"t", b"ab", 0, properties=Properties(content_type="y")))
    assert even.asked == [("p", b"ab", "x"), ("p", b"ab", "y")]


def test_the_program_is_bound_as_well(world: World) -> None:
    assert world.publish("t", "abc", 1) == 0x99
    assert world.publish("t", "ab", 1) == 0x10


def test_a_delayed_message_is_checked_when_it_comes_and_not_again(world: World, even: Even) -> None:
    reader, publisher = reader_of(world), world.connect("p")
    for qos in (0, 1):
        publisher.publish("$delayed/1/t", "abc", qos)
        publisher.publish("$delayed/1/t", "ab", qos)
    assert acks(publisher) == [(0x99, "3 is odd"), (0, None)]
    assert len(even.asked) == 4
    world.advance(1)
    assert reader.payloads() == ["ab", "ab"]
    assert len(even.asked) == 4
    publisher.publish("$delayed/1/other", "abc", 0)
    world.advance(1)
    assert len(even.asked) == 4


@pytest.mark.parametrize(("payload", "arrives"), [(b"ab", True), (b"abc", False)])
def test_a_will_is_checked_when_it_is_published(world: World, payload: bytes, arrives: bool) -> None:
    reader = reader_of(world)
    world.connect("p", will=Will(b"t", payload)).lose()
    assert (reader.payloads() == [payload.decode()]) == arrives


def test_a_retained_message_is_removed_whatever_the_schema_says() -> None:
    world = World()
    refuses_empty = TopicPolicy("t", payload_check=_NotEmpty())
    world.broker.authorize(built_in_rules(authorizer=Policies(refuses_empty)))
    publisher = world.connect("p")
    publisher.publish("t", "x", 1, retain=True)
    publisher.publish("t", "", 1)
    publisher.publish("t", "", 1, retain=True)
    assert [code for code, _ in acks(publisher)] == [0x10, 0x99, 0x10]
    assert len(world.broker.router.retained) == 0


class _NotEmpty:
    def violation(
        self, source: Source, topic: bytes, payload: bytes, properties: Properties
    ) -> PayloadViolation | None:
        return None if payload else PayloadViolation(0x99, "it is empty")


def test_other_rules_of_the_policy_come_first(even: Even) -> None:
    world = World()
    policy = TopicPolicy("t", max_payload_bytes=2, payload_check=even)
    world.broker.authorize(built_in_rules(authorizer=Policies(policy)))
    publisher = world.connect("p")
    publisher.publish("t", "abc", 1)
    assert acks(publisher) == [(0x83, "3 bytes of payload: the policy of t allows 2")]
    assert even.asked == []


def test_a_tracer_is_told_what_is_wrong(world: World) -> None:
    recorder = Recorder()
    world.broker.watch(recorder)
    publisher = world.connect("p")
    publisher.publish("t", "abc", 1)
    assert recorder.drops == {(None, "schema_invalid"): 1}
    assert recorder.details == [("t", "3 is odd")]


def test_a_policy_with_a_schema_asks_something(even: Even) -> None:
    assert not TopicPolicy("t", payload_check=even).is_plain


class KeptAsDeadLetters:
    """A `PayloadCheck`: what is empty is wrong, and is to be kept."""

    def violation(
        self, source: Source, topic: bytes, payload: bytes, properties: Properties
    ) -> PayloadViolation | None:
        return None if payload else PayloadViolation(0x99, "it is empty", to_dead_letters=True)

    def look(self, payload: bytes, properties: Properties) -> PayloadViolation | None:
        return self.violation(THE_PROGRAM, b"", payload, properties)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_invalid_message_is_kept_by_the_queues_of_the_topic_or_refused(qos: int) -> None:
    world = QueueWorld([options("jobs", "t"), options("others", "u"), options("none", "t", dead_letter=False)])
    policies = Policies(TopicPolicy("t", payload_check=KeptAsDeadLetters()))
    world.broker.authorize(built_in_rules(authorizer=policies))
    reader, publisher = reader_of(world), world.connect("p")
    for payload in ("x", "", ""):
        publisher.publish("t", payload, qos)
    assert reader.payloads() == ["x"]
    kept = list(world.queues.dead_letters("jobs").letters())
    assert [letter.value("dead-letter-detail") for letter in kept] == ["it is empty"] * 2
    assert world.queues.state("jobs").dead_letter_causes == {"schema_invalid": 2}
    world.queues.delete("jobs")
    publisher.received()
    publisher.publish("t", "", qos)
    assert acks(publisher) == ([(0x99, "it is empty")] if qos else [])
    assert (kept[0].original().topic, kept[0].original().payload) == (b"t", b"")


def test_of_many_queues_a_few_keep_what_is_wrong() -> None:
    world = QueueWorld([options(f"q{number}", "t") for number in range(MAX_INVALID + 3)])
    policies = Policies(TopicPolicy("t", payload_check=KeptAsDeadLetters()))
    world.broker.authorize(built_in_rules(authorizer=policies))
    world.connect("p").publish("t", "", 1)
    assert sum(len(world.queues.dead_letters(name)) for name in world.queues.names) == MAX_INVALID
