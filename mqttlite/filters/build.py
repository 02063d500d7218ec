"""Builds nodes from a parse tree. Invariant: nodes are within the limits, and compare comparable types."""

from functools import lru_cache
from typing import Final

from lark import Token, Tree

from mqttlite.filters.errors import FilterError
from mqttlite.filters.grammar import parse_tree
from mqttlite.filters.literals import BadEscape, number, unquoted
from mqttlite.filters.nodes import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    All,
    Any,
    Attribute,
    Comparison,
    Exists,
    Field,
    HasPrefix,
    Node,
    Not,
    Payload,
    Qos,
    Retain,
    Topic,
    Value,
    fields_of,
)

_PREFIX: Final = 'hasPrefix(attributes.region, "eu-")'

_WORDS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}


MAX_REMEMBERED: Final = 64
"""How many parsed expressions are cached: the options of a queue are checked, and compiled soon after."""


@lru_cache(maxsize=MAX_REMEMBERED)
def parse(expression: str) -> Node:
    """The nodes of an expression. Raises `FilterError`."""
    node = _node(parse_tree(expression), 1)
    conditions = len(fields_of(node))
    if conditions > MAX_CONDITIONS:
        raise FilterError(1, f"it has {conditions} conditions: a filter may have {MAX_CONDITIONS}", "")
    return node


def _node(tree: "Tree[Token]", level: int) -> Node:
    start, end = tree.meta.start_pos, tree.meta.end_pos
    if level > MAX_DEPTH:
        raise FilterError(start + 1, f"more than {MAX_DEPTH} levels of NOT, AND and OR inside each other", "")
    trees = [each for each in tree.children if isinstance(each, Tree)]
    tokens = [each for each in tree.children if isinstance(each, Token)]
    if tree.data == "negation":
        return Not(_node(trees[0], level + 1), start, end)
    if tree.data == "all":
        return All(tuple([_node(each, level + 1) for each in trees]), start, end)
    if tree.data == "any":
        return Any(tuple([_node(each, level + 1) for each in trees]), start, end)
    if tree.data == "exists":
        steps = _steps(trees[0])
        return Exists(Payload(steps) if trees[0].data == "path" else Attribute(str(steps[0])), start, end)
    field = _field(trees[0])
    if tree.data == "comparison":
        value = _value(trees[1])
        _check(field, str(tokens[0]), value, trees[1].meta.start_pos + 1)
        return Comparison(field, str(tokens[0]), value, start, end)
    if isinstance(field, Qos | Retain):
        raise FilterError(
            trees[0].meta.start_pos + 1, "only an attribute, the payload or the topic has a prefix", _PREFIX
        )
    return HasPrefix(field, _text(tokens[-1]), start, end)


def _field(tree: "Tree[Token]") -> Field:
    if tree.data == "attribute":
        [key] = tree.children[1:]
        assert isinstance(key, Tree)
        return Attribute(str(_steps(key)[0]))
    if tree.data == "inner":
        return Payload(_steps(tree))
    if tree.data == "payload":
        return Payload(())
    return Topic() if tree.data == "topic" else Qos() if tree.data == "qos" else Retain()


def _steps(tree: "Tree[Token]") -> tuple[str | int, ...]:
    """The names and indexes of a path, or the single name of a key."""
    steps: list[str | int] = []
    for each in tree.children:
        if isinstance(each, Tree):
            steps += _steps(each)
        elif each.type == "INDEX":
            steps.append(int(each))
        elif each.type == "STRING":
            steps.append(_text(each))
        elif each.type == "NAME":
            steps.append(str(each))
    return tuple(steps)


def _value(tree: "Tree[Token]") -> Value:
    token = tree.children[0]
    assert isinstance(token, Token)
    if token.type == "STRING":
        return _text(token)
    return number(token) if token.type == "NUMBER" else _WORDS[token]


def _text(token: Token) -> str:
    try:
        return unquoted(token)
    except BadEscape as error:
        at = (token.start_pos or 0) + error.at + 1
        raise FilterError(at, f"{error} is no escape sequence", r'"\"", "\n" or "\u00e9"') from None


def _check(field: Field, operator: str, value: Value, position: int) -> None:
    """Raises `FilterError` for a comparison that can never be true."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if operator not in ("=", "!=") and not is_number:
        raise FilterError(position, f"{operator} compares numbers", f"payload.order.total {operator} 1000")
    if isinstance(field, Attribute) and not is_number and not isinstance(value, str):
        raise FilterError(position, "an attribute is text or a number", 'attributes.urgent = "true"')
    if isinstance(field, Topic) and not isinstance(value, str):
        raise FilterError(position, "a topic is text", 'topic = "orders/new"')
    if isinstance(field, Qos) and not is_number:
        raise FilterError(position, "a QoS is a number", "qos >= 1")
    if isinstance(field, Retain) and not isinstance(value, bool):
        raise FilterError(position, "retain is true or false", "retain = true")
