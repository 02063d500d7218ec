"""The rules of dynamic security are those of a model that looks at everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import dump, parse
from mqttlite.security.dynamic_security.model import Acl, Client, Group, Role, State, put
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.granted_topics import covers
from mqttlite.security.rule_tree import READ, Names, Rule, RuleTree
from mqttlite.topics.names import matches

LEVELS = ("a", "b", "+")
CLIENT_ID, USERNAME = "b", "a"


def filters_of(levels: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Topic filters of these levels."""
    return st.just("#") | st.builds(
        lambda levels, tail: "/".join([*levels, *tail]),
        st.lists(st.sampled_from(levels), min_size=1, max_size=3),
        st.sampled_from([[], ["#"]]),
    )


filters = filters_of(LEVELS)
patterns = filters_of((*LEVELS, "%u", "%c"))
topics = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join)
names = st.sampled_from("rstu")
priorities = st.integers(-2, 2)
acls = st.tuples(st.sampled_from(model.ACL_TYPES), patterns, priorities, st.booleans())


@st.composite
def states(draw: st.DrawFn) -> State:
    state = State(default_access={each: draw(st.booleans()) for each in model.DEFAULT_TYPES})
    for name in "rstu":
        role = state.roles[name] = Role(name, allow_wildcard_subs=draw(st.booleans()))
        for kind, topic, priority, allow in draw(st.lists(acls, max_size=5)):
            role.add(kind, Acl(topic, priority, allow))
    client = state.clients[USERNAME] = Client(USERNAME)
    for name, priority in draw(st.lists(st.tuples(names, priorities), max_size=2, unique_by=lambda each: each[0])):
        put(client.roles, name, priority)
    for group_name in draw(st.lists(st.sampled_from("gh"), unique=True)):
        group = state.groups[group_name] = Group(group_name)
        for name, priority in draw(st.lists(st.tuples(names, priorities), max_size=2, unique_by=lambda each: each[0])):
            put(group.roles, name, priority)
        state.join(client, group, draw(priorities))
    state.groups = dict(sorted(state.groups.items()))
    return state


def fits(topic_filter: list[str], topic: list[str]) -> bool:
    """Whether a filter matches a name, by the words of the standard."""
    if topic_filter == ["#"] or topic_filter == topic == []:
        return True
    if not topic_filter or not topic:
        return False
    return topic_filter[0] in ("+", topic[0]) and fits(topic_filter[1:], topic[1:])


def named(topic: str) -> list[str]:
    """The levels of a rule, with the client's names."""
    return [{"%u": USERNAME, "%c": CLIENT_ID}.get(level, level) for level in topic.split("/")]


def verdict(state: State, kind: str, topic: str) -> bool:
    """The first of all rules that matches, sorted by everything that orders them."""
    ranked = []
    client = state.clients[USERNAME]
    own = [((0, 0, ""), client.roles)]
    joined = [((1, -priority, name), state.groups[name].roles) for name, priority in client.groups.items()]
    for rank, roles in [*own, *joined]:
        for role, priority in roles.items():
            for age, acl in enumerate(state.roles[role].acls[kind]):
                if fits(named(acl.topic), topic.split("/")):
                    ranked.append(((rank, -priority, role, -acl.priority, age), acl.allow))
    return min(ranked)[1] if ranked else state.default_access[kind]


@pytest.mark.long
@given(states(), topics)
def test_the_first_rule_that_matches_decides(state: State, topic: str) -> None:
    rules = DynamicRules(state)
    role = rules.role_of(CLIENT_ID, USERNAME)
    assert rules.may_publish(role, topic.encode()) == verdict(state, model.PUBLISH_SEND, topic)
    assert rules.may_receive(role, topic.encode()) == verdict(state, model.PUBLISH_RECEIVE, topic)


def filter_verdict(state: State, topic_filter: str) -> bool:
    """The first rule of the first role that is for a filter to the letter, or covers it."""
    for name in state.role_sets_of(USERNAME) or ():
        role = state.roles[name]
        if not role.allow_wildcard_subs and ("+" in topic_filter or "#" in topic_filter):
            return False
        for acl in role.acls[model.SUBSCRIBE_LITERAL]:
            if acl.topic == topic_filter:
                return acl.allow
        for acl in role.acls[model.SUBSCRIBE_PATTERN]:
            if covers("/".join(named(acl.topic)).encode(), topic_filter.encode()):
                return acl.allow
    return state.default_access[model.SUBSCRIBE]


@pytest.mark.long
@given(states(), filters | topics)
def test_the_first_rule_that_covers_a_filter_decides(state: State, topic_filter: str) -> None:
    rules = DynamicRules(state)
    assert rules.may_subscribe(rules.role_of(CLIENT_ID, USERNAME), topic_filter.encode()) == filter_verdict(
        state, topic_filter
    )


@given(st.lists(filters, max_size=6), filters)
def test_a_tree_finds_the_first_rule_that_covers_a_filter(patterns: list[str], topic_filter: str) -> None:
    tree = RuleTree(Rule(line, READ, each.encode()) for line, each in enumerate(patterns, 1))
    lines = [line for line, each in enumerate(patterns, 1) if covers(each.encode(), topic_filter.encode())]
    assert tree.find_covering(topic_filter.encode().split(b"/")).read == min(lines, default=0)


deep_filters = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.sampled_from(["a", "a", "b", "+", "%u", "$SYS", ""]), min_size=1, max_size=8),
    st.sampled_from(([], ["#"])),
)


@given(st.lists(deep_filters, max_size=8), st.lists(st.sampled_from(["a", "b", USERNAME, "$SYS", ""]), min_size=1))
def test_a_tree_of_long_filters_finds_the_first_that_matches(patterns: list[str], topic: list[str]) -> None:
    rules = [Rule(line, READ, each.encode()) for line, each in enumerate(patterns, 1)]
    tree = RuleTree(rules, is_template=lambda level: level == b"%u")
    levels = [each.encode() for each in topic]
    wanted = [
        line
        for line, each in enumerate(patterns, 1)
        if matches(each.replace("%u", USERNAME).encode(), b"/".join(levels))
    ]
    assert tree.find(levels, Names(USERNAME.encode())).read == min(wanted, default=0)
    assert len(tree.nodes()) <= 2 * len(patterns) + 1
    ways = {b"/".join(each).decode() for each in tree.overlaps([b"#"], Names(USERNAME.encode()))}
    own = {each.replace("%u", USERNAME) for each in patterns if not each.startswith("$")}
    assert {each for each in own if f"{each}/#" not in own} <= ways <= own


def test_a_name_at_the_first_level_reaches_no_topic_of_the_broker() -> None:
    tree = RuleTree([Rule(1, READ, b"%u/x")], is_template=lambda level: level == b"%u")
    assert tree.find([b"ann", b"x"], Names(b"ann")).read == 1
    assert not tree.find([b"$SYS", b"x"], Names(b"$SYS")).read


@pytest.mark.long
@given(states())
def test_a_state_is_the_same_after_it_was_written_and_read(state: State) -> None:
    assert parse(dump(state)) == state
