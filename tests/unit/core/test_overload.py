"""Overload: stages begin and end in their order, clients that send much are slowed, and what is shed is told."""

from itertools import pairwise

import pytest

from mqttlite.core.limits import (
    INTERVAL_WORK,
    ITERATION_WORK,
    LEAST_CREDIT,
    MOST_CREDIT,
    OVERLOAD_INTERVAL_S,
    Limits,
    OverloadLimits,
)
from mqttlite.core.load.overload import BEGINS_AT, ENDS_BELOW, load_of_memory
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.reasons import CloseReason, HoldReason
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Pingreq, Publish
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import START, Client, World
from tests.unit.core.test_topic_policies import world_with

LIMITS = OverloadLimits()
MESSAGES = 400
"""What makes one publisher send much in an interval: each message is worth a unit at least."""


def weigh(world: World, lag_s: float, intervals: int = 1, iteration_s: float | None = None) -> int:
    """Let time pass in which the loop was so late, by itself if nothing else is said; the stage then."""
    for _ in range(intervals):
        world.advance(OVERLOAD_INTERVAL_S)
        world.broker.weigh(lag_s, lag_s if iteration_s is None else iteration_s, world.now)
    return world.broker.overload.stage


def load_up_to(world: World, stage: int) -> None:
    """Let the loop be late until that stage is in force."""
    for _ in range(50):
        load = min(BEGINS_AT[stage] + 0.05, ENDS_BELOW[stage] + 0.14)
        if weigh(world, load * LIMITS.max_lag_s) == stage:
            return
    raise AssertionError(f"stage {world.broker.overload.stage}")


def flood(client: Client, messages: int = MESSAGES) -> None:
    client.send_bytes(b"".join(encode(Publish(b"t/%d" % (each % 2), b"x"), client.version) for each in range(messages)))


def held(world: World) -> list[int]:
    return world.take_holds(HoldReason.OVERLOAD, is_held=True)


def freed(world: World) -> list[int]:
    return world.take_holds(HoldReason.OVERLOAD, is_held=False)


def mixed() -> tuple[World, Client, Client]:
    """A world whose loop is late, with one client that has sent much and one that has sent little."""
    world = World()
    heavy, light = world.connect("heavy"), world.connect("light")
    weigh(world, LIMITS.target_lag_s * 2, 5)
    flood(heavy)
    light.publish("t", "x")
    return world, heavy, light


# ---------------------------------------------------------------------- stages


def test_stages_begin_one_after_the_other_and_end_so() -> None:
    world = World()
    seen = []
    for lag_s, intervals in ((1.0, 20), (0.0, 30)):
        for _ in range(intervals):
            seen.append(weigh(world, lag_s))
    assert max(seen) == 4
    steps = [after - before for before, after in pairwise(seen)]
    assert {*steps} == {-1, 0, 1}, "one stage at a time"
    assert steps.index(-1) > max(at for at, step in enumerate(steps) if step == 1), "and no stage begins twice"
    assert seen[-1] == 0
    assert seen[20:].count(0) > 30 - 20, "it is over within two seconds"


def test_one_pause_sheds_nothing() -> None:
    world = World()
    assert weigh(world, 60.0) == 0
    assert [weigh(world, 0.0) for _ in range(20)] == [0] * 20


@pytest.mark.parametrize("stage", [1, 2, 3, 4])
def test_a_load_between_the_end_and_the_begin_changes_nothing(stage: int) -> None:
    world = World()
    load_up_to(world, stage)
    between = (BEGINS_AT[stage] + ENDS_BELOW[stage]) / 2
    assert weigh(world, between * LIMITS.max_lag_s, 30) == stage


def test_the_next_stage_waits_until_the_one_before_had_time_to_help() -> None:
    world = World()
    stages = [weigh(world, 1.0) for _ in range(12)]
    first = [stages.index(stage) for stage in (1, 2, 3, 4)]
    assert [later - earlier for earlier, later in pairwise(first)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("used", "load"),
    [(0, 0.0), (750, 0.0), (812.5, 0.4), (875, 0.8), (906.25, 0.9), (937.5, 1.0), (1_000, 1.2)],
)
def test_the_load_of_memory_has_the_thresholds_of_the_memory_account(used: float, load: float) -> None:
    memory = MemoryAccount(1_000 * 16)
    memory.used = int(used * 16)
    assert load_of_memory(memory) == pytest.approx(load)


def test_memory_alone_is_an_overload() -> None:
    world = World(Limits(max_memory_bytes=1_600_000))
    world.broker.effects.memory.used += 1_460_000
    assert weigh(world, 0.0, 10) == 3
    world.broker.effects.memory.used -= 1_460_000
    assert weigh(world, 0.0, 10) == 0


def test_nothing_is_done_where_it_is_turned_off() -> None:
    world = World(overload_limits=OverloadLimits(enabled=False))
    assert weigh(world, 60.0, 20) == 0
    assert world.broker.overload.load == 0.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"target_lag_s": 0.0}, "target_lag_s is 0: it may be 0.0001 to 3600 seconds"),
        ({"max_lag_s": float("nan")}, "max_lag_s is nan: it may be 0.0001 to 3600 seconds"),
        ({"target_lag_s": 0.5, "max_lag_s": 0.5}, "target_lag_s is 0.5: below max_lag_s, which is 0.5"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        OverloadLimits(**options)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- slow senders


def test_the_busiest_sender_is_held_for_a_while_and_loses_nothing() -> None:
    world, heavy, light = mixed()
    reader = world.connect("reader")
    reader.subscribe("t/#")
    weigh(world, LIMITS.target_lag_s * 2)
    flood(heavy)
    light.publish("t", "x")
    assert held(world) == [heavy.connection.number]
    assert weigh(world, LIMITS.target_lag_s * 2) == 1, "to slow a client is the first stage"
    assert len(reader.messages()) == MESSAGES + 1
    world.advance(1.1)
    assert freed(world) == [heavy.connection.number]


def test_the_work_of_a_transport_counts_as_its_clients() -> None:
    """WebSocket frames take longer to decode than the messages in them to route."""
    world = World()
    frames, plain = world.connect("frames"), world.connect("plain")
    for _ in range(10):
        weigh(world, LIMITS.target_lag_s * 2)
        frames.connection.transport_work = 2_000
        frames.send(Pingreq())
        assert frames.connection.transport_work == 2_000, "it is charged with the next message"
        frames.publish("t", "x")
        plain.publish("t", "x")
        assert frames.connection.transport_work == 0
    assert set(held(world)) == {frames.connection.number}


def test_the_credit_shrinks_while_the_loop_is_late_and_grows_again() -> None:
    world, heavy, light = mixed()
    credits = world.broker.overload.credits
    found = []
    for _ in range(15):
        weigh(world, LIMITS.target_lag_s * 2)
        found.append(credits.credit)
        flood(heavy)
        light.publish("t", "x")
    assert found == sorted(found, reverse=True)
    assert found[-1] == LEAST_CREDIT
    middling = LIMITS.target_lag_s * 0.9
    weigh(world, middling, 2)
    assert credits.credit == LEAST_CREDIT, "neither late nor early"
    flood(heavy)
    weigh(world, 0.0, 5)
    assert credits.credit > LEAST_CREDIT
    assert weigh(world, 0.0, 100) == 0
    assert credits.credit == MOST_CREDIT
    assert not world.broker.effects.meters_senders


def test_a_debt_is_forgiven_after_a_second() -> None:
    world, heavy, light = mixed()
    for _ in range(10):
        weigh(world, LIMITS.target_lag_s * 2)
        flood(heavy, 1_000)
        light.publish("t", "x")
    held(world)
    freed(world)
    world.advance(1.01)
    assert freed(world) == [heavy.connection.number]


@pytest.mark.parametrize("who", ["heavy", "light"])
def test_no_client_is_slowed_where_none_waits_for_another(who: str) -> None:
    world = World()
    clients = [world.connect(f"c{number}") for number in range(3)]
    for _ in range(20):
        for client in clients:
            flood(client, MESSAGES if who == "heavy" else 5)
        weigh(world, LIMITS.target_lag_s * 2)
    assert world.broker.effects.meters_senders
    assert held(world) == []
    assert world.broker.overload.stage == 0
    assert world.broker.effects.work_at_start == 0, "and iterations are as long as ever"


@pytest.mark.parametrize("count", [1, 3])
def test_no_client_is_slowed_for_its_own_sake(count: int) -> None:
    """Where other processes take the processor, a client that sends as fast as it can sends little now and then."""
    world = World()
    clients = [world.connect(f"c{number}") for number in range(count)]
    for interval in range(20):
        for client in clients:
            flood(client, MESSAGES if interval % 3 == 0 else 5)
        weigh(world, LIMITS.target_lag_s * 2)
    assert world.broker.effects.meters_senders
    assert held(world) == []
    assert not world.broker.overload.credits.is_mixed


def test_no_client_is_slowed_when_other_programs_hold_the_processor() -> None:
    world = World()
    heavy, light = world.connect("heavy"), world.connect("light")
    for _ in range(20):
        flood(heavy)
        light.publish("t", "x")
        weigh(world, LIMITS.target_lag_s * 30, iteration_s=LIMITS.target_lag_s / 2)
    assert held(world) == []
    assert world.broker.overload.credits.credit == MOST_CREDIT


def test_iterations_are_short_while_some_send_much_and_others_little() -> None:
    world, _heavy, _light = mixed()
    weigh(world, LIMITS.target_lag_s * 2)
    effects = world.broker.effects
    assert effects.work_at_start == effects.share_from > ITERATION_WORK * 0.9
    weigh(world, 0.0, 40)
    assert effects.work_at_start == 0


@pytest.mark.slow
def test_where_very_many_send_none_is_promised_more_than_its_share() -> None:
    world, heavy, _light = mixed()
    many = [world.connect(f"c{number}") for number in range(1_000)]
    credits = world.broker.overload.credits
    for _ in range(30):
        flood(heavy)
        for client in many:
            client.publish("t", "x")
        weigh(world, LIMITS.target_lag_s * 2)
    assert credits.credit == pytest.approx(INTERVAL_WORK / 1_001)
    assert heavy.connection.number in held(world)


def test_a_client_that_acknowledges_much_is_not_slowed() -> None:
    world, heavy, light = mixed()
    reader = world.connect("reader")
    for _ in range(3):
        weigh(world, LIMITS.target_lag_s * 2)
        flood(heavy)
        light.publish("t", "x")
        reader.send(*[Ack(PUBACK, number + 1) for number in range(2 * MESSAGES)])
    assert reader.connection.number not in held(world)


@pytest.mark.parametrize("who", ["the program", "gone"])
def test_others_are_not_held(who: str) -> None:
    world, _heavy, light = mixed()
    client = world.open(is_trusted=who == "the program")
    client.connect("other")
    for _ in range(3):
        weigh(world, LIMITS.target_lag_s * 2)
        if who == "gone":
            client.send_bytes(encode(Publish(b"t", b"x"), V5) * 10 + b"\xff\0")
        else:
            flood(client)
        light.publish("t", "x")
        if who == "gone":
            break
    assert client.connection.number not in held(world)


# ---------------------------------------------------------------------- what is shed

LOW = Properties(user_properties=[("a", "b"), ("priority", "low")])
HIGH = Properties(user_properties=[("priority", "high")])


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("properties", [LOW, HIGH, Properties()])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_qos_0_messages_are_shed_in_order(stage: int, properties: Properties, retain: bool) -> None:
    world = World()
    reader, publisher = world.connect("reader"), world.connect("publisher")
    reader.subscribe("t")
    load_up_to(world, stage)
    publisher.send(*[Publish(b"t", b"x", 0, retain, properties=properties) for _ in range(2)])
    expected = {}
    if properties is LOW and stage >= 2:
        expected = {"overload_low_priority": 2}
    elif stage >= 3:
        expected = {"overload_qos0": 2}
    assert world.broker.router.drops.by_reason == expected
    assert len(reader.messages()) == (0 if expected else 2)
    assert publisher.connection.received_qos0 == 2


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("says", ["low", "high", "policy"])
def test_acknowledged_messages_are_never_shed(version: int, qos: int, says: str) -> None:
    world = world_with(TopicPolicy("t", priority="low" if says == "policy" else "normal"))
    reader, publisher = world.connect("reader"), world.connect("publisher", version)
    reader.subscribe("t", qos=2)
    load_up_to(world, 4)
    properties = {"low": LOW, "high": HIGH, "policy": Properties()}[says]
    publisher.send(
        *[Publish(b"t", b"x", qos, packet_id=number, properties=properties if version == V5 else Properties())
          for number in (1, 2)]
    )  # fmt: skip
    acks = [each for each in publisher.received() if isinstance(each, Ack) and each.packet_type in (PUBACK, PUBREC)]
    is_refused = version == V5 and says != "high"
    assert [each.reason_code for each in acks] == [ReasonCode.QUOTA_EXCEEDED if is_refused else 0] * 2
    assert len(reader.messages()) == (0 if is_refused else 2)
    assert world.broker.router.drops.by_reason == ({"overload_low_priority": 2} if is_refused else {})
    if is_refused:
        assert "overloaded" in str(acks[0].properties.reason_string)


def test_the_priority_of_a_topic_counts_for_all_publishers() -> None:
    world = world_with(TopicPolicy("t", priority="low"))
    reader, publisher = world.connect("reader"), world.connect("publisher", V311)
    reader.subscribe("#")
    load_up_to(world, 2)
    publisher.publish("t", "x")
    publisher.publish("u", "y")
    assert reader.payloads() == ["y"]
    assert world.broker.router.drops.by_reason == {"overload_low_priority": 1}


def test_commands_are_not_shed() -> None:
    world = World()
    publisher = world.connect("publisher")
    load_up_to(world, 4)
    publisher.publish("$CONTROL/dynamic-security/v1", "{}")
    assert "overload_qos0" not in world.broker.router.drops.by_reason


@pytest.mark.parametrize(("version", "code"), [(V311, 3), (V5, ReasonCode.SERVER_BUSY)])
def test_new_connections_are_refused_last(version: int, code: int) -> None:
    world = World()
    before = world.connect("before", version)
    load_up_to(world, 3)
    world.connect("in time", version)
    load_up_to(world, 4)
    refused = world.open(version)
    connack = refused.connect("late")
    assert connack is not None
    assert connack.reason_code == code
    assert refused.connection.close_reason == CloseReason.QUOTA_EXCEEDED
    assert world.broker.overload.connects_refused == 1
    assert world.open(is_trusted=True).connect("the program's") is not None
    assert not before.closed
    weigh(world, 0.0, 20)
    world.connect("later", version)


def test_time_is_a_number() -> None:
    world = World()
    weigh(world, 1.0, 3)
    assert world.now == pytest.approx(START + 3 * OVERLOAD_INTERVAL_S)
