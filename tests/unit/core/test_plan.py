"""What would become of a message or a subscription is what becomes of it, and asking changes nothing."""

from random import Random
from typing import Final

import pytest

from mqttlite.core.authentication import Grants
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.inbound.back_pressure import NO_ROOM
from mqttlite.core.inbound.priority import OVERLOADED
from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.core.message import Message
from mqttlite.core.payload_check import PayloadViolation
from mqttlite.core.reasons import RATE_LIMITED
from mqttlite.core.route.outlook import EXCLUDED, FILTERED, NO_LOCAL, PlannedReceiver, planned_sink
from mqttlite.core.route.plan import AS_CHECKED, MAX_PLANNED, NOT_ASKED, PublishPlan
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.filters import Filters
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.packets import SubscriptionRequest
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules


class Looked:
    """A schema that counts what `violation` is asked, so that a plan must not ask that. It refuses `wrong`, and lets
    `odd` through."""

    def violation(self, *_message: object) -> PayloadViolation | None:
        raise AssertionError("nothing is published")

    def look(self, payload: bytes, _properties: Properties) -> PayloadViolation | None:
        codes = {b"wrong": 0x99, b"odd": 0}
        return PayloadViolation(codes[payload], "no number at /t") if payload in codes else None


class Rules(OpenRules):
    """`secret` is for the user ann alone; `small` has a policy."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if username == "ann" or "staff" in grants.groups else 2

    def is_open(self, topic: bytes) -> bool:
        return topic != b"secret"

    def is_readable(self, topic: bytes) -> bool:
        return topic != b"secret"

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 1 or topic != b"secret"

    def may_receive(self, role: int, topic: bytes) -> bool:
        return role == 1 or topic != b"secret"

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return role == 1 or topic_filter != b"secret"

    def policy_of(self, topic: bytes) -> TopicPolicy:
        if topic == b"json":
            return TopicPolicy("json", payload_check=Looked())
        return TopicPolicy("small", max_payload_bytes=3, max_qos=1) if topic == b"small" else NO_POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return f"rule {role} {action} {topic.decode()}"


def world_with_rules(limits: Limits | None = None) -> World:
    world = World(limits or Limits())
    world.broker.authorize(built_in_rules(authorizer=Rules()))
    return world


def connected(world: World, name: str, user: str | None = None, **options: object) -> Client:
    client = world.open()
    client.connect(name, username=user, **options)  # type: ignore[arg-type]
    return client


def publish(
    world: World,
    topic: str,
    payload: str = "x",
    qos: int = 0,
    retain: bool = False,
    who: str = "",
    user: str | None = None,
) -> PublishPlan:
    return world.broker.planner.publish(who, user, topic.encode(), payload.encode(), qos, retain)


def outcomes(plan: PublishPlan) -> dict[str, tuple[int, str]]:
    return {each.client_id: (each.outcome, each.reason) for each in plan.receivers}


def test_the_receivers_of_a_message_are_explained() -> None:
    world = world_with_rules(Limits(max_queued_messages=1))
    connected(world, "ann", "ann").subscribe("#", qos=1)
    connected(world, "bob", "bob").subscribe("#", qos=1)
    connected(world, "choosy").subscribe(SubscriptionRequest(b"secret", 1))
    small = connected(world, "small", "ann", maximum_packet_size=20)
    small.subscribe("#", qos=1)
    slow = connected(world, "slow", "ann", receive_maximum=1, auto_ack=False)
    slow.subscribe("#", qos=1)
    for name in ("away", "full"):
        client = connected(world, name, "ann", expiry=100)
        client.subscribe("#", qos=1)
        client.lose()
    world.publish("t", "x", 1)
    world.session("away").purge(10)
    text = "a payload that is longer"
    plan = publish(world, "secret", text, 1, who="ann", user="ann")
    assert (plan.code, plan.reason, plan.is_connected, plan.qos) == (0, "rule 1 publish secret", True, 1)
    assert outcomes(plan) == {
        "ann": (SENT, ""),
        "bob": (EXCLUDED, "not_authorized"),
        "small": (DROPPED, "packet_too_large"),
        "slow": (QUEUED, "window_full"),
        "away": (QUEUED, "offline"),
        "full": (DROPPED, "queue_full"),
    }
    assert next(each.detail for each in plan.receivers if each.client_id == "bob") == "rule 2 receive secret"
    at_qos_0 = outcomes(publish(world, "secret", text, user="ann"))
    assert at_qos_0["away"] == at_qos_0["full"] == (DROPPED, "qos0_offline")
    assert at_qos_0["slow"] == (SENT, "")


def test_asking_changes_nothing() -> None:
    world = world_with_rules()
    recorder = Recorder(("t",))  # type: ignore[arg-type]
    world.broker.watch(recorder)
    traffic = world.broker.count_traffic(10)
    reader = connected(world, "reader")
    reader.subscribe("#", qos=2)
    drops = dict(world.broker.router.drops.by_reason)
    memory = world.broker.effects.memory.used
    for topic in ("t", "secret", "$SYS/x", "$queue/x", "$delayed/5/t", "small", "a/+"):
        for qos in (0, 1, 2):
            publish(world, topic, "long", qos, True)
    world.broker.planner.subscribe("new", None, b"secret", 1)
    world.settle()
    assert reader.received() == []
    assert world.broker.router.drops.by_reason == drops
    assert world.broker.permissions.denied == {"publish": 0, "subscribe": 0, "receive": 0}
    assert world.broker.effects.memory.used == memory
    assert len(world.broker.sessions) == 1
    assert traffic.drain() == []
    assert len(world.broker.router.retained) == 0


@pytest.mark.parametrize(
    ("topic", "payload", "code", "reason"),
    [
        ("secret", "x", 0x87, "rule 2 publish secret"),
        ("small", "long", 0x83, "4 bytes of payload: the policy of small allows 3"),
        ("a/b/c/d/e", "x", 0x90, "topic with 5 levels, at most 4 accepted"),
        ("t", "x" * 51, 0x97, "payload of 51 bytes, at most 50 accepted"),
        ("$queue/x/y", "x", 0x90, NAMESPACES.parse_name(b"$queue/x/y").name_refusal),
        ("$delayed/x/y", "x", 0x90, "$delayed/…: 'x' is no whole number of seconds from 0 to 4294967"),
        ("$delayed/5/secret", "x", 0x87, "rule 2 publish secret"),
        ("$SYS/x", "x", 0x87, "clients may not publish to $SYS and below"),
        ("a/+", "x", 0x90, "topic name 'a/+' contains a wildcard [MQTT-3.3.2-2]"),
        ("", "x", 0x90, "topic name is empty [MQTT-4.7.3-1]"),
    ],
)
def test_why_a_message_is_refused(topic: str, payload: str, code: int, reason: str) -> None:
    world = world_with_rules(Limits(max_topic_levels=4, max_payload_bytes=50))
    plan = publish(world, topic, payload, 1)
    assert (plan.code, plan.reason, plan.receivers) == (code, reason, [])


def test_a_large_payload_may_close_the_connection() -> None:
    world = world_with_rules(Limits(max_payload_bytes=1, on_large_payload="disconnect"))
    assert publish(world, "t", "xx").code == 0x95


def test_a_connected_client_has_the_limits_of_its_listener() -> None:
    world = world_with_rules()
    client = world.open(capabilities=Capabilities(maximum_qos=0), mount_point=b"site7/")
    client.connect("inside", username="ann")
    client.subscribe("t")
    assert publish(world, "t", who="inside", user="ann", qos=1).code == 0x9B
    plan = publish(world, "t", who="inside", user="ann")
    assert (plan.topic, outcomes(plan)) == (b"site7/t", {"inside": (SENT, "")})
    assert publish(world, "t", who="inside", user="bob").topic == b"t", "that is another client"
    subscribe = world.broker.planner.subscribe("inside", "ann", b"$share/g/x", 1)
    assert (subscribe.topic_filter, subscribe.code) == (b"$share/g/site7/x", 1)
    world.broker.planner.subscribe("inside", "ann", b"", 1)
    outside = connected(world, "outside")
    outside.subscribe("#")
    assert outcomes(publish(world, "site7"))["outside"] == (SENT, "")
    client.subscribe("#")
    assert outcomes(publish(world, "site7"))["inside"] == (DROPPED, "not_authorized")


def test_the_policy_of_the_topic_lowers_the_qos() -> None:
    world = world_with_rules()
    connected(world, "r").subscribe("small", qos=2)
    plan = publish(world, "small", "x", 2)
    assert (plan.qos, plan.receivers[0].qos) == (1, 1)


@pytest.mark.parametrize(
    ("payload", "retain", "code", "schema"),
    [
        ("right", False, 0, AS_CHECKED),
        ("odd", False, 0, "let through and counted: no number at /t"),
        ("wrong", False, 0x99, ""),
        ("", True, 0, ""),
    ],
)
def test_a_schema_is_asked_about_the_payload(payload: str, retain: bool, code: int, schema: str) -> None:
    world = world_with_rules()
    plan = publish(world, "json", payload, retain=retain)
    assert (plan.has_payload_check, plan.code, plan.verdict) == (True, code, schema)
    assert not publish(world, "small").has_payload_check


def test_a_payload_that_is_not_known_is_not_asked_about() -> None:
    world = world_with_rules()
    plan = world.broker.planner.publish("", None, b"json", bytes(5), 0, False, knows_payload=False)
    assert (plan.code, plan.has_payload_check, plan.verdict) == (0, True, NOT_ASKED)


def test_whether_it_would_be_retained() -> None:
    world = World(Limits(max_retained_messages=1))
    assert publish(world, "t", retain=True).retained
    assert not publish(world, "t").retained
    assert not publish(world, "t", "", retain=True).retained
    world.publish("other", "x", 0, True)
    assert not publish(world, "t", retain=True).retained


def test_a_delayed_message_is_planned_for_its_topic() -> None:
    world = world_with_rules()
    connected(world, "r").subscribe("t")
    plan = publish(world, "$delayed/7/t", "x")
    assert (plan.topic, plan.delay_s, outcomes(plan)) == (b"t", 7, {"r": (SENT, "")})


def test_no_local_keeps_a_clients_own_messages_from_it() -> None:
    world = World()
    connected(world, "c").subscribe(SubscriptionRequest(b"t", 1, True))
    assert outcomes(publish(world, "t", who="c")) == {"c": (EXCLUDED, NO_LOCAL)}
    assert outcomes(publish(world, "t")) == {"c": (SENT, "")}


def test_one_member_of_a_group_gets_it() -> None:
    world = world_with_rules()
    for name in ("ann", "bob"):
        connected(world, name, name).subscribe("$share/g/#", qos=1)
    plan = publish(world, "secret", user="ann")
    assert [(each.client_id, each.group, each.outcome, each.is_next, each.detail) for each in plan.receivers] == [
        ("ann", b"$share/g/#", SENT, True, ""),
        ("bob", b"$share/g/#", EXCLUDED, False, "rule 2 receive secret"),
    ]
    assert [each.outcome for each in publish(world, "t").receivers] == [SENT, SENT]


@pytest.mark.parametrize("policy", ["round_robin", "least_inflight", "hash_topic", "hash_key"])
@pytest.mark.parametrize("qos", [0, 1])
def test_the_next_member_of_a_group_is_known_and_stays_so(policy: str, qos: int) -> None:
    draw = Random(7)
    world = World(Limits(max_queued_messages=3), share_policies={"*": policy}, filters=Filters())
    members = {f"c{number}": world.connect(f"c{number}", expiry=100, auto_ack=number % 2 == 0) for number in range(6)}
    for name, member in members.items():
        member.subscribe("$share/g/#", qos=1, where="topic != 't/0'" if name == "c3" else None)
    for _ in range(60):
        name = draw.choice(list(members))
        if members[name].closed:
            members[name] = world.connect(name, expiry=100, clean_start=False)
        elif draw.random() < 0.3:
            members[name].lose()
        topic = f"t/{draw.randrange(6)}"
        watchers = {name: dict(world.session(name).watchers) for name in members}
        plans = [publish(world, topic, qos=qos) for _ in range(2)]
        assert [outcomes(plans[0])] == [outcomes(plans[1])]
        (expected,) = [each.client_id for each in plans[0].receivers if each.is_next]
        assert [each.client_id for each in plans[1].receivers if each.is_next] == [expected]
        assert watchers == {name: dict(world.session(name).watchers) for name in members}
        before = {name: (world.session(name).queued, len(world.session(name).inflight)) for name in members}
        drops = {name: sum(world.session(name).drops.values()) for name in members}
        for member in members.values():
            member.received()
        world.publish(topic, "x", qos)
        got = [
            name
            for name, member in members.items()
            if member.payloads()
            or before[name] != (world.session(name).queued, len(world.session(name).inflight))
            or drops[name] != sum(world.session(name).drops.values())
        ]
        assert got == [expected], topic


def test_the_next_member_depends_on_a_payload_that_is_not_known() -> None:
    world = World(filters=Filters())
    world.connect("choosy").subscribe("$share/g/t", where="payload.n > 1")
    world.connect("other").subscribe("$share/g/t")
    plan = world.broker.planner.publish("", None, b"t", bytes(9), 0, False, knows_payload=False)
    assert [(each.client_id, each.detail, each.is_next) for each in plan.receivers] == [
        ("choosy", FILTERED, False),
        ("other", "", False),
    ]
    known = publish(world, "t", '{"n": 1}')
    assert [(each.client_id, each.outcome, each.is_next) for each in known.receivers] == [
        ("choosy", EXCLUDED, False),
        ("other", SENT, True),
    ]


def test_no_member_is_next_where_none_may_receive_the_message() -> None:
    world = world_with_rules()
    connected(world, "bob", "bob").subscribe("$share/g/#", qos=1)
    assert [each.is_next for each in publish(world, "secret", user="ann").receivers] == [False]


def test_other_receivers_are_named() -> None:
    world = World()
    world.broker.bind(b"t", Recording())
    plan = publish(world, "t")
    assert [(each.sink, each.outcome) for each in plan.receivers] == [("a store", QUEUED)]
    assert plan.sinks == 1


class Recording:
    def outlook(self, *_message: object) -> list[PlannedReceiver]:
        return [planned_sink("a store", QUEUED)]

    def prepare(self, messages: int) -> bool:
        raise AssertionError("nothing is published")

    accept = accept_batch = has_room = prepare  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("on_overflow", "delay", "code", "block_s"),
    [("reject", "", 0x97, 0), ("block", "", 0, 5), ("block", "$delayed/5/", 0, 0), ("drop_newest", "", 0, 0)],
)
def test_a_full_receiver_keeps_a_message_from_all_where_that_is_the_policy(
    on_overflow: str, delay: str, code: int, block_s: float
) -> None:
    world = World(Limits(max_queued_messages=1, max_block_s=5.0))
    world.broker.authorize(built_in_rules(authorizer=OnOverflow(on_overflow)))
    connected(world, "here").subscribe("t", qos=1)
    away = connected(world, "away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    assert publish(world, "t", qos=1).code == 0
    world.publish("t", "x", 1)
    plan = publish(world, f"{delay}t", qos=1)
    assert (plan.code, plan.block_s) == (code, block_s)
    said = f"{NO_ROOM}: away (queue_full)"
    assert plan.reason == said if code else plan.block_reason == (said if block_s else "")
    expected = {} if code else {"here": (SENT, ""), "away": (DROPPED, "queue_full")}
    assert outcomes(plan) == expected


def test_a_receiver_without_room_that_has_no_name_is_not_named() -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=OnOverflow("reject")))
    world.broker.bind(b"t", Full())
    assert publish(world, "t").reason == NO_ROOM


class OnOverflow(OpenRules):
    def __init__(self, on_overflow: str) -> None:
        self._policy = TopicPolicy("t", on_overflow=on_overflow)

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return self._policy


class Full(Recording):
    def has_room(self, _message: Message, _qos: int) -> bool:  # type: ignore[override]
        return False


def test_an_overloaded_broker_takes_nothing_of_low_priority() -> None:
    world = world_with_rules()
    world.broker.effects.sheds_low_priority = True
    assert publish(world, "t", qos=1).code == 0
    low = Properties(user_properties=[("priority", "low")])
    plan = world.broker.planner.publish("", None, b"t", b"x", 1, False, properties=low)
    assert (plan.code, plan.reason) == (0x97, OVERLOADED)
    world.broker.effects.sheds_qos0 = True
    assert [publish(world, "t", qos=qos).code for qos in (0, 1)] == [0x97, 0]


def test_a_blocked_link_keeps_or_drops_messages_of_qos_0() -> None:
    world = World(Limits(max_outbox_messages=1))
    client = connected(world, "slow")
    client.subscribe("t", qos=1)
    world.broker.block(client.connection, world.now)
    assert outcomes(publish(world, "t")) == {"slow": (QUEUED, "backpressure")}
    assert outcomes(publish(world, "t", qos=1)) == {"slow": (QUEUED, "backpressure")}
    world.publish("t", "x")
    assert outcomes(publish(world, "t")) == {"slow": (DROPPED, "buffer_full")}


def test_a_full_queue_makes_room_where_that_is_the_policy() -> None:
    world = World(Limits(max_queued_messages=1, on_overflow="drop_oldest"))
    away = connected(world, "away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    world.publish("t", "x", 1)
    assert outcomes(publish(world, "t", qos=1)) == {"away": (QUEUED, "offline")}


@pytest.mark.reaches
@pytest.mark.long
def test_receivers_above_a_limit_are_counted() -> None:
    world = World()
    for number in range(MAX_PLANNED + 2):
        connected(world, f"c{number}").subscribe("t")
    plan = publish(world, "t")
    assert (len(plan.receivers), plan.unnamed) == (MAX_PLANNED, 2)


def test_the_outcome_of_a_subscription_is_explained() -> None:
    world = world_with_rules()
    for topic in ("secret", "a", "b"):
        world.publish(topic, "x", 0, True)
    world.publish("gone", "x", 0, True, message_expiry_interval=1)
    world.broker.effects.now = world.now + 5
    ask = world.broker.planner.subscribe
    plan = ask("c", None, b"#", 2)
    assert (plan.code, plan.reason, plan.retained, plan.retained_denied) == (2, "rule 2 subscribe #", 2, 1)
    plan = ask("c", "ann", b"#", 1)
    assert (plan.code, plan.retained, plan.retained_denied, plan.is_connected) == (1, 3, 0, False)
    assert ask("c", None, b"#", 0, Grants(frozenset({"staff"}))).retained_denied == 0
    plan = ask("c", None, b"secret", 1)
    assert (plan.code, plan.reason) == (0x87, "rule 2 subscribe secret")
    assert ask("c", None, b"$share/g/#", 1).retained == 0
    assert ask("c", None, b"$queue/x", 1).code == 0x8F
    assert ask("c", None, b"a/#/b", 1).code == 0x8F


IN_US: Final = 'attributes.region = "us"'
LARGE: Final = "payload.n > 1"


@pytest.mark.parametrize(
    ("region", "payload", "expected"),
    [
        ("us", '{"n": 2}', {"some": "", "large": "", "both": "", "own": NO_LOCAL}),
        ("us", '{"n": 1}', {"some": "", "large": LARGE, "both": "", "own": NO_LOCAL}),
        ("eu", '{"n": 1}', {"some": IN_US, "large": LARGE, "both": f"{IN_US}; {LARGE}", "own": NO_LOCAL}),
        ("eu", None, {"some": IN_US, "large": FILTERED, "both": FILTERED, "own": NO_LOCAL}),
    ],
)
def test_filters_are_asked_as_far_as_the_message_is_known(
    region: str, payload: str | None, expected: dict[str, str]
) -> None:
    world = World(filters=Filters())
    world.connect("some").subscribe("t", where=IN_US)
    world.connect("large").subscribe("t", where=LARGE)
    both = world.connect("both")
    both.subscribe("t", where=IN_US)
    both.subscribe("#", where=LARGE)
    own = world.connect("own")
    own.subscribe(SubscriptionRequest(b"t", 0, True), where=IN_US)
    own.subscribe(SubscriptionRequest(b"+", 0, True), where=LARGE)
    plan = world.broker.planner.publish(
        *("own", None, b"t", (payload or "").encode(), 0, False),
        properties=Properties(user_properties=[("region", region)]),
        knows_payload=payload is not None,
    )
    assert {each.client_id: each.detail or each.reason for each in plan.receivers} == expected
    excluded = {each.client_id for each in plan.receivers if each.outcome == EXCLUDED}
    assert excluded == {name for name, why in expected.items() if why not in ("", FILTERED)}


def test_a_client_above_its_pace_would_not_get_a_message_of_qos_0() -> None:
    world = World()
    reader = world.open(quotas=Quotas(outgoing=Rates(BucketTable(Rate(messages_per_s=1)))))
    assert reader.connect("r") is not None
    reader.subscribe("t")
    assert outcomes(publish(world, "t")) == {"r": (SENT, "")}
    for _ in range(3):
        world.publish("t")
    assert outcomes(publish(world, "t")) == {"r": (DROPPED, RATE_LIMITED)}
