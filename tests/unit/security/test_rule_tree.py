"""The tree of rules: what it is made of, and what its nodes with several levels find."""

import pytest

from mqttlite.security.rule_tree import DENY, NOTHING, READ, WRITE, Found, Names, Rule, RuleTree

ANN = Names(b"ann", b"c1")


def tree_of(*filters: str) -> RuleTree:
    rules = (Rule(line, READ, each.encode()) for line, each in enumerate(filters, 1))
    return RuleTree(rules, is_template=lambda level: b"%" in level)


def found(tree: RuleTree, topic: str, names: Names = ANN) -> int:
    return tree.find(topic.encode().split(b"/"), names).read


def overlaps(tree: RuleTree, topic_filter: str, names: Names = ANN) -> list[str]:
    return [b"/".join(each).decode() for each in tree.overlaps(topic_filter.encode().split(b"/"), names)]


@pytest.mark.parametrize("level", ["a", "+", "%c"])
@pytest.mark.parametrize("end", ["", "/#"])
def test_a_rule_adds_two_nodes_at_most_whatever_its_levels(level: str, end: str) -> None:
    own_beginning = [f"{each}" + f"/{level}" * 200 + end for each in range(50)]
    assert len(tree_of(*own_beginning).nodes()) == 1 + 50
    own_end = [f"{level}/" * 200 + f"{each}" + end for each in range(50)]
    assert len(tree_of(*own_end).nodes()) == 1 + 1 + 50
    nested = ["/".join([level] * (each + 1)) + end for each in range(50)]
    assert len(tree_of(*reversed(nested)).nodes()) == 1 + 50
    forked = [f"{level}/" * each + "x/y" + end for each in range(1, 50)]
    assert len(tree_of(*forked).nodes()) <= 1 + 2 * 50


def test_a_filter_that_ends_or_branches_on_the_way_of_another_is_found() -> None:
    tree = tree_of("a/b/c/d", "a/b", "a/b/x/d", "a/b/c/d/e/#", "a/b/c/#")
    assert [found(tree, each) for each in ("a/b/c/d", "a/b", "a/b/x/d", "a/b/c/d/e", "a/b/c/d/e/f")] == [1, 2, 3, 4, 4]
    assert [found(tree, each) for each in ("a/b/c", "a/b/c/z/z")] == [5, 5]
    assert [found(tree, each) for each in ("a", "a/c", "a/b/x", "a/b/x/d/e", "b/b")] == [0, 0, 0, 0, 0]


def test_wildcards_and_names_on_the_way_match_one_level_each() -> None:
    tree = tree_of("a/+/%u/d", "a/b/x%cx/+/#")
    assert found(tree, "a/x/ann/d") == 1
    assert [found(tree, each) for each in ("a/x/bob/d", "a/x/ann/e", "a/x/ann", "a/x/ann/d/e")] == [0, 0, 0, 0]
    assert found(tree, "a/x/ann/d", Names()) == 0
    assert [found(tree, each) for each in ("a/b/xc1x/d", "a/b/xc1x/d/e/f", "a/b/xc1x", "a/b/xc2x/d")] == [2, 2, 0, 0]
    assert tree.find_covering([b"a", b"+", b"ann", b"d"], ANN).read == 1
    assert tree.find_covering([b"a", b"b", b"xc1x", b"+", b"#"], ANN).read == 2
    assert tree.find_covering([b"a", b"+", b"+", b"d"], ANN) == NOTHING


def test_the_first_rule_of_a_filter_keeps_its_line_after_its_node_moved() -> None:
    tree = RuleTree([Rule(1, DENY, b"a/b/c"), Rule(2, READ, b"a/b/c"), Rule(3, WRITE, b"a/x"), Rule(4, DENY, b"a/b/c")])
    assert tree.find([b"a", b"b", b"c"]) == Found(1, 2, 0)
    assert tree.find([b"a", b"x"]) == Found(0, 0, 3)


def test_overlaps_begin_and_end_on_the_way_to_a_node() -> None:
    tree = tree_of("a/+/%u/d")
    assert overlaps(tree, "#") == ["a/+/ann/d"]
    assert overlaps(tree, "a/#") == ["a/+/ann/d"]
    assert overlaps(tree, "a/b/+/#") == ["a/b/ann/d"]
    assert overlaps(tree, "a/b/+/+") == ["a/b/ann/d"]
    assert overlaps(tree, "+/+/ann/d") == ["a/+/ann/d"]
    for each in ("a/b/+", "a/b/bob/#", "a/b/ann/e", "a/b/ann/d/e", "b/#"):
        assert overlaps(tree, each) == []
    for each in ("#", "a/#", "a/b/+/d"):
        assert overlaps(tree, each, Names()) == [], "the client has no user name"
    assert overlaps(tree_of("a/b/c/#"), "a/+/c/x/+") == ["a/b/c/x/+"]


def test_all_of_a_filter_with_a_thousand_levels_is_read() -> None:
    deep = "a/" * 1_000 + "b"
    assert overlaps(tree_of(deep), "#") == [deep]
    assert overlaps(tree_of(deep), deep) == [deep]
