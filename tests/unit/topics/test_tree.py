"""The subscription tree, case by case; that it always agrees with `names.matches` is a property."""

import random
import tracemalloc

import pytest

from mqttlite.topics.names import MAX_LEVELS, matches
from mqttlite.topics.tree import SHARED_BYTES, SPLIT_LEVELS, SharedLevels, SubscriptionTree


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
def test_removing_an_absent_value_is_an_error(topic_filter: bytes) -> None:
    tree = tree_of()
    with pytest.raises(KeyError):
        tree.remove(topic_filter, "v")
    tree.add(topic_filter, "other")
    with pytest.raises(KeyError):
        tree.remove(topic_filter, "v")


@pytest.mark.parametrize(
    ("there", "removed"), [(b"a/b/#", b"a/#"), (b"a/b/#", b"b/#"), (b"a/b/#", b"a/b/+/c"), (b"a/+/b", b"a/+")]
)
def test_removing_an_absent_value_beside_another_is_an_error(there: bytes, removed: bytes) -> None:
    tree = tree_of(there)
    with pytest.raises(KeyError):
        tree.remove(removed, there.decode())
    assert tree.match(there.replace(b"+", b"x").replace(b"#", b"x")) == [there.decode()]


def test_entries_that_remain_after_a_removal_are_found() -> None:
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
    tree.add(topic_filter, "d")
    assert tree.match(topic) == ["d"]


def test_a_name_as_deep_as_its_filter_is_found_through_literals_and_wildcards_alike() -> None:
    tree = tree_of(b"+/" * 199 + b"#", b"a/" * 199 + b"+", b"a/+/" * 99 + b"a/a")
    assert len(tree.match(b"a/" * 199 + b"a")) == 3
    assert tree.match(b"a/" * 197 + b"a") == []


def fresh(level: bytes) -> bytes:
    """An equal object that is not the same."""
    return bytes(bytearray(level))


def bytes_each(filters: list[bytes]) -> float:
    """Memory that the tree takes for each filter, its own bytes not counted."""
    tree: SubscriptionTree[int] = SubscriptionTree()
    tracemalloc.start()
    for topic_filter in filters:
        tree.add(topic_filter, 7)
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(filters)


@pytest.mark.parametrize(
    ("topic_filter", "most"),
    [(b"site/%d/dev/%d/temp", 130), (b"site/%d/dev/%d/#", 170), (b"+/%d/dev/%d/temp", 170), (b"+/%d/%d/a/b/c/d", 170)],
)
def test_a_filter_takes_little_memory(topic_filter: bytes, most: int) -> None:
    """With a dictionary for each node it would be some hundred bytes more for each level."""
    assert bytes_each([topic_filter % divmod(number, 100) for number in range(3_000)]) < most


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "level_bytes"),
    [
        ("no two levels alike", 5),
        ("literals and wildcards", 1),
        ("in pairs that part at the end", 5),
        ("all empty but the first", 0),
    ],
)
def test_a_deep_filter_takes_little_more_than_its_bytes(shape: str, level_bytes: int) -> None:
    """With a node for each level it would take eighty times its bytes, and a client could have 100 000 of them."""
    deep = MAX_LEVELS - 2
    chosen = random.Random(1)
    filters = []
    for number in range(500):
        if shape == "in pairs that part at the end":
            chosen.seed(number // 2)
        levels = [b"%05d" % chosen.randrange(100_000) for _ in range(deep)]
        if shape == "literals and wildcards":
            levels = [chosen.choice((b"a", b"+")) for _ in range(deep)]
        if shape == "all empty but the first":
            levels = [b"%05d" % number] + [b""] * (deep - 1)
        filters.append(b"/".join([*levels, b"%d" % (number % 2), b"+"]))
    assert bytes_each(filters) < (level_bytes + 1) * deep + 600


def test_levels_and_runs_that_come_again_are_kept_once() -> None:
    def taken(length: int) -> float:
        return bytes_each([b"+/%d/" % number + b"x" * length for number in range(1_000)])

    assert taken(SHARED_BYTES) < taken(1) + 10
    assert taken(SHARED_BYTES + 1) > taken(1) + SHARED_BYTES


def test_as_many_levels_are_shared_as_the_limit_and_then_it_begins_anew() -> None:
    shared = SharedLevels(2)
    first, second = shared.level(fresh(b"level 1")), shared.level(fresh(b"level 2"))
    for _ in range(2):
        assert shared.level(fresh(b"level 1")) is first
        assert shared.level(fresh(b"level 2")) is second
    assert shared.level(fresh(b"level 3")) == b"level 3"
    assert shared.level(fresh(b"level 1")) is not first


def test_as_many_runs_are_shared_as_the_limit_and_then_it_begins_anew() -> None:
    shared = SharedLevels(2)
    first, second = shared.run([b"run", b"1"]), shared.run([b"run", b"2"])
    for _ in range(2):
        assert shared.run([b"run", b"1"]) is first
        assert shared.run([b"run", b"2"]) is second
    assert shared.run([b"run", b"3"]) == [b"run", b"3"]
    assert shared.run([b"run", b"1"]) is not first


def test_long_levels_and_runs_are_not_kept_for_others() -> None:
    shared = SharedLevels(10)
    for length, kept in ((SHARED_BYTES, True), (SHARED_BYTES + 1, False)):
        first = shared.level(fresh(b"x" * length))
        assert (shared.level(fresh(b"x" * length)) is first) == kept
        run = shared.run([fresh(b"x" * length)])
        assert (shared.run([fresh(b"x" * length)]) is run) == kept


def test_a_run_of_many_levels_is_one_bytes() -> None:
    shared = SharedLevels(10)
    assert shared.run([]) is None
    assert shared.run([b""]) == [b""]
    assert shared.run([b"a"] * SPLIT_LEVELS) == [b"a"] * SPLIT_LEVELS
    assert shared.run([b"a"] * (SPLIT_LEVELS + 1)) == b"a/" * SPLIT_LEVELS + b"a"


@pytest.mark.parametrize("length", [SPLIT_LEVELS - 1, SPLIT_LEVELS, SPLIT_LEVELS + 1, 3 * SPLIT_LEVELS])
def test_filters_part_and_join_anywhere_in_a_long_run(length: int) -> None:
    whole = [b"l%d" % number if number % 3 else b"+" for number in range(length)]
    names = [b"/".join(whole).replace(b"+", b"x")]
    tree = tree_of(b"+/" + b"/".join(whole))
    for at in range(length):
        for other in (b"+", b"other", b""):
            branch = b"+/" + b"/".join([*whole[:at], other, *whole[at + 1 :]])
            if other == whole[at]:
                continue
            tree.add(branch, "branch")
            names.append(branch.removeprefix(b"+/").replace(b"+", b"x"))
            for name in names:
                expected = [matches(b"+/" + b"/".join(whole), b"t/" + name), matches(branch, b"t/" + name)]
                assert len(tree.match(b"t/" + name)) == sum(expected)
            tree.remove(branch, "branch")
            with pytest.raises(KeyError):
                tree.remove(branch, "branch")
    assert tree.match(b"t/" + names[0]) == ["+/" + b"/".join(whole).decode()]


@pytest.mark.parametrize("length", [2, SPLIT_LEVELS, 3 * SPLIT_LEVELS])
def test_a_match_counts_the_levels_it_compares(length: int) -> None:
    """Also those that do not match: thousands of filters may fail at their last level."""
    tree = tree_of(b"+/" + b"a/" * length + b"a")
    assert tree.match(b"x/" + b"a/" * length + b"a") != []
    assert tree.steps == length + 2
    assert tree.match(b"x/" + b"a/" * length + b"b") == []
    assert tree.steps == length + 2
    assert tree.match(b"x/b") == []
    assert tree.steps == 2
