"""JSON Schema: what is wrong with a payload, and which schema may follow which."""

import json
from typing import Any, Final

import pytest

from mqttlite.extensions.schemas.growth import MAX_IN_PLACE, MAX_LOOKS, Growth, looks
from mqttlite.extensions.schemas.json_schema import MAX_PAYLOAD_BYTES, JsonSchema
from mqttlite.extensions.schemas.parsed import SchemaError
from mqttlite.extensions.schemas.parsing import MAX_SCHEMA_BYTES, parse

TEXT: Any = {"type": "string"}
NUMBER: Any = {"type": "number"}
INTEGER: Any = {"type": "integer"}


def of(**keys: Any) -> dict[str, Any]:
    return {"type": "object", **keys}


def closed(**keys: Any) -> dict[str, Any]:
    return of(additionalProperties=False, **keys)


def schema(tree: Any) -> JsonSchema:
    return JsonSchema(json.dumps(tree))


ORDER = schema(of(properties={"total": NUMBER, "items": {"type": "array", "items": TEXT}}, required=["total"]))


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b'{"total": 1}', ""),
        (b'{"total": 1, "more": null}', ""),
        (b'{"total": "1"}', '$.total: "1" is not of type "number" (type)'),
        (b'{"total": 1, "items": ["a", 2]}', '$.items[1]: 2 is not of type "string" (type)'),
        (b"{}", '$: "total" is a required property (required)'),
        (b"", "$: it is no JSON: Input data was truncated"),
        (b"\xff", "$: it is no JSON: JSON is malformed: invalid character (byte 0)"),
        (b'{"total": NaN}', "$: it is no JSON: JSON is malformed: invalid character (byte 10)"),
        (b"[" * 100_000, "$: it is nested too deeply"),
        (b"[" * 500 + b"]" * 500, "$: it cannot be checked: Recursion limit reached"),
        (b" " * (MAX_PAYLOAD_BYTES + 1), "262145 bytes: a payload with a JSON Schema has 262144 at most"),
    ],
)
def test_a_fault_has_its_place_and_rule(payload: bytes, fault: str) -> None:
    assert ORDER.fault(payload) == fault


def test_text_from_a_client_is_quoted_short_and_on_one_line() -> None:
    fault = ORDER.fault(json.dumps({"total": "\x00\n" * 500}).encode())
    assert len(fault) <= 300
    assert fault.isprintable()
    deep = schema({"$ref": "#/definitions/a", "definitions": {"a": of(properties={"a": {"$ref": "#/definitions/a"}})}})
    fault = deep.fault(b'{"a":' * 200 + b"1" + b"}" * 200)
    assert fault.startswith("$.a.a")
    assert fault.endswith('1 is not of type "object" (type)')


def test_of_many_errors_the_first_is_looked_for() -> None:
    """All of them take minutes, and gigabytes."""
    choices = schema({"items": {"oneOf": [{"const": number} for number in range(200)]}})
    fault = choices.fault(json.dumps([200] * 40_000).encode())
    assert fault == "$[0]: 200 is not valid under any of the schemas listed in the 'oneOf' keyword (oneOf)"


def test_a_pattern_that_takes_exponential_time_is_given_up() -> None:
    slow = schema({"type": "string", "pattern": "^(?:(?=a)(a|aa))+$"})
    assert slow.fault(json.dumps("a" * 400 + "b").encode()).endswith("backtracking count exceeded (pattern)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is no JSON: Expecting property name"),
        ("[]", "a JSON Schema is an object, true or false"),
        ("[" * 5_000, "it is nested too deeply"),
        ('{"type": "strin"}', "it is no JSON Schema at $.type: "),
        ('{"$ref": "http://localhost/x"}', "it is no JSON Schema: Resource 'http://localhost/x' is not present"),
        ('{"$ref": "file:///etc/passwd"}', "it is no JSON Schema: Resource 'file:///etc/passwd' is not present"),
        ('{"$schema": "https://example.com/mine"}', "it is no JSON Schema: Unknown meta-schema"),
        ('{"pattern": "("}', "it is no JSON Schema at $.pattern: "),
        ('"' + "x" * MAX_SCHEMA_BYTES + '"', f"the schema is longer than {MAX_SCHEMA_BYTES} bytes"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=r"^\S") as caught:
        parse("JSON", text)
    assert str(caught.value).startswith(reason)


ROOT: Any = {"$ref": "#"}
EXPRESSION: Any = {
    "anyOf": [
        of(properties={"args": {"type": "array", "items": ROOT}, "op": {"const": "and"}}, required=["op"]),
        of(properties={"args": {"type": "array", "items": ROOT}, "op": {"const": "or"}}, required=["op"]),
        TEXT,
    ]
}


def doubled(levels: int) -> dict[str, Any]:
    """Definitions of which each names the next one twice."""
    names = [{"$ref": f"#/definitions/d{level + 1}"} for level in range(levels)]
    definitions = {f"d{level}": {"anyOf": [name, name]} for level, name in enumerate(names)}
    return {"definitions": {**definitions, f"d{levels}": TEXT}, "$ref": "#/definitions/d0"}


@pytest.mark.parametrize(
    ("tree", "factor"),
    [
        (EXPRESSION, 2),
        (ORDER_TREE := of(properties={"left": ROOT, "right": ROOT, "all": {"items": ROOT}}), 1),
        ({"anyOf": [TEXT, {"items": ROOT}, {"additionalProperties": ROOT}]}, 1),
        (of(properties={"next": ROOT}, additionalProperties=ROOT), 1),
        (of(properties={"next": ROOT}, patternProperties={"^n": ROOT}), 2),
        ({"items": [ROOT, ROOT], "additionalItems": ROOT}, 1),
        ({"items": ROOT, "contains": ROOT}, 2),
        ({"allOf": [{"items": ROOT}, {"items": [TEXT, {"items": [ROOT]}]}], "not": {"items": ROOT}}, 3),
        ({"if": {"properties": {"a": ROOT}}, "dependencies": {"a": {"additionalProperties": ROOT}}}, 2),
        ({"items": [{"$ref": "#/items/0/anyOf/1"}, {"$ref": "#/items/0/x"}, {"$ref": "#/items/9"}]}, 4),
        ({"definitions": {"a/b%": {"items": {"$ref": "#/definitions/a~1b%25"}}}, "$ref": "#/definitions/a~1b%25"}, 1),
        ({"$ref": "#name"}, 4),
        ({"allOf": [ROOT, ROOT]}, 1),
        (True, 1),
    ],
)
def test_alternatives_that_are_inside_themselves_are_found(tree: Any, factor: int) -> None:
    assert Growth(tree).factor == factor


def test_a_payload_that_takes_exponential_time_is_refused_soon() -> None:
    made = schema(EXPRESSION)

    def nested(levels: int, inner: bytes) -> bytes:
        return b'{"op":"or","args":[' * levels + inner + b"]}" * levels

    assert made.fault(nested(7, b'"x"')) == ""
    assert "(anyOf)" in made.fault(nested(7, b"1"))
    for payload in (nested(8, b"1"), nested(80, b"1"), b'{"args":[' * 6 + b'"x",' * 1_000 + b"1" + b"]}" * 6):
        assert (
            made.fault(payload) == "$: it is nested too deeply for a schema that has 2 alternatives inside each other"
        )
    assert schema(ORDER_TREE).fault(b'{"left":' * 100 + b"{}" + b"}" * 100) == ""


def test_a_payload_is_counted_up_to_the_limit() -> None:
    assert looks({"a": [1, 2]}, 2) == 1 + 2 + 2 * 4
    assert looks([1] * (MAX_LOOKS // 2 - 1), 2) < MAX_LOOKS < looks([1] * (MAX_LOOKS // 2), 2)


def test_definitions_that_name_each_other_many_times_are_refused() -> None:
    assert Growth(doubled(11)).in_place <= MAX_IN_PLACE
    assert schema(doubled(11)).fault(b'"x"') == ""
    with pytest.raises(SchemaError, match="more than 10000 schemas to one value"):
        schema(doubled(12))
    chain = {f"d{level}": {"$ref": f"#/definitions/d{level + 1}"} for level in range(1_500)}
    with pytest.raises(SchemaError, match="its references lead too deeply"):
        schema({"definitions": {**chain, "d1500": {}}, "$ref": "#/definitions/d0"})


def test_a_schema_without_a_draft_is_of_draft_7() -> None:
    assert schema({"items": [TEXT]}).fault(b"[1]")
    newer = schema({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [TEXT]})
    assert newer.fault(b"[1]")
    assert not newer.fault(b'["a", 1]')


EVOLUTION: list[tuple[str, Any, Any, bool, bool]] = [
    # what changes, old, new, whether the new may read the old (BACKWARD), and the old the new (FORWARD)
    ("nothing", of(properties={"a": TEXT}), of(properties={"a": TEXT}), True, True),
    ("title", of(title="x", properties={"a": TEXT}), of(description="y", properties={"a": TEXT}), True, True),
    # the table of Confluent's documentation, content model by content model
    ("open: optional added", of(properties={"a": TEXT}), of(properties={"a": TEXT, "b": NUMBER}), False, True),
    ("open: required added", of(), of(properties={"b": NUMBER}, required=["b"]), False, True),
    ("open: any added", of(properties={"a": TEXT}), of(properties={"a": TEXT, "b": True}), True, True),
    ("open: removed", of(properties={"a": TEXT, "b": NUMBER}), of(properties={"a": TEXT}), True, False),
    (
        "closed: optional added",
        closed(properties={"a": TEXT}),
        closed(properties={"a": TEXT, "b": NUMBER}),
        True,
        False,
    ),
    (
        "closed: required added",
        closed(properties={"a": TEXT}),
        closed(properties={"a": TEXT, "b": NUMBER}, required=["b"]),
        False,
        False,
    ),
    ("closed: removed", closed(properties={"a": TEXT, "b": NUMBER}), closed(properties={"a": TEXT}), False, True),
    ("opened", closed(properties={"a": TEXT}), of(properties={"a": TEXT}), True, False),
    (
        "partially open: not covered",
        of(properties={"a": TEXT}, additionalProperties=TEXT),
        of(properties={"a": TEXT, "b": NUMBER}, additionalProperties=TEXT),
        False,
        False,
    ),
    (
        "partially open: pattern covers",
        closed(properties={"a": TEXT, "I_1": INTEGER}),
        closed(properties={"a": TEXT}, patternProperties={"^I_": NUMBER}),
        True,
        False,
    ),
    ("required to optional", of(properties={"a": TEXT}, required=["a"]), of(properties={"a": TEXT}), True, False),
    ("type wider", INTEGER, NUMBER, True, False),
    ("type other", TEXT, NUMBER, False, False),
    ("types more", {"type": ["string"]}, {"type": ["string", "null"]}, True, False),
    ("enum longer", {"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    ("enum removed", {"type": "string", "enum": ["a"]}, TEXT, True, False),
    ("minLength lower", {"type": "string", "minLength": 3}, {"type": "string", "minLength": 2}, True, False),
    ("maximum higher", {"type": "number", "maximum": 3}, {"type": "number", "maximum": 4}, True, False),
    ("multipleOf divides", {"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 2}, True, False),
    ("pattern removed", {"type": "string", "pattern": "^a"}, TEXT, True, False),
    ("pattern other", {"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}, False, False),
    ("not narrower", {"not": NUMBER}, {"not": INTEGER}, True, False),
    ("oneOf longer", {"oneOf": [TEXT]}, {"oneOf": [NUMBER, TEXT]}, True, False),
    ("into anyOf", TEXT, {"anyOf": [NUMBER, TEXT]}, True, False),
    ("allOf shorter", {"allOf": [TEXT, {"maxLength": 3}]}, {"allOf": [TEXT]}, True, False),
    ("items added", {"type": "array"}, {"type": "array", "items": TEXT}, False, True),
    ("uniqueItems removed", {"type": "array", "uniqueItems": True}, {"type": "array"}, True, False),
    ("maxItems lower", {"type": "array", "maxItems": 2}, {"type": "array", "maxItems": 1}, False, True),
    ("dependency removed", of(dependencies={"a": ["b"]}), of(), True, False),
    ("into a reference", TEXT, {"$ref": "#/definitions/t", "definitions": {"t": TEXT}}, True, True),
    ("inside", of(properties={"a": of(required=["b"])}), of(properties={"a": of()}), True, False),
    ("everything", TEXT, True, True, False),
]


KEYS: Final = {f"k{number}": "x" for number in range(12_000)}
NAMES: Final = {f"^a{number}x$": {} for number in range(1_500)}
LOOKS_AHEAD: Final = {"pattern": "^(?:(?=a)a+)+b$"}


@pytest.mark.parametrize(
    ("tree", "value", "is_too_much"),
    [
        ({"patternProperties": NAMES}, KEYS, True),
        ({"patternProperties": NAMES}, dict(list(KEYS.items())[:100]), False),
        ({"patternProperties": {"^k": {}}}, KEYS, False),
        ({"propertyNames": {"allOf": [{"pattern": f"^k|{number}"} for number in range(100)]}}, KEYS, True),
        ({"items": {"allOf": [{"pattern": f"^x|{number}"} for number in range(2_000)]}}, ["x"] * 1_000, True),
        ({"items": {"not": LOOKS_AHEAD}}, ["a" * 9] * 18_000, True),
        ({"items": {"not": LOOKS_AHEAD}}, ["a" * 5] * 4_000, False),
        ({"items": {"$ref": "#/definitions/t"}, "definitions": {"t": {"not": LOOKS_AHEAD}}}, ["a"] * 20_000, True),
        ({"not": LOOKS_AHEAD}, "a" * 250_000, False),
        ({"items": {"type": "integer"}}, list(range(50_000)), False),
    ],
    ids=["names", "few keys", "one name", "keys", "all of", "look-around", "few", "reference", "a text", "no pattern"],
)
def test_patterns_times_keys_and_texts_are_limited(tree: dict[str, Any], value: Any, is_too_much: bool) -> None:
    fault = schema(tree).fault(json.dumps(value).encode())
    assert ("too many keys and texts" in fault) == is_too_much, fault


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"), [row[1:] for row in EVOLUTION], ids=[r[0] for r in EVOLUTION]
)
def test_evolution(old: Any, new: Any, backward: bool, forward: bool) -> None:
    assert (schema(new).unreadable(schema(old)) == "") == backward
    assert (schema(old).unreadable(schema(new)) == "") == forward


def test_the_payloads_that_are_lost_are_named() -> None:
    new = schema(of(properties={"a": TEXT, "b": NUMBER}))
    reason = new.unreadable(schema(of(properties={"a": TEXT})))
    assert reason.startswith("payloads are no longer allowed that were: those of the JSON Schema {")
    assert '"required": ["b"]' in reason


def test_a_payload_that_cannot_be_shown_is_refused() -> None:
    partially_open = of(properties={"a": TEXT}, additionalProperties=TEXT)
    reason = schema(of(properties={"a": TEXT, "b": TEXT}, additionalProperties=TEXT)).unreadable(schema(partially_open))
    assert reason.startswith("it cannot be shown that all payloads are allowed that were")


def test_another_language_is_never_compatible() -> None:
    assert schema(TEXT).unreadable(parse("AVRO", '"string"')) == "the other schema is not a JSON Schema"
    assert parse("AVRO", '"string"').unreadable(schema(TEXT)) == "the other schema is not an Avro schema"
