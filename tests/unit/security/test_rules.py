"""What rules say in single cases, in which words, and how many roles they know.

All cases are in tests/properties/test_rules.
"""

import gc

import pytest

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.topic_policy import NO_POLICY
from mqttlite.security import rules as module
from mqttlite.security.acl_file import parse
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.security.granted_topics import GrantedTopics
from mqttlite.security.rule_tree import Node
from mqttlite.security.rules import NO_PERMISSIONS, Rules
from mqttlite.security.topic_policies import TopicPolicies, TopicPolicyOptions

ACL = """\
topic read news/#
user ann
topic readwrite plant/#
topic deny plant/secret
group staff
topic read staff/+
pattern write own/%u/%c
pattern deny shared/%u/x
pattern readwrite shared/#
"""
POLICIES = (TopicPolicyOptions(prefix="plant/hall", access="PRIVATE", members=("bob",)),)


def rules(text: str | None = ACL, **options: object) -> Rules:
    acl = None if text is None else parse(text.split("\n"), "acl.conf")
    return Rules(acl, POLICIES, {"staff": ("bob",)}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("username", "client_id", "action", "topic", "reason"),
    [
        (None, "c", "receive", "news/a", "allowed by acl.conf:1 (anonymous clients)"),
        (None, "c", "publish", "news/a", "denied by default: acl.conf has no rule that allows it (anonymous clients)"),
        ("ann", "c", "receive", "news/a", "denied by default: acl.conf has no rule that allows it (user ann)"),
        ("eve", "c", "receive", "a", "denied by default: acl.conf has no rule that allows it (a user without rules)"),
        ("ann", "c", "publish", "plant/secret", "denied by acl.conf:4 (user ann)"),
        ("bob", "c", "receive", "staff/x", "allowed by acl.conf:6 (group staff)"),
        ("ann", "c", "publish", "own/ann/c", "allowed by acl.conf:7 (pattern)"),
        ("ann", "c", "publish", "shared/ann/x", "denied by acl.conf:8 (pattern)"),
        ("ann", "c", "publish", "shared/bob/x", "allowed by acl.conf:9 (pattern)"),
        ("ann", "+", "publish", "own/ann/+", "denied by a safeguard: a client identifier with + or # in it gets"),
        ("a#", "c", "receive", "shared/x", "denied by a safeguard: a user name with + or # in it gets nothing"),
        ("a/b", "c", "receive", "own/a/b/c", "denied by a safeguard: a user name with / in it gets nothing"),
        ("ann", "c", "receive", "$SYS/x", "allowed by default: no rule denies it, and clients may read below $SYS"),
        (
            "ann",
            "c",
            "publish",
            "plant/hall/x",
            'denied by the topic policy for "plant/hall" (PRIVATE), for the client',
        ),
        ("ann", "c", "subscribe", "plant/#", "allowed by acl.conf:3 (user ann)"),
        ("ann", "c", "subscribe", "plant/secret", "denied by acl.conf:4 (user ann)"),
        ("ann", "c", "subscribe", "plant/hall/#", 'denied by the topic policy for "plant/hall" (PRIVATE)'),
        ("ann", "c", "subscribe", "$share/g/plant/+", "allowed by acl.conf:3 (user ann)"),
        ("ann", "c", "publish", "$delayed/5/plant/a", "allowed by acl.conf:3 (user ann)"),
        ("ann", "c", "publish", "$delayed/5/other", "denied by default"),
    ],
)
def test_the_reason_names_the_rule(username: str | None, client_id: str, action: str, topic: str, reason: str) -> None:
    asked = rules()
    role = asked.role_of(client_id, username)
    assert asked.reason(role, action, topic.encode()).startswith(reason)


def test_without_an_acl_file_the_policies_decide() -> None:
    asked = rules(None)
    ann, bob = asked.role_of("c", "ann"), asked.role_of("c", "bob")
    assert asked.may_publish(ann, b"anything")
    assert asked.reason(ann, "publish", b"anything") == "allowed by default: there is no ACL file"
    assert not asked.may_publish(ann, b"plant/hall")
    assert asked.may_publish(bob, b"plant/hall")


def test_credentials_name_groups_and_may_name_fewer_topics() -> None:
    grants = Grants(frozenset({"staff"}), (b"out/#", b"plant/hall-1/#"), (b"staff/#",))
    asked = GrantedTopics(rules(), list)
    role = asked.role_of("c", "ann", grants)
    assert asked.may_receive(role, b"staff/x")
    assert asked.may_publish(role, b"plant/hall-1/x")
    assert not asked.may_publish(role, b"plant/hall-2/x")
    assert asked.reason(role, "publish", b"plant/hall-2/x") == "denied: the client's credentials do not name this topic"
    assert asked.reason(role, "publish", b"out/x").startswith("denied by default: acl.conf has no rule")


@pytest.mark.parametrize(("topic", "is_open"), [(b"other", True), (b"plant/hall", False)])
def test_without_an_acl_file_a_topic_is_open_unless_a_policy_keeps_it(topic: bytes, is_open: bool) -> None:
    assert rules(None).is_open(topic) == is_open
    assert rules(None).is_readable(topic) == is_open
    assert not rules().is_open(topic)
    assert not rules().is_readable(topic)


def test_clients_with_the_same_permissions_share_a_role() -> None:
    asked = rules("user ann\ntopic a\npattern read %u")
    assert asked.role_of("one", "ann") == asked.role_of("two", "ann", NO_GRANTS)
    assert asked.role_of("one", "ann") != asked.role_of("one", "eve")
    unnamed = rules("user ann\ntopic a")
    assert unnamed.role_of("one", "eve") == unnamed.role_of("two", "mallory")
    assert unnamed.role_of("one", None) != unnamed.role_of("one", "ann")
    assert unnamed.role_of("one", "eve", Grants(frozenset({"no rules"}))) == unnamed.role_of("one", "eve")


def test_roles_that_no_client_has_are_forgotten() -> None:
    used: set[int] = set()
    asked = rules("pattern read %c", roles_in_use=lambda: used, max_roles=3)
    first, second, third = (asked.role_of(name, None) for name in "abc")
    used |= {first, third}
    fourth = asked.role_of("d", None)
    assert fourth not in (first, second, third, NO_PERMISSIONS)
    assert asked.may_receive(first, b"a")
    assert not asked.may_receive(second, b"b")
    used.add(fourth)
    fifth = asked.role_of("e", None)
    assert fifth == NO_PERMISSIONS
    assert not asked.may_receive(fifth, b"e")
    assert not asked.may_subscribe(fifth, b"#")
    assert asked.reason(fifth, "publish", b"e").startswith("denied by a limit: 3 roles are in use")


def test_many_overlapping_rules_let_a_subscription_in(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rules("user ann\ntopic read a\ntopic read b\ntopic read c\ntopic deny +")
    role = asked.role_of("c", "ann")
    assert not asked.may_subscribe(role, b"+")
    monkeypatch.setattr(module, "MAX_OVERLAPS", 2)
    assert asked.may_subscribe(role, b"+")
    assert not asked.may_receive(role, b"a")


def test_the_core_goes_by_them() -> None:
    asked = built_in_rules(frozenset({"spark"}), rules())
    ann, spark = asked.role_of("c", "ann", NO_GRANTS), asked.role_of("c", "spark", NO_GRANTS)
    assert not asked.is_open(b"plant/x")
    assert not asked.is_readable(b"plant/x")
    assert asked.may_publish(ann, b"plant/x")
    assert asked.may_publish(spark, b"$SYS/analytics/x")
    assert not asked.may_publish(ann, b"$SYS/analytics/x")


# ── topic policies ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a", "a"),
        ("a/x", "a"),
        ("a/b", "a/b"),
        ("a/b/c/d", "a/b"),
        ("ab", "#"),
        ("x/raw", "+/raw"),
        ("a/raw", "a"),
        ("q/1/x", "q/+/x"),
        ("q/1/y", "q/#"),
        ("$SYS/raw", None),
    ],
)
def test_the_most_specific_policy_holds(topic: str, expected: str | None) -> None:
    filters = ["#", "+/raw", "q/#", "q/+/x"]
    policies = TopicPolicies(
        [
            *(TopicPolicyOptions(filter=each, ttl_s=1) for each in filters),
            *(TopicPolicyOptions(prefix=each) for each in ("a", "a/b")),
        ]
    )
    found = policies.of_core(topic.encode())
    assert (None if found is NO_POLICY else found.name) == expected


def test_a_policy_tells_the_core_its_limits() -> None:
    options = TopicPolicyOptions(
        prefix="a",
        topic_class="standard",
        min_qos=1,
        max_qos=1,
        max_payload_bytes=5,
        ttl_s=7,
    )
    found = Rules(None, [options]).policy_of(b"a/b")
    assert (found.name, found.is_ephemeral, found.min_qos, found.max_qos) == ("a", False, 1, 1)
    assert (found.max_payload_bytes, found.ttl_s) == (5, 7)
    ephemeral = Rules(None, [TopicPolicyOptions(prefix="a", topic_class="ephemeral")]).policy_of(b"a/b")
    assert (ephemeral.is_ephemeral, ephemeral.max_qos) == (True, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "prefix and filter: one of them names the topics"),
        ({"prefix": "a", "filter": "b"}, "prefix and filter: one of them"),
        ({"prefix": "a/"}, "prefix is 'a/': write 'a'"),
        ({"prefix": "a/#"}, "it has a wildcard; write filter = 'a/#'"),
        ({"filter": "a/#/b"}, "filter is wrong: '#' in"),
        ({"prefix": "a", "min_qos": 3}, "min_qos is 3: it may be 0 to 2"),
        ({"prefix": "a", "schema_violation": "dead_letter"}, "schema_violation is 'dead_letter' without a schema"),
        ({"prefix": "a", "schema_violation": "count"}, "schema_violation is 'count' without a schema"),
        ({"prefix": "a", "min_qos": 2, "max_qos": 1}, "min_qos is 2, above max_qos, which is 1"),
        ({"prefix": "a", "ttl_s": -1}, "ttl_s is -1"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_right_values(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 the sentence is compared below
        TopicPolicyOptions(**options)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.slow
def test_all_that_rules_are_made_of_can_be_let_go_of_in_parts() -> None:
    """Freeing a hundred thousand rules in one go would stop the event loop for a tenth of a second."""
    text = "topic a/+/c\ntopic a\npattern write own/%u/#\nuser ann\ntopic read b\ntopic deny b/+/x\ngroup team\ntopic c"
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is Node}
    acl = parse(text.split("\n"), "acl.conf")
    made = Rules(acl, [], {})
    nodes = {id(each) for each in gc.get_objects() if type(each) is Node} - before
    parts = made.parts()
    assert {id(each) for each in parts if type(each) is Node} >= nodes
    assert len(nodes) > 10
    assert [each for each in parts if type(each) is list] == [acl.users["ann"], acl.groups["team"]]
