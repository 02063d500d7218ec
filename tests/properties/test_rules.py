"""The rules against a reference model that looks at every rule and, for a filter, at every topic of a small world."""

import itertools
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.security.acl_file import AclFile
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule
from mqttlite.security.rules import Rules
from mqttlite.security.topic_policies import TopicPolicyOptions, intersection
from mqttlite.topics.names import matches

LEVELS: Final = (b"a", b"b", b"$SYS")
"""Levels of rules; topics have one more, which no rule names."""

MAX_LEVELS: Final = 3

NAMES: Final = (b"ann", b"bob", b"c1")
"""What a pattern may be filled in with."""

WORLD: Final = [
    b"/".join(levels)
    for count in range(1, MAX_LEVELS + 1)
    for levels in itertools.product((*LEVELS, b"z", *NAMES), repeat=count)
]
WORLD += [topic + b"/z" for topic in WORLD if topic.count(b"/") == MAX_LEVELS - 1]

filters = st.builds(
    lambda levels, end: b"/".join([*levels, *end]),
    st.lists(st.sampled_from((*LEVELS, b"+")), min_size=1, max_size=MAX_LEVELS - 1),
    st.sampled_from(([], [b"#"], [b"+"])),
) | st.just(b"#")
pattern_filters = filters | st.sampled_from([b"%u", b"%u/#", b"a/%u", b"+/%u", b"%u/%c", b"a/%c/#", b"%c", b"b/%u/+"])
accesses = st.sampled_from((DENY, READ, WRITE, READ | WRITE))
rule_lists = st.lists(st.tuples(accesses, filters), max_size=5)
names = st.sampled_from([None, "ann", "bob", "a", "+", "#", "a/b", "$SYS", "x+"])
ids = st.sampled_from(["a", "c1", "b/c", "+", "$SYS"])
grants = st.just(NO_GRANTS) | st.sets(st.sampled_from(["g", "h"])).map(lambda groups: Grants(frozenset(groups)))
policies = st.lists(
    st.builds(
        lambda topic_filter, access, members, groups: TopicPolicyOptions(
            filter=topic_filter.decode(), access=access, members=tuple(members), groups=tuple(groups)
        ),
        filters,
        st.sampled_from(["PUBLIC", "PRIVATE", "PUBLISH_ONLY", "SUBSCRIBE_ONLY"]),
        st.sets(st.sampled_from(["ann", "bob"])),
        st.sets(st.sampled_from(["g", "h"])),
    ),
    max_size=4,
    unique_by=lambda each: each.filter,
)


@st.composite
def acl_files(draw: st.DrawFn) -> AclFile:
    found = AclFile("acl.conf")
    lines = itertools.count(1)

    def rules(rule_list: list[tuple[int, bytes]]) -> list[Rule]:
        return [Rule(next(lines), access, topic_filter) for access, topic_filter in rule_list]

    found.anonymous.extend(rules(draw(rule_lists)))
    for user in draw(st.sets(st.sampled_from(["ann", "bob", "a"]))):
        found.users[user] = rules(draw(rule_lists))
    for group in draw(st.sets(st.sampled_from(["g", "h"]))):
        found.groups[group] = rules(draw(rule_lists))
    found.patterns.extend(rules(draw(st.lists(st.tuples(accesses, pattern_filters), max_size=3))))
    return found


class Model:
    """Mosquitto's order, one rule after the other."""

    def __init__(
        self,
        acl: AclFile | None,
        policies: list[TopicPolicyOptions],
        groups: dict[str, tuple[str, ...]],
        client: tuple[str, str | None, Grants],
    ) -> None:
        self.acl = acl
        self.policies = policies
        self.client_id, self.username, self.grants = client
        self.groups = set(self.grants.groups)
        self.groups |= {group for group, users in groups.items() if self.username in users}

    def allows(self, access: int, topic: bytes) -> bool:
        return self.acl_allows(access, topic) and self.policy_allows(access, topic)

    def own_rules(self) -> Iterator[Rule]:
        if self.acl is not None:
            yield from self.acl.anonymous if self.username is None else self.acl.users.get(self.username, [])
            for group in self.groups:
                yield from self.acl.groups.get(group, [])

    def pattern_rules(self) -> Iterator[Rule]:
        for line, access, topic_filter in [] if self.acl is None else self.acl.patterns:
            if b"%u" in topic_filter and self.username is None:
                continue
            filled = topic_filter.replace(b"%u", (self.username or "").encode())
            yield Rule(line, access, filled.replace(b"%c", self.client_id.encode()))

    def is_unsafe(self) -> bool:
        """Whether a name would change what a pattern means."""
        assert self.acl is not None
        for sign, name in ((b"%u", self.username), (b"%c", self.client_id)):
            if name is None:
                continue
            used = [each.topic_filter for each in self.acl.patterns if sign in each.topic_filter]
            if "+" in name or "#" in name or (used and "/" in name):
                return True
            if name.startswith("$") and any(each.startswith(sign) for each in used):
                return True
        return False

    def acl_allows(self, access: int, topic: bytes) -> bool:
        matching = [rule for rule in self.own_rules() if matches(rule.topic_filter, topic)]
        if any(rule.access == DENY for rule in matching):
            return False
        if any(rule.access & access for rule in matching):
            return True
        if self.acl is not None and self.acl.patterns:
            if self.is_unsafe():
                return False
            matching = [rule for rule in self.pattern_rules() if matches(rule.topic_filter, topic)]
            if any(rule.access == DENY for rule in matching):
                return False
            if any(rule.access & access for rule in matching):
                return True
        if access == READ and topic.split(b"/")[0] == b"$SYS":
            return True
        return self.acl is None

    def policy_allows(self, access: int, topic: bytes) -> bool:
        found = [each for each in self.policies if matches(each.filter.encode(), topic)]
        if not found:
            return True
        policy = max(found, key=specificity)
        if self.username in policy.members or self.groups & set(policy.groups):
            return True
        return policy.access in ("PUBLIC", "SUBSCRIBE_ONLY" if access == READ else "PUBLISH_ONLY")


def specificity(policy: TopicPolicyOptions) -> tuple[int, int, float]:
    levels = policy.filter.split("/")
    literal = [level not in "+#" for level in levels]
    beginning = [*literal, False].index(False)
    return beginning, sum(literal), len(levels) - levels.count("#") / 2


@pytest.mark.long
@given(
    acl=st.none() | acl_files(),
    policies=policies,
    groups=st.dictionaries(st.sampled_from(["g", "h"]), st.sets(st.sampled_from(["ann", "bob"])).map(tuple)),
    clients=st.lists(st.tuples(ids, names, grants), min_size=1, max_size=3),
    wanted=st.lists(filters, min_size=1, max_size=3),
)
def test_the_rules_say_what_the_model_says(
    acl: AclFile | None,
    policies: list[TopicPolicyOptions],
    groups: dict[str, tuple[str, ...]],
    clients: list[tuple[str, str | None, Grants]],
    wanted: list[bytes],
) -> None:
    rules = Rules(acl, policies, groups)
    roles = [rules.role_of(*client) for client in clients]
    for client, role in zip(clients, roles, strict=True):
        model = Model(acl, policies, groups, client)
        assert rules.role_of(*client) == role
        readable = set()
        for topic in WORLD[::7] + WORLD[:30]:
            assert rules.may_publish(role, topic) == model.allows(WRITE, topic), (client, topic)
            if rules.may_receive(role, topic):
                readable.add(topic)
            assert (topic in readable) == model.allows(READ, topic), (client, topic)
            assert rules.may_publish(role, topic) or not rules.is_open(topic)
            assert topic in readable or not rules.is_readable(topic)
        for topic_filter in wanted:
            expected = any(model.allows(READ, topic) for topic in WORLD if matches(topic_filter, topic))
            assert rules.may_subscribe(role, topic_filter) == expected, (client, topic_filter)
            assert rules.may_subscribe(role, b"$share/x/" + topic_filter) == expected


@given(filters, filters)
def test_an_intersection_has_the_topics_that_both_filters_match(one: bytes, other: bytes) -> None:
    both = {topic for topic in WORLD if matches(one, topic) and matches(other, topic)}
    found = intersection(one.split(b"/"), other.split(b"/"))
    assert both == (set() if found is None else {topic for topic in WORLD if matches(b"/".join(found), topic)})
