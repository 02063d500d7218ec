"""The subscription tree, case by case; that it always agrees with `names.matches` is a property."""

import pytest

from mqttlite.topics.tree import SubscriptionTree


def tree_of(*filters: bytes) -> SubscriptionTree[str]:
    tree: SubscriptionTree[str] = SubscriptionTree()
    for topic_filter in filters:
        tree.add(topic_filter, topic_filter.decode())
    return tree


def test_an_empty_tree_matches_nothing() -> None:
    assert tree_of().match(b"a") == []


def test_several_values_of_one_filter_are_all_found_in_their_order() -> None:
    tree = tree_of()
    for value in "cab":
        tree.add(b"x", value)
        tree.add(b"y/+", value)
    assert tree.match(b"x") == ["c", "a", "b"]
    assert tree.match(b"y/1") == ["c", "a", "b"]


def test_a_value_is_found_once_for_each_of_its_filters() -> None:
    tree = tree_of()
    for topic_filter in (b"a/b", b"a/+", b"a/#", b"#"):
        tree.add(topic_filter, "v")
    assert tree.match(b"a/b") == ["v"] * 4


@pytest.mark.parametrize("topic_filter", [b"a", b"+", b"a/#"])
def test_adding_twice_is_adding_once(topic_filter: bytes) -> None:
    tree = tree_of(topic_filter)
    tree.add(topic_filter, topic_filter.decode())
    assert tree.match(b"a") == [topic_filter.decode()]
    tree.remove(topic_filter, topic_filter.decode())
    assert tree.match(b"a") == []


@pytest.mark.parametrize("topic_filter", [b"a", b"+", b"a/#", b"a/+/b"])
def test_removing_what_is_not_there_is_an_error(topic_filter: bytes) -> None:
    tree = tree_of()
    with pytest.raises(KeyError):
        tree.remove(topic_filter, "v")
    tree.add(topic_filter, "other")
    with pytest.raises(KeyError):
        tree.remove(topic_filter, "v")


@pytest.mark.parametrize(("there", "removed"), [(b"a/b/#", b"a/#"), (b"a/b/#", b"a/b/+/c"), (b"a/+/b", b"a/+")])
def test_removing_beside_what_is_there_is_an_error(there: bytes, removed: bytes) -> None:
    tree = tree_of(there)
    with pytest.raises(KeyError):
        tree.remove(removed, there.decode())
    assert tree.match(there.replace(b"+", b"x").replace(b"#", b"x")) == [there.decode()]


def test_what_remains_after_a_removal_is_found() -> None:
    tree = tree_of()
    for topic_filter in (b"x", b"x/+", b"x/#"):
        for value in "ab":
            tree.add(topic_filter, value)
        tree.remove(topic_filter, "a")
    assert sorted(tree.match(b"x")) == ["b", "b"]
    assert sorted(tree.match(b"x/1")) == ["b", "b"]
