"""The reader of Avro payloads beside fastavro: what that writes is right, and what is right that can read."""

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.extensions.schemas.avro_payload import AvroPayload

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": st.text(max_size=5),
}


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """A schema and a value of it."""
    kinds = ["primitive", "enum", "fixed"] + (["array", "map", "record", "union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "enum":
        return {"type": "enum", "name": f"E{depth}", "symbols": ["A", "B"]}, draw(st.sampled_from("AB"))
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{depth}", "size": 2}, draw(st.binary(min_size=2, max_size=2))
    if kind == "primitive":
        name = draw(st.sampled_from(sorted(PRIMITIVES)))
        return name, draw(PRIMITIVES[name])
    inner, value = draw(typed(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 3))
    if kind == "map":
        return {"type": "map", "values": inner}, dict.fromkeys(draw(st.sets(st.text(max_size=3), max_size=2)), value)
    if kind == "record":
        name = draw(st.sampled_from(sorted(PRIMITIVES)))
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": name}]
        return {"type": "record", "name": f"R{depth}", "fields": fields}, {"a": value, "b": draw(PRIMITIVES[name])}
    return ["null", {"type": "array", "items": inner}], draw(st.sampled_from([None, [value]]))


def parsed(tree: Any) -> tuple[Any, AvroPayload]:
    named: dict[str, Any] = {}
    schema = fastavro.parse_schema(tree, named, _write_hint=False)
    return schema, AvroPayload(schema, named)


@pytest.mark.long
@given(typed(), st.data())
def test_both_agree(drawn: tuple[Any, Any], data: st.DataObject) -> None:
    schema, ours = parsed(drawn[0])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, drawn[1])
    payload = out.getvalue()
    assert ours.fault(payload) == ""
    if payload:
        at = data.draw(st.integers(0, len(payload) - 1))
        payload = payload[:at] + data.draw(st.binary(max_size=2)) + payload[at + 1 :]
        if ours.fault(payload) == "":
            stream = io.BytesIO(payload)
            fastavro.schemaless_reader(stream, schema, None)  # raises nothing
            assert stream.read() == b""


@given(typed(), st.binary(max_size=30))
def test_every_input_is_answered_with_a_sentence(drawn: tuple[Any, Any], payload: bytes) -> None:
    _, ours = parsed(drawn[0])
    fault = ours.fault(payload)
    assert fault == "" or (fault.startswith("$") and fault.isprintable())
