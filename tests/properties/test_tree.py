"""The tree finds what the ten-line rule `names.matches` finds, whatever was added and removed before."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.topics.names import check_filter, matches
from mqttlite.topics.tree import Node, SubscriptionTree

levels = st.sampled_from([b"", b"a", b"b", b"$s"])
topics = st.builds(
    lambda start, head: b"/".join([*start, *head]),
    st.sampled_from([[], [], [b"a"], [b"a"] * 9, [b"a", b"b"] * 5]),
    st.lists(levels, min_size=1, max_size=4),
).filter(bool)
filters = st.builds(
    lambda start, head, hash_: b"/".join([*start, *head, b"#"] if hash_ else [*start, *head]),
    st.sampled_from([[], [], [b"a"], [b"a"] * 9, [b"a", b"+"] * 5]),
    st.lists(levels | st.just(b"+"), max_size=4),
    st.booleans(),
).filter(bool)
values = st.integers(0, 3)
steps = st.lists(st.tuples(st.booleans(), filters, values), max_size=40)


def nodes(node: Node[int]) -> list[Node[int]]:
    found = [node]
    literal = [node.child] if node.children is None else node.children.values()
    for child in [*literal, node.plus]:
        if child is not None:
            found += nodes(child)
    return found


@given(filters)
def test_the_filters_here_are_valid(topic_filter: bytes) -> None:
    check_filter(topic_filter)


@pytest.mark.long
@given(steps, st.lists(topics, min_size=1, max_size=5))
def test_the_tree_equals_the_rule_and_keeps_no_empty_node(
    steps: list[tuple[bool, bytes, int]], names: list[bytes]
) -> None:
    """A node that holds nothing and does not branch would cost memory and time for nothing."""
    tree: SubscriptionTree[int] = SubscriptionTree()
    there: set[tuple[bytes, int]] = set()
    for add, topic_filter, value in steps:
        if add:
            tree.add(topic_filter, value)
            there.add((topic_filter, value))
        elif (topic_filter, value) in there:
            tree.remove(topic_filter, value)
            there.remove((topic_filter, value))
        for topic in names:
            expected = Counter(value for topic_filter, value in there if matches(topic_filter, topic))
            assert Counter(tree.match(topic)) == expected
    assert all(node.holds_or_branches() for node in nodes(tree._root)[1:])
    for topic_filter, value in there:
        tree.remove(topic_filter, value)
    assert nodes(tree._root) == [tree._root]
    assert not tree._exact
    assert not tree._several
    assert tree._wild == 0
