"""The subscription tree, case by case; that it always agrees with `names.matches` is a property."""

import tracemalloc

import pytest

from mqttlite.topics.tree import LEVELS_SHARED, SHARED_BYTES, SubscriptionTree


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


@pytest.mark.parametrize("topic_filter", [b"x", b"x/+", b"x/#", b"+/y/#"])
def test_values_of_one_filter_come_and_go_in_any_number(topic_filter: bytes) -> None:
    tree = tree_of()
    topic = topic_filter.replace(b"+", b"x").replace(b"#", b"z")
    for value in "abc":
        tree.add(topic_filter, value)
    tree.add(topic_filter, "b")
    for value, left in [("b", ["a", "c"]), ("a", ["c"]), ("c", [])]:
        tree.remove(topic_filter, value)
        assert tree.match(topic) == left
    with pytest.raises(KeyError):
        tree.remove(topic_filter, "c")
    assert tree._root.is_empty()


def test_a_name_as_deep_as_its_filter_is_found_through_literals_and_wildcards_alike() -> None:
    tree = tree_of(b"+/" * 199 + b"#", b"a/" * 199 + b"+", b"a/+/" * 99 + b"a/a")
    assert len(tree.match(b"a/" * 199 + b"a")) == 3
    assert tree.match(b"a/" * 197 + b"a") == []


@pytest.mark.parametrize(
    ("topic_filter", "most"),
    [(b"site/%d/dev/%d/temp", 130), (b"site/%d/dev/%d/#", 260), (b"+/%d/dev/%d/temp", 330), (b"+/%d/%d/a/b/c/d", 620)],
)
def test_a_filter_takes_little_memory(topic_filter: bytes, most: int) -> None:
    """Its own bytes not counted. With a dictionary for each node it would be some hundred bytes more for each level."""
    tree: SubscriptionTree[int] = SubscriptionTree()
    filters = [topic_filter % divmod(number, 100) for number in range(3_000)]
    tracemalloc.start()
    for topic_filter in filters:
        tree.add(topic_filter, 7)
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / len(filters) < most


def test_nodes_share_their_levels_and_not_without_limit() -> None:
    tree = tree_of(b"+/a/temp", b"+/b/temp")
    a, b = (tree._root.plus.get(level) for level in (b"a", b"b"))  # type: ignore[union-attr]
    assert a is not None
    assert b is not None
    assert a.level == b"temp"
    assert a.level is b.level
    for number in range(2 * LEVELS_SHARED):
        tree.add(b"+/%d" % number, "v")
        tree.remove(b"+/%d" % number, "v")
        assert len(tree._levels) <= LEVELS_SHARED
    assert tree.match(b"x/a/temp") == ["+/a/temp"]


def test_levels_that_nobody_else_has_are_not_kept_for_others() -> None:
    tree: SubscriptionTree[str] = SubscriptionTree()
    for length in (SHARED_BYTES, SHARED_BYTES + 1):
        topic_filter = b"x" * length + b"/+"
        tree.add(topic_filter, "value")
        assert tree.match(b"x" * length + b"/y") == ["value"]
        tree.remove(topic_filter, "value")
    assert list(tree._levels) == [b"x" * SHARED_BYTES]
