"""The schema of a topic policy: which one a message is read with, and what becomes of those that are something else."""

import io
import json
import logging
from typing import Any

import fastavro
import pytest

from mqttlite.core.source import CLIENT, THE_PROGRAM, Source
from mqttlite.extensions.schemas import service
from mqttlite.extensions.schemas.compare import incompatibilities
from mqttlite.extensions.schemas.registry import Schema
from mqttlite.extensions.schemas.service import SchemaRegistry
from mqttlite.extensions.schemas.topic_schema import (
    LOG_EVERY_S,
    OnViolation,
    TopicSchema,
    TopicSchemas,
    parse_reference,
)
from mqttlite.wire.properties import Properties

NUMBER = Schema("JSON", '{"type": "number"}')
TEXT_OR_NUMBER = Schema("JSON", '{"type": ["number", "string"]}')
RECORD: Any = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
LONGER: Any = {**RECORD, "fields": [*RECORD["fields"], {"name": "b", "type": "int", "default": 0}]}
CLIENT_A = Source(CLIENT, "a")


def frame(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def avro(tree: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(tree), value)
    return out.getvalue()


def named(value: str, **fields: Any) -> Properties:
    return Properties(user_properties=[("x", "y"), ("schema-id", value)], **fields)


async def registry_with(**subjects: list[Schema]) -> SchemaRegistry:
    registry = SchemaRegistry(compare_schemas=incompatibilities)
    for name, schemas in subjects.items():
        for schema in schemas:
            await registry.register(name, schema)
    return registry


def reason(check: TopicSchema, payload: bytes, properties: Properties | None = None) -> tuple[int, str]:
    found = check.violation(CLIENT_A, b"t", payload, properties or Properties())
    return (0, "") if found is None else (found.code, found.reason)


RIGHT = (0, "")


@pytest.fixture
async def registry() -> SchemaRegistry:
    """The ids are 1 and 2 for `s`, 3 for `other`, 4 and 5 for `avro`."""
    return await registry_with(
        s=[NUMBER, TEXT_OR_NUMBER],
        other=[Schema("JSON", "true")],
        avro=[Schema("AVRO", json.dumps(RECORD)), Schema("AVRO", json.dumps(LONGER))],
    )


async def test_the_latest_version_counts_where_none_is_named(registry: SchemaRegistry) -> None:
    latest, first = TopicSchema(registry, "s", "reject"), TopicSchema(registry, "s:1", "reject")
    assert reason(latest, b'"x"') == RIGHT
    assert reason(latest, b"true") == (0x99, '$: true is not of types "number", "string" (type), by the schema s:2')
    assert reason(first, b"1") == RIGHT
    assert reason(first, b'"x"') == (0x99, '$: "x" is not of type "number" (type), by the schema s:1')
    await registry.register("s", Schema("JSON", "true"))
    assert reason(latest, b"true") == RIGHT
    assert reason(first, b"true")[0] == 0x99


@pytest.mark.parametrize("name", ["1", "s:1"])
async def test_the_writer_may_name_its_schema(registry: SchemaRegistry, name: str) -> None:
    latest = TopicSchema(registry, "s", "reject")
    assert reason(latest, b"1", named(name)) == RIGHT
    assert reason(latest, frame(1) + b"1", named(name)) == RIGHT
    assert reason(latest, b'"x"', named(name)) == (0x99, '$: "x" is not of type "number" (type), by the schema s:1')
    assert reason(latest, frame(2) + b"1", named(name))[0] == 0x99


@pytest.mark.parametrize("name", ["3", "other:1", "s:3", "s", "", "99"])
async def test_a_schema_of_another_subject_is_refused(registry: SchemaRegistry, name: str) -> None:
    expected = (0x99, f"schema-id is {name!r}: s has no such schema")
    assert reason(TopicSchema(registry, "s", "reject"), b"1", named(name)) == expected


async def test_a_policy_with_a_version_takes_no_other(registry: SchemaRegistry) -> None:
    pinned = TopicSchema(registry, "s:1", "reject")
    assert reason(pinned, b"1", named("s:1")) == RIGHT
    assert reason(pinned, b"1", named("s:2")) == (0x99, "schema-id is 's:2': s:1 has no such schema")


async def test_the_first_bytes_may_name_the_schema(registry: SchemaRegistry) -> None:
    check = TopicSchema(registry, "s", "reject")
    assert reason(check, frame(1) + b"1") == RIGHT
    assert reason(check, frame(1) + b'"x"')[1].endswith("by the schema s:1")
    expected = "the payload begins with the schema id 3: another one than s has"
    assert reason(check, frame(3) + b"1") == (0x99, expected)
    assert reason(check, b"\0")[0] == 0x99


async def test_avro_with_and_without_a_frame(registry: SchemaRegistry) -> None:
    check = TopicSchema(registry, "avro", "reject")
    old, new = avro(RECORD, {"a": "x"}), avro(LONGER, {"a": "x", "b": 1})
    assert reason(check, new) == RIGHT
    assert reason(check, old) == (0x99, "$.b: the payload ends in a number, by the schema avro:2")
    assert reason(check, frame(4) + old) == RIGHT
    assert reason(check, old, named("avro:1")) == RIGHT
    assert reason(check, frame(5) + old) == (0x99, "$.b: the payload ends in a number, by the schema avro:2")


async def test_a_value_may_look_like_a_frame() -> None:
    schema: Any = {"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in "abcdefg"]}
    registry = await registry_with(s=[Schema("AVRO", json.dumps(schema))])
    check = TopicSchema(registry, "s", "reject")
    payload = avro(schema, {"a": 0, "b": 0, "c": 0, "d": 0, "e": -1, "f": 0, "g": 0})
    assert payload.startswith(frame(1))
    assert reason(check, payload) == RIGHT
    assert reason(check, frame(1) + payload) == RIGHT


@pytest.mark.parametrize(
    ("subject", "content_type", "is_right"),
    [
        ("s", "application/json", True),
        ("s", "application/vnd.x+JSON; charset=utf-8", True),
        ("s", "application/octet-stream", True),
        ("s", "text/plain", False),
        ("s", "avro/binary", False),
        ("avro", "avro/binary", True),
        ("avro", "application/json", False),
    ],
)
async def test_a_content_type_must_fit(
    registry: SchemaRegistry, subject: str, content_type: str, is_right: bool
) -> None:
    payload = b"1" if subject == "s" else avro(LONGER, {"a": "x", "b": 1})
    found = reason(TopicSchema(registry, subject, "reject"), payload, Properties(content_type=content_type))
    kind = "JSON" if subject == "s" else "AVRO"
    assert found == (RIGHT if is_right else (0x99, f"Content Type is {content_type!r}: the schema is {kind}"))


async def test_a_payload_format_must_be_true(registry: SchemaRegistry) -> None:
    check = TopicSchema(registry, "avro", "reject")
    payload = avro(LONGER, {"a": "x", "b": -(1 << 20)})
    assert reason(check, payload) == RIGHT
    expected = (0x99, "the payload says that it is UTF-8, and is not")
    assert reason(check, payload, Properties(payload_format_indicator=1)) == expected
    assert reason(check, avro(LONGER, {"a": "x", "b": 1}), Properties(payload_format_indicator=1)) == RIGHT


async def test_without_its_schema_a_topic_takes_nothing(registry: SchemaRegistry) -> None:
    check = TopicSchema(registry, "late", "reject")
    assert reason(check, b"1") == (0x83, "the topic has the schema late, which is not registered")
    await registry.register("late", NUMBER)
    assert reason(check, b"1") == RIGHT
    await registry.delete_subject("late", permanently=False)
    assert reason(check, b"1")[0] == 0x83
    assert reason(TopicSchema(registry, "s:9", "reject"), b"1")[0] == 0x83


async def test_a_spoilt_schema_is_named(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = SchemaRegistry()
    schemas = {**registry.registry.schemas, 1: Schema("JSON", "{"), 2: NUMBER}
    spoilt.registry = type(registry.registry)(9, "NONE", schemas, registry.registry.subjects)
    assert reason(TopicSchema(spoilt, "s:1", "reject"), b"1")[0] == 0x83
    code, why = reason(TopicSchema(spoilt, "s", "reject"), b"1", named("s:1"))
    assert (code, why[:28]) == (0x83, "the schema 1 cannot be used:")


async def test_schemas_are_kept_parsed_up_to_a_number(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_PARSED", 1)
    first = registry.parsed(1)
    assert registry.parsed(1) is first
    registry.parsed(2)
    assert registry.parsed(1) is not first


async def test_violations_may_be_let_through(registry: SchemaRegistry) -> None:
    checks = TopicSchemas(registry)
    check = checks.check("s", "count")
    assert checks.check("s", "count") is check
    assert reason(check, b"true") == RIGHT
    assert reason(checks.check("s", "reject"), b"true")[0] == 0x99
    assert reason(check, b"true") == RIGHT
    assert checks.violations() == {("s", "count"): 2, ("s", "reject"): 1}


@pytest.mark.parametrize(("on_violation", "code"), [("count", 0), ("reject", 0x99)])
async def test_a_look_counts_nothing(
    registry: SchemaRegistry, caplog: pytest.LogCaptureFixture, on_violation: OnViolation, code: int
) -> None:
    checks = TopicSchemas(registry)
    check = checks.check("s", on_violation)
    looked = check.look(b"true", Properties())
    assert looked is not None
    assert (looked.code, looked.reason.endswith("by the schema s:2")) == (code, True), looked.reason
    assert checks.violations() == {("s", on_violation): 0}
    assert caplog.messages == []


async def test_the_needs_of_the_first_message_are_prepared(registry: SchemaRegistry) -> None:
    checks = TopicSchemas(registry)
    for name in ("s", "late", "s:9"):
        checks.check(name, "reject")
    assert checks.prepare() == [f"the topic has the schema {name}, which is not registered" for name in ("late", "s:9")]
    assert reason(checks.check("s", "reject"), b"1") == RIGHT


async def test_one_line_is_logged_in_some_time(registry: SchemaRegistry, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    check = TopicSchema(registry, "s:1", "reject", lambda: now)
    for payload in (b"true", b"true", b"1", b"true"):
        reason(check, payload)
    now = LOG_EVERY_S
    check.violation(THE_PROGRAM, "t\u00e9".encode(), b"{}", Properties())
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == [
        "schema_invalid, dropped: a message of client 'a' to t: $: true is not of type \"number\" (type), "
        "by the schema s:1",
        'schema_invalid, dropped: a message of the program to té: $: {} is not of type "number" (type), '
        "by the schema s:1 (2 more since the last line)",
    ]


@pytest.mark.parametrize(
    ("text", "subject", "version"),
    [("s", "s", None), ("s:1", "s", 1), ("a:b", "a:b", None), ("a:b:12", "a:b", 12), ("s:", "s:", None)],
)
def test_a_reference_names_a_subject_and_perhaps_a_version(text: str, subject: str, version: int | None) -> None:
    assert parse_reference(text) == (subject, version)
    assert str(parse_reference(text)) == text
