"""Whatever text comes as a schema, and whatever bytes as a payload: the answer is a sentence, or nothing is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.extensions.schemas.parsed import SchemaError, SchemaType
from mqttlite.extensions.schemas.parsing import parse

KEYS = [
    "type",
    "properties",
    "items",
    "$ref",
    "enum",
    "name",
    "fields",
    "symbols",
    "size",
    "values",
    "not",
    "allOf",
    "pattern",
    "minimum",
    "required",
    "$schema",
    "$id",
    "definitions",
    "aliases",
    "default",
    "namespace",
    "logicalType",
]
WORDS = ["record", "enum", "fixed", "array", "map", "string", "int", "null", "object", "#", "#/a", "A"]


def trees(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(max_size=5) | st.sampled_from(KEYS)
    return st.lists(inner, max_size=4) | st.dictionaries(keys, inner | st.sampled_from(WORDS), max_size=5)


LEAVES: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@pytest.mark.long
@given(st.recursive(LEAVES, trees, max_leaves=20), st.sampled_from(["JSON", "AVRO"]), st.binary(max_size=12))
def test_the_answer_is_a_sentence(tree: Any, schema_type: SchemaType, payload: bytes) -> None:
    try:
        schema = parse(schema_type, json.dumps(tree))
    except SchemaError:
        return
    assert schema.fault(payload).isprintable()
    assert schema.unreadable(schema).isprintable()
