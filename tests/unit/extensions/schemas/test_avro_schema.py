"""Avro: what is wrong with a payload, and which schema may follow which."""

import io
import json
from typing import Any

import fastavro
import pytest

from mqttlite.extensions.schemas.avro_payload import MAX_DEPTH, MAX_VALUES
from mqttlite.extensions.schemas.avro_schema import AvroSchema
from mqttlite.extensions.schemas.parsed import SchemaError


def schema(tree: Any) -> AvroSchema:
    return AvroSchema(json.dumps(tree))


def record(*fields: Any, name: str = "R", **keys: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **keys}


def field(name: str, kind: Any = "string", **keys: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **keys}


def written(tree: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(tree), value)
    return out.getvalue()


def enum(*symbols: str, **keys: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **keys}


ITEM = record(field("sku"), field("count", "int"), name="Item")
ORDER = record(
    field("id", {"type": "string", "logicalType": "uuid"}),
    field("total", "double"),
    field("items", {"type": "array", "items": ITEM}),
    field("kind", enum("A", "B")),
    field("marks", {"type": "map", "values": ["null", "Item"]}),
    field("code", {"type": "fixed", "name": "Code", "size": 2}),
    field("paid", "boolean"),
    field("raw", "bytes"),
    field("weight", "float"),
    field("nothing", "null"),
    field("at", "long"),
)
VALUE = {
    "id": "1",
    "total": 2.5,
    "items": [{"sku": "é", "count": -3}],
    "kind": "B",
    "marks": {"k": None, "l": {"sku": "a", "count": 1}},
    "code": b"ab",
    "paid": True,
    "raw": b"\xff",
    "weight": 1.0,
    "nothing": None,
    "at": -(1 << 63),
}


def test_values_that_fastavro_writes_are_accepted() -> None:
    payload = written(ORDER, VALUE)
    order = schema(ORDER)
    assert order.fault(payload) == ""
    assert order.fault(payload + b"ab") == "$: 2 bytes are left behind the value"
    assert order.fault(payload[:-1]) == "$.at: the payload ends in a number"
    assert order.fault(b"") == "$.id: the payload ends in a number"


@pytest.mark.parametrize(
    ("tree", "payload", "fault"),
    [
        (record(field("a", "boolean")), b"\x02", "$.a: the byte 0x02 is no boolean"),
        (
            record(field("a", {"type": "array", "items": "string"})),
            b"\x04\x02a\x02",
            "$.a[1]: 1 bytes are to follow, and",
        ),
        ({"type": "map", "values": "string"}, b"\x02\x02k\x02\xff\x00", "$.k: a string is not UTF-8"),
        ({"type": "map", "values": "null"}, b"\x02\x02\xff\x00", "$: a string is not UTF-8"),
        ("string", b"\x01", "$: -1 bytes are to follow"),
        ("bytes", b"\x08a", "$: 4 bytes are to follow, and there are 1"),
        ("int", b"\xff" * 4 + b"\x7f", "$: -17179869184 does not fit into 32 bits"),
        ("long", b"\xff" * 11, "$: a number has more than 10 bytes"),
        (enum("A"), b"\x02", "$: there is no symbol 1 of 1"),
        (enum("A"), b"\x01", "$: there is no symbol -1 of 1"),
        (["null", "int"], b"\x04", "$: there is no type 2 of the 2 in the union"),
        (["null", "int"], b"\x01", "$: there is no type -1 of the 2 in the union"),
        ({"type": "array", "items": "int"}, b"\x03\x01", "$: a block has a negative length"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\x7f", f"$: there are more than {MAX_VALUES} values"),
        ("float", b"abc", "$: 4 bytes are to follow, and there are 3"),
    ],
)
def test_a_fault_has_its_place_and_rule(tree: Any, payload: bytes, fault: str) -> None:
    assert schema(tree).fault(payload).startswith(fault)


def test_a_block_may_say_how_long_it_is() -> None:
    assert schema({"type": "array", "items": "int"}).fault(b"\x03\x04\x02\x04\x00") == ""


def test_a_value_may_be_inside_itself_to_some_depth() -> None:
    chain = schema(record(field("next", ["null", "R"])))
    assert chain.fault(b"\x02" * (MAX_DEPTH - 1) + b"\0") == ""
    assert chain.fault(b"\x02" * MAX_DEPTH + b"\0").endswith(f"more than {MAX_DEPTH} values are inside each other")
    assert chain.fault(b"\x02" * 200_000)


def test_a_payload_may_have_so_many_values() -> None:
    numbers = {"type": "array", "items": "int"}
    assert schema(numbers).fault(written(numbers, [1] * MAX_VALUES)) == ""
    assert (
        schema(numbers).fault(written(numbers, [1] * (MAX_VALUES + 1))) == f"$: there are more than {MAX_VALUES} values"
    )
    empty = record(*[field(f"f{number}", "null") for number in range(100)])
    assert schema({"type": "array", "items": empty}).fault(b"\xd0\x0f\x00").endswith("values")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is no JSON"),
        ("3", "an Avro schema is an object, an array or the name of a type"),
        ('"strin"', "it is no Avro schema: strin"),
        ('{"type": "array"}', "it is no Avro schema: 'items' is missing"),
        ('{"type": "record", "name": "R", "fields": 3}', "it is no Avro schema: "),
        ('{"type": {"type": {"type": "int"}}}', "it is no Avro schema: "),
        ('["null", "null"]', "it is no Avro schema: null type already in Union"),
        ('{"type": "record", "name": "1 R", "fields": []}', "it is no Avro schema: "),
        ('{"type":"array","items":' * 600 + '"int"' + "}" * 600, "it is nested too deeply"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroSchema(text)
    assert str(caught.value).startswith(reason)


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


F1, F2, F2_DEFAULT = field("f1"), field("f2"), field("f2", default="x")
RENAMED = record(F1, name="S", namespace="n", aliases=["R"])

EVOLUTION: list[tuple[str, Any, Any, bool, bool]] = [
    # what changes, old, new, whether the new can read the old (BACKWARD), and the old the new (FORWARD)
    # the table of Confluent's documentation
    ("optional field added", record(F1), record(F1, F2_DEFAULT), True, True),
    ("field added", record(F1), record(F1, F2), False, True),
    ("field removed", record(F1, F2), record(F1), True, False),
    ("optional field removed", record(F1, F2_DEFAULT), record(F1), True, True),
    ("field renamed", record(F1), record(F2), False, False),
    ("field renamed, with an alias", record(F1), record(field("f2", aliases=["f1"])), True, False),
    ("field renamed, with a default", record(field("f1", default="")), record(F2_DEFAULT), True, True),
    ("field nullable", record(F1), record(field("f1", ["null", "string"])), True, False),
    ("order of fields", record(F1, F2), record(F2, F1), True, True),
    # the specification, chapter Schema Resolution
    ("record renamed", record(F1), record(F1, name="S"), False, False),
    ("record renamed, with an alias", record(F1), record(F1, name="S", aliases=["R"]), True, False),
    ("record renamed in its namespace", record(F1, namespace="n"), RENAMED, True, False),
    ("int to long", "int", "long", True, False),
    ("int to double", "int", "double", True, False),
    ("long to float", "long", "float", True, False),
    ("double to float", "double", "float", False, True),
    ("string to bytes", "string", "bytes", True, True),
    ("string to int", "string", "int", False, False),
    ("symbol added", enum("A"), enum("A", "B"), True, False),
    ("symbol added, with a default", enum("A", default="A"), enum("A", "B", default="A"), True, True),
    ("fixed longer", fixed(2), fixed(3), False, False),
    ("union longer", ["null", "int"], ["null", "int", "string"], True, False),
    ("union of wider types", ["null", "int"], ["null", "long"], True, False),
    ("into a union", "int", ["null", "long"], True, False),
    ("items", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True, False),
    ("values", {"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False, False),
    ("array to map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, False, False),
    ("logical type", "long", {"type": "long", "logicalType": "timestamp-millis"}, True, True),
    ("inside itself", record(field("n", ["null", "R"])), record(field("n", ["null", "R"]), F2_DEFAULT), True, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"), [row[1:] for row in EVOLUTION], ids=[r[0] for r in EVOLUTION]
)
def test_evolution(old: Any, new: Any, backward: bool, forward: bool) -> None:
    assert (schema(new).unreadable(schema(old)) == "") == backward
    assert (schema(old).unreadable(schema(new)) == "") == forward


def test_the_place_of_an_incompatibility_is_named() -> None:
    reason = schema(record(F1, F2)).unreadable(schema(record(F1)))
    assert reason == "reader_field_missing_default_value at /fields/1: f2"
