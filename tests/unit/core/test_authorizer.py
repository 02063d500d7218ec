"""Permissions of another kind than the default: one class and one call of `authorize`."""

import pytest

from mqttlite.core.authentication import NO_GRANTS, Grants, Verdict
from mqttlite.core.authorizer import ANYBODY, PUBLISH
from mqttlite.core.authorizer import OpenRules as OpenByDefault
from mqttlite.core.connect.connection import CONNECTED
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.extensions.presence.topics import presence_subject
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Auth, Connect, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.rules import OpenRules


class Owners(OpenRules):
    """A toy authorizer: below `private/` only alice publishes and subscribes."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bytes]] = []

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if client_id == "alice" else 0

    def is_open(self, topic: bytes) -> bool:
        return not topic.startswith(b"private/")

    def may_publish(self, role: int, topic: bytes) -> bool:
        self.asked.append((role, topic))
        return role == 1

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return role == 1 or not topic_filter.startswith(b"private/")


def publish(client: Client, topic: str, payload: str) -> int:
    """The reason code of the PUBACK."""
    client.publish(topic, payload, 1)
    [code] = [packet.reason_code for packet in client.received() if isinstance(packet, Ack)]
    return code


def test_a_role_that_may_not_publish_is_told_and_nobody_gets_the_message() -> None:
    world = World()
    world.broker.authorize(Owners())
    alice, bob = world.connect("alice"), world.connect("bob")
    assert list(alice.subscribe("private/a", qos=1)) == [1]
    assert world.publish("private/a", "the program's", 1) == 0
    assert publish(bob, "private/a", "not mine") == 0x87
    assert publish(bob, "public/a", "ours") == 0x10
    alice.publish("private/a", "mine", 1)
    assert alice.payloads() == ["the program's", "mine"]
    assert world.broker.router.drops.by_reason["not_authorized"] == 1


@pytest.mark.parametrize(("version", "code"), [(V5, 0x87), (V311, 0x80)])
def test_a_role_that_may_not_subscribe_is_refused(version: int, code: int) -> None:
    world = World()
    world.broker.authorize(Owners())
    assert world.connect("bob", version).subscribe("private/a") == bytes([code])


def test_the_verdict_for_a_role_is_asked_for_once_a_route() -> None:
    world = World()
    owners = Owners()
    world.broker.authorize(owners)
    bob, carol = world.connect("bob"), world.connect("carol")
    for qos in (0, 1, 2):
        bob.publish("private/a", "x", qos)
        carol.publish("private/a", "x", qos)
    assert owners.asked == [(0, b"private/a")]


def test_new_rules_hold_at_once_for_clients_that_are_connected() -> None:
    world = World()
    bob = world.connect("bob")
    bob.subscribe("private/#")
    assert publish(bob, "private/a", "x") == 0
    world.broker.authorize(Owners())
    assert publish(bob, "private/a", "x") == 0x87


def test_the_program_may_publish_everywhere() -> None:
    world = World()
    world.broker.authorize(Owners())
    world.connect("alice").subscribe("private/a")
    assert world.publish("private/a", "x") == 0


def test_the_rules_for_sys_hold_beside_an_authorizer() -> None:
    world = World()
    world.broker.authorize(built_in_rules(frozenset({"analyst"}), Owners()))
    alice, analyst = world.connect("alice"), world.connect("analyst")
    assert publish(alice, "private/a", "x") == 0x10
    assert publish(alice, "$SYS/broker/uptime", "x") == 0x87
    assert publish(alice, "$SYS/analytics/a", "x") == 0x87
    assert publish(analyst, "$SYS/analytics/a", "x") == 0x10
    assert publish(analyst, "$SYS/broker/uptime", "x") == 0x87
    assert publish(analyst, "private/a", "x") == 0x87
    assert publish(analyst, "public/a", "x") == 0x10
    assert list(alice.subscribe("private/a")) == [0]
    assert list(analyst.subscribe("private/a")) == [0x87]


class NoShares(Owners):
    """Nobody may use shared subscriptions."""

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return not topic_filter.startswith(b"$share/")


def test_an_authorizer_sees_the_whole_filter_of_a_shared_subscription() -> None:
    world = World()
    world.broker.authorize(NoShares())
    assert list(world.connect("bob").subscribe("$share/g/a", "a")) == [0x87, 0]


class ByGroup(OpenRules):
    """A role for the group `staff`, which alone publishes below `private/`."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if "staff" in grants.groups else 0

    def is_open(self, topic: bytes) -> bool:
        return not topic.startswith(b"private/")

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 1


def test_a_queue_needs_subscribe_to_acknowledge_and_publish_to_command() -> None:
    rules = built_in_rules(authorizer=ByGroup())
    member, other = 2, 0
    for topic, allowed in ((b"$queue/q/$ack", (True, True)), (b"$queue/q/$seek/a", (True, False))):
        assert (rules.may_publish(member, topic), rules.may_publish(other, topic)) == allowed


def test_only_a_rule_lets_a_client_make_or_delete_a_queue() -> None:
    class Named(OpenRules):
        """The queue `q` is for the role 1, and no other topic is named."""

        def is_open(self, topic: bytes) -> bool:
            return not topic.startswith(b"$queue/q")

        def may_publish(self, role: int, topic: bytes) -> bool:
            return self.is_open(topic) or role == 1

    rules, none = built_in_rules(authorizer=Named()), built_in_rules()
    member, other = 2, 0
    why = "to make or delete a queue takes a permission, and no rule or policy gives it for this topic"
    for command in (b"$create", b"$delete", b"$delete/ops/answers"):
        named, unnamed = b"$queue/q/" + command, b"$queue/other/" + command
        assert not any(each.is_open(topic) for each in (rules, none) for topic in (named, unnamed))
        assert (rules.may_publish(member, named), rules.may_publish(other, named)) == (True, False)
        assert rules.reason(other, "publish", named) == "role 0 may not publish"
        assert not rules.may_publish(member, unnamed)
        assert not none.may_publish(0, named)
        assert rules.reason(member, "publish", unnamed) == rules.told(member, "publish", unnamed) == why
        assert none.reason(0, "publish", named) == why
    assert rules.may_publish(other, b"$queue/other/$purge")


STAFF = Grants(frozenset({"staff"}))


def test_the_grants_of_a_verdict_decide_the_role() -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=ByGroup()))
    client = world.open(must_authenticate=True)
    client.connect("a", username="u", password=b"p")
    world.decide(client, Verdict(0, grants=STAFF))
    client.received()
    assert client.connection.grants is STAFF
    assert publish(client, "private/a", "x") == 0x10
    world.broker.authorize(built_in_rules(authorizer=ByGroup()))
    assert publish(client, "private/a", "x") == 0x10


def test_grants_without_anything_in_them_never_expire() -> None:
    assert Grants().expires_at == float("inf")
    assert repr(STAFF) == "Grants(['staff'], None, None, inf)"


def test_a_client_that_authenticates_again_has_the_grants_of_that() -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=ByGroup()))
    client = world.open(methods=frozenset({"M"}))
    client.send(Connect("a", V5, properties=Properties(authentication_method="M")))
    world.decide(client, Verdict(0, username="u"))
    client.received()
    assert publish(client, "private/a", "x") == 0x87
    client.send(Auth(0x19, Properties(authentication_method="M")))
    world.decide(client, Verdict(0, username="u", grants=STAFF))
    client.received()
    assert publish(client, "private/a", "x") == 0x10


def test_default_rules_pass_on_what_the_authorizer_says() -> None:
    class Strict(OpenRules):
        def is_readable(self, topic: bytes) -> bool:
            return False

        def may_receive(self, role: int, topic: bytes) -> bool:
            return role == 1

        def policy_of(self, topic: bytes) -> TopicPolicy:
            return POLICY

    rules = built_in_rules(authorizer=Strict())
    assert not rules.is_readable(b"a")
    assert [rules.may_receive(role, b"a") for role in (0, 1, 2, 3)] == [False, False, True, True]
    assert rules.policy_of(b"a") is POLICY
    assert rules.policy_of(b"$SYS/a") is NO_POLICY
    assert rules.reason(2, "publish", b"a") == "role 1 may not publish"
    assert rules.reason(2, "publish", b"$SYS/a") == "clients may not publish to $SYS and below"
    assert built_in_rules().reason(0, "receive", b"a") == ""
    assert repr(POLICY) == "TopicPolicy('strict')"


POLICY = TopicPolicy("strict")


PRESENCE, EVENTS = "$SYS/broker/presence/", "$SYS/broker/presence_events/"


class Readers(Owners):
    """Below `private/` only alice reads, and nobody reads what is called secret."""

    def is_readable(self, topic: bytes) -> bool:
        return not topic.startswith(b"private/") and b"secret" not in topic

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return super().may_subscribe(role, topic_filter) and b"secret" not in topic_filter

    def may_receive(self, role: int, topic: bytes) -> bool:
        return role == 1 and b"secret" not in topic


@pytest.mark.parametrize("beginning", [PRESENCE, EVENTS])
def test_presence_is_for_those_who_may_use_the_topic(beginning: str) -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=Readers()))
    alice, bob = world.connect("alice"), world.connect("bob")
    filters = [f"{beginning}{each}" for each in ("private/a", "private/#", "open", "secret")]
    filters += [f"$share/g/{beginning}private/a", f"{beginning}#", "$SYS/#"]
    assert list(alice.subscribe(*filters)) == [0, 0, 0, 0x87, 0, 0, 0]
    assert list(bob.subscribe(*filters)) == [0x87, 0x87, 0, 0x87, 0x87, 0, 0]
    for topic in ("private/a", "open", "secret"):
        world.publish(beginning + topic, topic, retain=True)
    assert set(alice.payloads()) == {"private/a", "open"}
    assert set(bob.payloads()) == {"open"}
    late = world.connect("carol")
    late.subscribe("$SYS/#")
    assert late.payloads() == ["open"], "what is retained, too"


def test_a_denied_presence_is_explained_by_the_rule_of_the_topic() -> None:
    rules = built_in_rules(authorizer=Readers())
    because = "role 0 may not subscribe, and what is told of a topic is for those who may receive it"
    assert rules.reason(0, "subscribe", PRESENCE.encode() + b"private/a") == because
    assert rules.reason(2, "receive", PRESENCE.encode() + b"secret") == "role 1 may not receive"
    assert rules.reason(0, "subscribe", b"private/a") == "role 0 may not subscribe"
    assert built_in_rules().reason(0, "receive", PRESENCE.encode() + b"a") == ""
    assert built_in_rules().may_subscribe(0, PRESENCE.encode() + b"a")
    assert built_in_rules().may_receive(0, PRESENCE.encode() + b"a")
    assert built_in_rules().is_readable(PRESENCE.encode() + b"a")


@pytest.mark.parametrize(
    ("topic", "subject"),
    [
        ("$SYS/broker/presence/a/b", "a/b"),
        ("$SYS/broker/presence_events/#", "#"),
        ("$SYS/broker/presence//a", "/a"),
        ("$SYS/broker/presence/", ""),
        ("$SYS/broker/presence", ""),
        ("$SYS/broker/presence/$share/+/x", ""),
        ("a/$SYS/broker/presence/a", ""),
    ],
)
def test_the_subject_of_presence_is_what_stands_behind_it(topic: str, subject: str) -> None:
    assert presence_subject(topic.encode()).decode() == subject


STATE = "$SYS/broker/connection/vm.up/state"


class Bridges(OpenRules):
    """Only alice is a bridge. Other topics are open."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return int(client_id == "alice")

    def is_open(self, topic: bytes) -> bool:
        return topic != STATE.encode()

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 1


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize(
    ("rules", "may"),
    [
        (built_in_rules(), False),
        (built_in_rules(bridges=True), True),
        (built_in_rules(authorizer=Bridges()), True),
        (built_in_rules(authorizer=Bridges(), bridges=True), True),
        (built_in_rules(authorizer=OpenRules()), False),
        (built_in_rules(authorizer=OpenRules(), bridges=True), True),
    ],
)
def test_a_bridge_tells_its_state_where_a_rule_or_the_option_lets_it(
    rules: built_in_rules, may: bool, version: int
) -> None:
    world = World()
    world.broker.authorize(rules)
    watcher = world.connect("watcher")
    watcher.subscribe("$SYS/broker/connection/#")
    bridge = world.connect("alice", version, will=Will(STATE.encode(), b"0", 1, True))
    assert bridge.connection.state == CONNECTED, "without the permission only its will is not kept"
    bridge.publish(STATE, "1", 1, retain=True)
    bridge.lose()
    assert watcher.payloads() == (["1", "0"] if may else [])


def test_only_a_rule_that_names_a_client_makes_it_a_bridge_and_nothing_else_of_sys_is_open() -> None:
    rules = built_in_rules(authorizer=Bridges(), bridges=True)
    bob = rules.role_of("bob", None, Grants())
    assert not rules.may_publish(bob, STATE.encode())
    for topic in (b"$SYS/broker/connection//state", b"$SYS/broker/connection/a/b/state", b"$SYS/broker/connection/a"):
        assert not rules.may_publish(rules.role_of("alice", None, Grants()), topic)
    alone = built_in_rules(bridges=True)
    assert alone.reason(0, "publish", STATE.encode()) == "allowed by sys.bridges, for no rule is about bridges"
    assert built_in_rules().reason(0, "publish", STATE.encode()).startswith("denied by sys.bridges")
    assert rules.reason(bob, "publish", b"$SYS/x") == "clients may not publish to $SYS and below"


def test_without_rules_only_the_broker_publishes_below_sys() -> None:
    rules = OpenByDefault()
    assert rules.role_of("c", "u", NO_GRANTS) == ANYBODY
    for topic in (b"a", b"$SYS/broker"):
        assert rules.is_readable(topic)
        assert rules.may_receive(ANYBODY, topic)
        assert rules.may_subscribe(ANYBODY, topic)
        assert rules.policy_of(topic) is NO_POLICY
    assert (rules.is_open(b"a"), rules.is_open(b"$SYS/broker")) == (True, False)
    assert (rules.may_publish(ANYBODY, b"a"), rules.may_publish(ANYBODY, b"$SYS/a")) == (True, False)
    assert rules.reason(ANYBODY, PUBLISH, b"$SYS/a") == "clients may not publish to $SYS and below"
