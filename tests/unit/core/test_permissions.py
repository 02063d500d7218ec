"""Who receives what under rules: subscribers, shared subscriptions, retained and queued messages, wills."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.authentication import Grants
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    DENIALS_TOLD_PER_S,
    INLINE_FILTERS_BYTES,
    ITERATION_WORK,
    MAX_ROUTE_VERDICTS,
    MAX_VERDICTS,
    VERDICT_TOPIC_BYTES,
    WILL_GRACE_S,
    Limits,
)
from mqttlite.core.message import Message
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.share_members import HASH_TOPIC, LEAST_INFLIGHT, ROUND_ROBIN
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.route.tally import Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import THE_BROKER
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.names import matches
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe, Will
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import Client, World
from tests.support.rules import OpenRules, permissions


class Readers(OpenRules):
    """Client identifiers that begin with `r` read below `private`; the others do not. Everybody writes."""

    def __init__(self, readers: str = "r") -> None:
        self.readers = readers
        self.asked: list[tuple[int, bytes]] = []

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if client_id[0] in self.readers else 0

    def is_readable(self, topic: bytes) -> bool:
        return not topic.startswith(b"private")

    def may_receive(self, role: int, topic: bytes) -> bool:
        self.asked.append((role, topic))
        return role == 1


class Writers(Readers):
    """The same for publishing."""

    def is_open(self, topic: bytes) -> bool:
        return not topic.startswith(b"private")

    def is_readable(self, topic: bytes) -> bool:
        return True

    def may_publish(self, role: int, topic: bytes) -> bool:
        self.asked.append((role, topic))
        return role == 1


def world_with(rules: OpenRules, limits: Limits | None = None, policy: str = ROUND_ROBIN) -> World:
    world = World(limits, share_policies={"*": policy})
    world.broker.authorize(built_in_rules(authorizer=rules))
    return world


QOS = pytest.mark.parametrize("qos", [0, 1, 2])


@QOS
def test_a_subscriber_to_everything_gets_what_it_may_receive(qos: int) -> None:
    rules = Readers()
    world = world_with(rules)
    reader, other, writer = (world.connect(name) for name in ("r", "o", "w"))
    assert list(reader.subscribe("#", qos=qos)) == list(other.subscribe("#", qos=qos)) == [qos]
    for _ in range(2):
        writer.publish("private/a", "x", qos)
        writer.publish("public/a", "y", qos)
    assert reader.payloads() == ["x", "y"] * 2
    assert other.payloads() == ["y"] * 2
    assert sorted(rules.asked) == [(0, b"private/a"), (1, b"private/a")]
    assert world.session("o").drops == {}


@QOS
def test_retained_messages_are_sent_to_those_that_may_receive_them(qos: int) -> None:
    world = world_with(Readers())
    world.publish("private/a", "x", qos, retain=True)
    world.publish("public/a", "y", qos, retain=True)
    reader, other = world.connect("r"), world.connect("o")
    reader.subscribe("#", qos=qos)
    other.subscribe("#", qos=qos)
    assert sorted(reader.payloads()) == ["x", "y"]
    assert other.payloads() == ["y"]
    assert world.session("o").drops == {}


def test_a_waiting_message_is_dropped_when_its_receiver_may_not_have_it_any_more() -> None:
    world = world_with(Readers("ro"))
    other = world.connect("o", expiry=100, receive_maximum=1, auto_ack=False)
    other.subscribe("#", qos=1)
    for topic in ("private/a", "private/b", "public/a"):
        world.publish(topic, topic, 1)
    assert other.payloads() == ["private/a"]
    other.lose()
    world.broker.authorize(built_in_rules(authorizer=Readers()))
    again = world.open()
    again.connect("o", clean_start=False, expiry=100)
    assert again.payloads() == ["public/a"]
    assert world.session("o").drops == {"not_authorized": 2}
    assert world.broker.permissions.denied["receive"] == 2
    restarted = world.restart()
    restarted.broker.authorize(built_in_rules(authorizer=Readers()))
    assert len(restarted.session("o").queue) == 0


def test_a_session_that_was_restored_gets_what_its_client_may_receive() -> None:
    world = world_with(Readers())
    for name in ("r", "o"):
        client = world.connect(name, expiry=100)
        client.subscribe("#", qos=1)
        client.lose()
    world = world.restart()
    world.broker.authorize(built_in_rules(authorizer=Readers()))
    world.publish("private/a", "x", 1)
    assert [len(world.session(name).queue) for name in ("r", "o")] == [1, 0]


@QOS
@pytest.mark.parametrize("policy", [ROUND_ROBIN, LEAST_INFLIGHT, HASH_TOPIC])
def test_a_share_gives_a_message_to_a_member_that_may_receive_it(policy: str, qos: int) -> None:
    world = world_with(Readers(), policy=policy)
    members = {name: world.connect(name) for name in ("o1", "r1", "o2", "r2", "o3")}
    for member in members.values():
        member.subscribe("$share/g/#", qos=qos)
    writer = world.connect("w")
    for number in range(6):
        writer.publish(f"private/{number}", "x", qos)
        writer.publish(f"public/{number}", "y", qos)
    got = {name: member.payloads() for name, member in members.items()}
    assert sum(map(len, got.values())) == 12
    assert all("x" not in got[name] for name in ("o1", "o2", "o3"))
    if policy != HASH_TOPIC:
        assert got["r1"].count("x") == got["r2"].count("x") == 3


def test_a_message_that_no_member_may_receive_is_dropped() -> None:
    world = world_with(Readers())
    world.connect("o1").subscribe("$share/g/#", qos=1)
    writer = world.connect("w")
    writer.publish("private/a", "x", 1)
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}
    assert world.broker.permissions.denied["receive"] == 1
    world.connect("r1", expiry=100).subscribe("$share/g/#", qos=1)
    writer.publish("private/a", "x", 1)
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}


def test_a_share_queues_for_a_member_that_is_away_if_no_other_may_receive_it() -> None:
    world = world_with(Readers())
    away = world.connect("r1", expiry=100)
    away.subscribe("$share/g/#", qos=1)
    away.lose()
    away = world.connect("r2", expiry=100)
    away.subscribe("$share/g/#", qos=1)
    away.lose()
    world.connect("o1").subscribe("$share/g/#", qos=1)
    world.publish("private/a", "x", 1)
    assert len(world.session("r1").queue) + len(world.session("r2").queue) == 1


def test_a_share_passes_a_full_member_over_for_one_that_may_receive_the_message() -> None:
    world = world_with(Readers(), Limits(max_queued_messages=1), policy=HASH_TOPIC)
    members = {name: world.connect(name, receive_maximum=1, auto_ack=False) for name in ("r1", "o1", "r2")}
    for member in members.values():
        member.subscribe("$share/g/#", qos=1)
    for _ in range(5):
        world.publish("private/a", "x", 1)
    assert [len(world.session(name).queue) for name in members] == [1, 0, 1]
    assert world.session("r1").drops.get("queue_full", 0) + world.session("r2").drops.get("queue_full", 0) == 1


def test_a_message_that_a_member_leaves_behind_goes_to_one_that_may_receive_it() -> None:
    world = world_with(Readers())
    first = world.connect("r1", auto_ack=False)
    first.subscribe("$share/g/#", qos=1)
    world.publish("private/a", "x", 1)
    other = world.connect("o1")
    other.subscribe("$share/g/#", qos=1)
    second = world.connect("r2", auto_ack=False)
    second.subscribe("$share/g/#", qos=1)
    first.lose()
    assert second.payloads() == ["x"]
    second.lose()
    assert other.payloads() == []
    assert world.broker.router.drops.by_reason == {"session_expired": 1}


def test_the_program_is_not_restricted() -> None:
    class Closed(Readers):
        def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
            return False

    world = world_with(Closed())
    program = world.open(is_trusted=True)
    program.connect("o")
    assert list(program.subscribe("#")) == [0]
    world.publish("private/a", "x")
    assert program.payloads() == ["x"]


def test_a_kept_session_of_the_program_is_not_restricted_while_the_program_is_away_nor_after_a_restart() -> None:
    world = world_with(Readers())
    program = world.open(is_trusted=True)
    program.connect("o", expiry=1_000)
    program.subscribe("#", qos=1)
    program.lose()
    world.publish("private/a", "1", 1)
    after = world.restart()
    after.broker.authorize(Readers())
    after.publish("private/a", "2", 1)
    again = after.open(is_trusted=True)
    again.connect("o", clean_start=False, expiry=1_000)
    assert again.payloads() == ["1", "2"]


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("clean_start", [True, False])
def test_only_the_program_goes_on_with_a_session_of_the_program(is_connected: bool, clean_start: bool) -> None:
    world = World()
    program = world.open(is_trusted=True)
    program.connect("o", expiry=1_000)
    if not is_connected:
        program.lose()
    stranger = world.open()
    connack = stranger.connect("o", clean_start=clean_start)
    assert connack is not None
    assert connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert program.closed is not is_connected
    again = world.open(is_trusted=True)
    connack = again.connect("o", clean_start=False)
    assert connack is not None
    assert connack.session_present


def test_no_local_of_the_program_is_for_what_any_part_of_the_program_publishes() -> None:
    world = World()
    client = world.connect("c")
    program = world.open(is_trusted=True)
    program.connect("o")
    for each in (program, client):
        each.subscribe(SubscriptionRequest(b"t", 0, no_local=True), SubscriptionRequest(b"+", 0, no_local=True))
    world.publish("t", "the program's")
    client.publish("t", "the client's")
    assert program.payloads() == ["the client's"]
    assert client.payloads() == ["the program's"]
    program.subscribe(SubscriptionRequest(b"+", 0))
    world.publish("t", "again")
    assert program.payloads() == ["again"]


def test_no_local_of_a_part_that_hears_the_program_is_for_what_it_publishes_itself() -> None:
    world = World()
    part = world.open(is_trusted=True, hears_program=True)
    part.connect("o")
    part.subscribe(SubscriptionRequest(b"t", 0, no_local=True))
    world.publish("t", "the program's")
    part.publish("t", "its own")
    assert part.payloads() == ["the program's"]


def test_a_will_that_its_client_may_not_publish_is_dropped_when_it_comes() -> None:
    world = world_with(Writers())
    reader = world.connect("s")
    reader.subscribe("#")
    denied = world.connect("x", expiry=100, will=Will(b"private/will", b"x"))
    assert world.session("x").will is None
    assert world.broker.permissions.denied["publish"] == 1
    world.broker.authorize(built_in_rules())
    denied.lose()
    assert reader.payloads() == []
    world.connect("y", will=Will(b"open/will", b"y")).lose()
    assert reader.payloads() == ["y"]


@pytest.mark.parametrize("version", [V311, V5])
def test_a_session_of_another_user_is_not_handed_over(version: int) -> None:
    world = world_with(Readers())
    ann = world.connect("r", expiry=100, username="ann")
    ann.subscribe("private/#", qos=1)
    ann.lose()
    other = world.open(version)
    connack = other.connect("r", clean_start=False, username="bob")
    assert connack is not None
    assert connack.reason_code == (2 if version == V311 else 0x85)
    assert world.session("r").username == "ann"
    assert world.connect("r", clean_start=False, username="ann").connection.session_present


@pytest.mark.parametrize("expiry", [0, 100])
def test_another_user_does_not_take_back_the_will_of_a_client_after_a_crash(expiry: int) -> None:
    world = world_with(Readers())
    watcher = world.connect("watcher", expiry=1_000)
    watcher.subscribe("w", qos=1)
    world.connect("r", expiry=expiry, username="ann", will=Will(b"w", b"gone", 1, False))
    world = world.restart()
    world.broker.authorize(Readers())
    watcher = world.connect("watcher", clean_start=False, expiry=1_000)
    connack = world.open().connect("r", username="bob")
    assert connack is not None
    assert connack.reason_code == 0x85
    world.advance(WILL_GRACE_S + 1)
    assert watcher.payloads() == ["gone"]


def test_a_session_of_nobody_becomes_that_of_a_user() -> None:
    world = world_with(Readers())
    world.connect("r", expiry=100).lose()
    assert world.connect("r", clean_start=False, username="ann").connection.session_present


def test_without_rules_a_session_belongs_to_its_client_identifier() -> None:
    world = World()
    world.connect("r", expiry=100, username="ann").lose()
    assert world.connect("r", clean_start=False, username="bob").connection.session_present


def test_a_user_name_that_nobody_verified_counts_only_where_none_is_verified() -> None:
    world = world_with(Readers())
    assert world.connect("a", username="admin").connection.username == "admin"
    world.broker.permissions.trusts_names = False
    assert world.connect("b", username="admin").connection.username is None
    asked = world.open(must_authenticate=True)
    asked.connect("c", username="ann", password=b"pw")
    world.answer(asked, True)
    assert asked.connection.username == "ann"


def test_a_will_is_published_only_where_its_client_may_publish_then() -> None:
    world = world_with(Writers("rw"))
    reader = world.connect("s")
    reader.subscribe("#")
    world.connect("w", will=Will(b"private/will", b"w")).lose()
    assert reader.payloads() == ["w"]
    late = world.connect("w", will=Will(b"private/will", b"w"))
    world.broker.authorize(built_in_rules(authorizer=Writers()))
    late.lose()
    assert reader.payloads() == []
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}
    assert world.broker.permissions.denied == {"publish": 1, "subscribe": 0, "receive": 0}


@pytest.mark.long
@QOS
def test_new_rules_hold_for_messages_that_are_on_their_way_to_many(qos: int) -> None:
    world = world_with(Readers("ro"))
    others = [world.connect(f"o{number}") for number in range(300)]
    readers = [world.connect(f"r{number}") for number in range(300)]
    for client in others + readers:
        client.subscribe("#", qos=qos)
    shared = world.connect("o")
    shared.subscribe("$share/g/#", qos=qos)
    world.broker.effects.work = ITERATION_WORK
    world.broker.publish(b"private/a", b"x", 2, False, world.now)
    assert len(world.broker.jobs) == 1
    world.broker.authorize(built_in_rules(authorizer=Readers()))
    world.settle()
    assert all(client.payloads() == ["x"] for client in readers)
    assert all(client.payloads() == [] for client in [*others, shared])
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}


def test_new_rules_hold_for_a_batch_that_is_on_its_way() -> None:
    world = world_with(Readers("ro"))
    reader, other = world.connect("r"), world.connect("o")
    for client in (reader, other):
        client.subscribe("#", qos=1, identifier=1)
    writer = world.connect("w")
    world.broker.effects.work = ITERATION_WORK - 1
    packets = b"".join([encode(Publish(b"private/a", b"x"), V5) for _ in range(3)])
    world.broker.effects.work = ITERATION_WORK - 1
    world.broker.feed(writer.connection, packets, world.now)
    waiting = len(world.broker.jobs)
    world.broker.authorize(built_in_rules(authorizer=Readers()))
    world.settle()
    assert waiting == 1
    assert (reader.payloads(), other.payloads()) == (["x"] * 3, [])


def test_a_share_whose_last_member_has_left_gets_nothing() -> None:
    tally = Tally()
    tally.reached = 1
    rules = permissions()
    rules.authorize(built_in_rules(authorizer=Readers()))
    share = SharedSubscription(b"$share/g/#", ROUND_ROBIN, Effects(), rules)
    assert rules.hides(b"private/a")
    share.accept(Message(b"private/a", b"x"), THE_BROKER, tally)
    assert (tally.reached, tally.dropped) == (0, {})


# ── reasons ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Closed(OpenRules):
    def is_open(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return False

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return False

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return f"denied {action} {topic.decode()}"


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("topic", ["a", "$delayed/5/a"])
def test_a_5_0_publisher_is_told_the_rule(topic: str, qos: int) -> None:
    world = world_with(Closed())
    client = world.connect("c")
    client.publish(topic, "x", qos)
    [ack] = [packet for packet in client.received() if isinstance(packet, Ack)]
    assert (ack.reason_code, ack.properties.reason_string) == (0x87, "denied publish a")


def test_a_client_that_wants_no_problem_information_gets_none() -> None:
    world = world_with(Closed())
    client = world.connect("c")
    client.connection.problem_information = False
    client.publish("a", "x", 1)
    assert client.received()[0].properties.reason_string is None  # type: ignore[union-attr]
    old = world.connect("d", V311)
    old.publish("a", "x", 1)
    assert old.received() == [Ack(4, 1)]


def test_suback_says_which_rule_refuses_the_first_filter_that_is_refused() -> None:
    world = world_with(Closed())
    client = world.connect("c")
    client.send(Subscribe(1, (SubscriptionRequest(b"a"), SubscriptionRequest(b"b"))))
    [suback] = client.received()
    assert isinstance(suback, Suback)
    assert (suback.reason_codes, suback.properties.reason_string) == (b"\x87\x87", "denied subscribe a")


def test_denials_are_counted_and_told_so_many_times_a_second() -> None:
    world = world_with(Closed())
    told: list[tuple[str, str | None, str, bytes, str]] = []
    world.broker.permissions.on_denied = lambda *denial: told.append(denial)
    client = world.connect("c")
    client.subscribe("a")
    for _ in range(DENIALS_TOLD_PER_S + 5):
        client.publish("a", "x")
    assert len(told) == DENIALS_TOLD_PER_S
    assert told[:2] == [
        ("c", None, "subscribe", b"a", "denied subscribe a"),
        ("c", None, "publish", b"a", "denied publish a"),
    ]
    world.advance(1)
    client.publish("a", "x")
    assert len(told) == DENIALS_TOLD_PER_S + 1
    assert world.broker.permissions.denied == {"publish": DENIALS_TOLD_PER_S + 6, "subscribe": 1, "receive": 0}


def test_operators_are_told_why_a_subscription_is_refused_that_no_rule_denies() -> None:
    world = World()
    told: list[tuple[str, str | None, str, bytes, str]] = []
    world.broker.permissions.on_denied = lambda *denial: told.append(denial)
    client = world.connect("c", version=V311)
    assert client.subscribe("a", "$queue/jobs", "$queue/mail") == b"\x00\x80\x80"
    assert [each[:4] for each in told] == [("c", None, "subscribe", name) for name in (b"$queue/jobs", b"$queue/mail")]
    assert [each[4] for each in told] == [
        "$queue/…: this broker does not serve it",
        "topic filter invalid (0x8F)",
    ], "SUBACK has one sentence, that of the first"
    assert world.broker.permissions.denied["subscribe"] == 0, "no rule denied it"


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def asks(permitted: Permissions, rules: Readers, session: Session, topic: bytes) -> bool:
    """Whether the rules are asked for a verdict."""
    before = len(rules.asked)
    permitted.may_receive(session, topic)
    return len(rules.asked) > before


def test_verdicts_are_kept_up_to_a_limit() -> None:
    rules = Readers()
    permitted = permissions()
    permitted.authorize(built_in_rules(authorizer=rules))
    session = world_with(rules).broker.sessions.begin("o", 0)
    long = b"private/" + b"x" * VERDICT_TOPIC_BYTES
    assert asks(permitted, rules, session, long)
    assert asks(permitted, rules, session, long)
    limit = long[:VERDICT_TOPIC_BYTES]
    assert asks(permitted, rules, session, limit)
    assert not asks(permitted, rules, session, limit)
    for number in range(MAX_VERDICTS - 1):
        assert asks(permitted, rules, session, b"private/%d" % number)
    assert not asks(permitted, rules, session, limit)
    assert asks(permitted, rules, session, b"private/more")
    assert asks(permitted, rules, session, limit)


def test_a_route_keeps_the_verdicts_of_so_many_roles() -> None:
    class Many(Writers):
        def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
            return int(client_id)

    rules = Many()
    world = world_with(rules)
    known = MAX_ROUTE_VERDICTS + 1  # with the one that was allowed first
    clients = [world.connect(str(number)) for number in range(known + 1)]
    for client in clients[:-1]:
        client.publish("private/a", "x")
        client.publish("private/a", "x")
    assert len(rules.asked) == known
    clients[0].publish("private/a", "x")
    assert len(rules.asked) == known
    clients[-1].publish("private/a", "x")
    clients[1].publish("private/a", "x")  # the role that was allowed last is not forgotten
    assert len(rules.asked) == known + 1
    clients[0].publish("private/a", "x")
    assert len(rules.asked) == known + 2


def test_a_second_role_that_is_allowed_does_not_make_the_route_ask_about_the_first_again() -> None:
    class Any(Writers):
        def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
            return int(client_id)

        def may_publish(self, role: int, topic: bytes) -> bool:
            self.asked.append((role, topic))
            return True

    rules = Any()
    world = world_with(rules)
    for number in (0, 1, 0, 1, 0):
        world.connect(str(number)).publish("private/a", "x")
    assert rules.asked == [(0, b"private/a"), (1, b"private/a")]


# ── any rules ──────────────────────────────────────────────────────────────────────────────────────────────────────

TOPICS = ("a", "a/b", "b", "b/c")
FILTERS = ("#", "a/#", "+/b", "b", "+")
ROLES = 3


class Table(OpenRules):
    """What each role may publish and receive is in a table."""

    def __init__(self, publish: set[tuple[int, str]], receive: set[tuple[int, str]]) -> None:
        self.publish = publish
        self.receive = receive

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id[1])

    def is_open(self, topic: bytes) -> bool:
        return all((role, topic.decode()) in self.publish for role in range(ROLES))

    def is_readable(self, topic: bytes) -> bool:
        return all((role, topic.decode()) in self.receive for role in range(ROLES))

    def may_publish(self, role: int, topic: bytes) -> bool:
        return (role, topic.decode()) in self.publish

    def may_receive(self, role: int, topic: bytes) -> bool:
        return (role, topic.decode()) in self.receive

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        topic_filter = topic_filter.removeprefix(b"$share/g/")
        return any(matches(topic_filter, topic.encode()) and (role, topic) in self.receive for topic in TOPICS)


PAIRS = list(product(range(ROLES), TOPICS))
TABLES = st.builds(Table, st.sets(st.sampled_from(PAIRS)), st.sets(st.sampled_from(PAIRS)))


@pytest.mark.slow
@given(st.lists(TABLES, min_size=1, max_size=3), st.sampled_from(FILTERS), st.sampled_from([0, 1, 2]))
def test_clients_get_and_publish_what_the_rules_say_and_nothing_else(
    tables: list[Table], topic_filter: str, qos: int
) -> None:
    world = World()
    clients = {role: world.connect(f"c{role}") for role in range(ROLES)}
    waiting = {role: world.connect(f"w{role}", expiry=100) for role in range(ROLES)}
    for table in tables:
        world.broker.authorize(built_in_rules(authorizer=table))
        granted = check_subscribing(clients, table, topic_filter, qos)
        check_messages(world, clients, granted, table, topic_filter, qos)
        check_share(world, clients, table, topic_filter, qos)
        check_retained(world, clients, granted, table, topic_filter, qos)
        check_wills(world, clients, granted, table, topic_filter)
    check_waiting(world, waiting, tables[-1], topic_filter)


def expected(table: Table, role: int, topic: str, topic_filter: str) -> bool:
    return (role, topic) in table.receive and matches(topic_filter.encode(), topic.encode())


def check_subscribing(clients: dict[int, Client], table: Table, topic_filter: str, qos: int) -> set[int]:
    """The roles that are subscribed, for what was granted under earlier rules stays."""
    granted = set()
    for role, client in clients.items():
        [code] = client.subscribe(topic_filter, qos=qos)
        client.received()
        assert (code == qos) == table.may_subscribe(role, topic_filter.encode())
        if code == qos:
            granted.add(role)
    return granted


def check_messages(
    world: World, clients: dict[int, Client], granted: set[int], table: Table, topic_filter: str, qos: int
) -> None:
    for (sender, topic), _again in product(PAIRS, range(2)):
        clients[sender].publish(topic, "x", qos)
        for role, client in clients.items():
            fresh = (sender, topic) in table.publish and expected(table, role, topic, topic_filter)
            is_subscribed = role in granted
            assert client.messages() == [(topic, "x")] * (fresh and is_subscribed), (sender, role, topic)


def check_share(world: World, clients: dict[int, Client], table: Table, topic_filter: str, qos: int) -> None:
    members = {role: world.connect(f"s{role}") for role in clients}
    joined = {
        role
        for role, member in members.items()
        if member.subscribe(f"$share/g/{topic_filter}", qos=qos) == bytes([qos])
    }
    assert joined == {role for role in members if table.may_subscribe(role, topic_filter.encode())}
    for topic in TOPICS:
        world.publish(topic, "x", qos)
        able = {role for role in joined if expected(table, role, topic, topic_filter)}
        got = {role for role, member in members.items() if member.messages()}
        assert got <= able
        assert len(got) == bool(able)
    for client in [*members.values()]:
        client.disconnect()
    for client in clients.values():
        client.received()


def check_retained(
    world: World, clients: dict[int, Client], granted: set[int], table: Table, topic_filter: str, qos: int
) -> None:
    for topic in TOPICS:
        world.publish(topic, "r", qos, retain=True)
    for role, client in clients.items():
        client.received()
        client.subscribe(topic_filter, qos=qos)
        wanted = {(topic, "r") for topic in TOPICS if expected(table, role, topic, topic_filter)}
        assert set(client.messages()) == (wanted if role in granted else set())
    for topic in TOPICS:
        world.publish(topic, "", qos, retain=True)
    for client in clients.values():
        client.received()


def check_wills(world: World, clients: dict[int, Client], granted: set[int], table: Table, topic_filter: str) -> None:
    for sender, topic in PAIRS:
        world.connect(f"x{sender}", will=Will(topic.encode(), b"w")).lose()
        for role, client in clients.items():
            fresh = (sender, topic) in table.publish and expected(table, role, topic, topic_filter)
            assert client.messages() == [(topic, "w")] * (fresh and role in granted)


def check_waiting(world: World, waiting: dict[int, Client], table: Table, topic_filter: str) -> None:
    """What was queued while everything was allowed is sent under the rules of then."""
    world.broker.authorize(built_in_rules())
    for role, client in waiting.items():
        client.subscribe(topic_filter, qos=1)
        client.lose()
        assert world.session(f"w{role}").outbox is None
    for topic in TOPICS:
        world.publish(topic, "q", 1)
    world.broker.authorize(built_in_rules(authorizer=table))
    for role in waiting:
        back = world.open()
        back.connect(f"w{role}", clean_start=False, expiry=100)
        wanted = [(topic, "q") for topic in TOPICS if expected(table, role, topic, topic_filter)]
        assert back.messages() == wanted


class Captive(OpenRules):
    """Lets clients unsubscribe from `free` only."""

    def may_unsubscribe(self, role: int, topic_filter: bytes) -> bool:
        return topic_filter in (b"free", b"$queue/free")


def test_a_refused_unsubscribe_is_answered_and_the_subscription_stays() -> None:
    world = world_with(Captive())
    client, old, other = world.connect("c"), world.connect("d", V311), world.connect("p")
    for each in (client, old):
        each.subscribe("kept")
        each.subscribe("free")
        each.send(Unsubscribe(7, (b"kept", b"free", b"$queue/free/a")))
    [unsuback] = client.received()
    assert unsuback == Unsuback(7, b"\x87\x00\x11")
    assert len(old.received()) == 1
    other.publish("kept", "x")
    other.publish("free", "x")
    assert client.payloads() == old.payloads() == ["x"]
    assert world.broker.permissions.denied["subscribe"] == 2


def test_a_refused_filter_of_a_long_unsubscribe_stays() -> None:
    world = world_with(Captive())
    client, other = world.connect("c"), world.connect("p")
    client.subscribe("kept")
    client.send(Unsubscribe(7, (b"kept", *(b"free/%d" % number * 20 for number in range(INLINE_FILTERS_BYTES // 20)))))
    other.publish("kept", "x")
    assert "x" in client.payloads()


def test_rules_that_say_nothing_about_unsubscribe_allow_it() -> None:
    for world in (world_with(OpenRules()), World()):
        client = world.connect("c")
        client.subscribe("a")
        client.send(Unsubscribe(7, (b"a",)))
        assert client.received() == [Unsuback(7, b"\x00")]
