"""Filters against an oracle of ten lines that walks the nodes: closures, and what is explained, are what it says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.filters import Fields, Filter, FilterError
from mqttlite.filters.build import parse
from mqttlite.wire.properties import Properties

KEYS = ("a", "b", "x y")
WORDS = ("", "1", "2", "10", "-1.5", "us", "u")
NUMBERS = ("0", "1", "2.0", "-1.5", "1e1")

attribute = st.sampled_from(['attributes."a"', "attributes.b", 'attributes."x y"'])
inner = st.sampled_from(["payload.a", "payload.b[1]", "payload.'x y'.a", "payload"])
text = st.sampled_from(WORDS).map(lambda word: f'"{word}"')
conditions = st.one_of(
    st.sampled_from(["attributes:a", "hasAttribute('x y')", "payload:a", "payload:b[0].a", "qos > 0", "retain = true"]),
    st.tuples(attribute, st.sampled_from(["=", "!="]), text).map(" ".join),
    st.tuples(attribute, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.sampled_from(NUMBERS)).map(" ".join),
    st.tuples(inner, st.sampled_from(["=", "!="]), st.one_of(text, st.sampled_from(["true", "null"]))).map(" ".join),
    st.tuples(inner, st.sampled_from(["=", "<", ">="]), st.sampled_from(NUMBERS)).map(" ".join),
    st.tuples(attribute | inner, text).map(lambda both: f"hasPrefix({both[0]}, {both[1]})"),
)
expressions = st.recursive(
    conditions,
    lambda inside: st.one_of(
        inside.map(lambda each: f"NOT ({each})"),
        st.tuples(st.sampled_from([" AND ", " OR "]), st.lists(inside, min_size=2, max_size=3)).map(
            lambda both: f"({both[0].join(both[1])})"
        ),
    ),
    max_leaves=8,
)
values = st.recursive(
    st.sampled_from(["1", "2", "10", "-1.5", "true", "null", '"us"', '"1"']),
    lambda inside: st.one_of(
        st.lists(inside, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(KEYS), inside, max_size=3).map(
            lambda items: "{" + ", ".join(f'"{key}": {value}' for key, value in items.items()) + "}"
        ),
    ),
    max_leaves=6,
)
messages = st.builds(
    lambda payload, qos, retain, pairs: Fields(b"t", payload.encode(), qos, retain, Properties(user_properties=pairs)),
    values | st.sampled_from(["", "{", "1 2"]),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(WORDS)), max_size=4),
)


def found(field: Any, message: Fields) -> list[Any]:
    """The values that a condition may look at."""
    import json

    if type(field).__name__ == "Attribute":
        return [value for key, value in message.properties.user_properties if key == field.key]
    if type(field).__name__ != "Payload":
        return [message.qos if type(field).__name__ == "Qos" else message.retain]
    try:
        value = json.loads(message.payload)
        for step in field.path:
            if isinstance(value, list) != isinstance(step, int):
                return []
            value = value[step]
    except (ValueError, LookupError, TypeError):
        return []
    return [value]


def oracle(node: Any, message: Fields) -> bool:
    kind = type(node).__name__
    if kind in ("Not", "All", "Any"):
        parts = [oracle(part, message) for part in getattr(node, "parts", [getattr(node, "part", None)])]
        return {"Not": not parts[0], "All": all(parts), "Any": any(parts)}[kind]
    seen = found(node.field, message)
    if kind == "Exists":
        return bool(seen)
    if kind == "HasPrefix":
        return any(isinstance(each, str) and each.startswith(node.prefix) for each in seen)
    if type(node.field).__name__ == "Attribute" and not isinstance(node.value, str):
        seen = [float(each) for each in seen if each.strip("-.0123456789") == "" and each]
    if node.operator in ("=", "!="):
        is_bool = isinstance(node.value, bool)
        equal = any(isinstance(each, bool) == is_bool and each == node.value for each in seen)
        return equal == (node.operator == "=")
    numbers = [each for each in seen if isinstance(each, int | float) and not isinstance(each, bool)]
    order = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[node.operator]
    return any(getattr(float(each), order)(float(node.value)) for each in numbers)


@pytest.mark.long
@given(expressions, messages)
def test_a_filter_is_what_the_oracle_says(expression: str, message: Fields) -> None:
    compiled = Filter(expression)
    expected = oracle(parse(expression), message)
    assert compiled.matches(message) is expected
    assert compiled.explain(message).result is expected


@given(st.text(max_size=80) | st.text("attributes.payload:=!<>()[]\"'\\ANDORT-019 \n", max_size=60), messages)
def test_any_text_is_a_filter_or_an_error(expression: str, message: Fields) -> None:
    try:
        assert Filter(expression).matches(message) in (True, False)
    except FilterError as error:
        assert 1 <= error.position <= len(expression) + 1  # noqa: PT017
