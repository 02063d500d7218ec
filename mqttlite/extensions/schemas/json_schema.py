"""JSON Schema, by the library jsonschema-rs.

A text that does not name its draft is of draft 7, as with Confluent. Whether a schema may follow another is a question
of sets: it may if it allows every payload that the other allows. Invariant: what cannot be shown to be so is refused.
"""

import json
from typing import Any, Final, final

import jsonschema_rs
import msgspec
from jsonschema_rs import canonical

from mqttlite.extensions.schemas.growth import (
    BYTES_PER_MATCH,
    MAX_IN_PLACE,
    MAX_LOOKS,
    MAX_MATCHES,
    Growth,
    looks,
    texts,
)
from mqttlite.extensions.schemas.parsed import ParsedSchema, SchemaError, decode_json, place, printable

MAX_PAYLOAD_BYTES: Final = 262_144
"""Of a JSON text that is checked: about 2 ms."""

BACKTRACKS: Final = 2_000
"""Steps back of a regular expression in a schema, about 30 µs: some patterns take exponential time, then the payload
is wrong."""

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)

_QUOTED: Final = 160
"""Characters of a JSON Schema in a sentence."""

_decode: Final = msgspec.json.Decoder().decode


@final
class JsonSchema:
    """A `ParsedSchema`."""

    def __init__(self, text: str) -> None:
        """Raises `SchemaError`."""
        tree = decode_json(text)
        if not isinstance(tree, dict | bool):
            raise SchemaError("a JSON Schema is an object, true or false")
        self._tree: Final[Any] = tree
        make = jsonschema_rs.validator_for if _names_draft(tree) else jsonschema_rs.Draft7Validator
        try:
            self._validator: Final = make(tree, offline=True, pattern_options=_PATTERNS)
        except jsonschema_rs.ValidationError as error:
            where = f" at {place(error.instance_path)}" if error.instance_path else ""
            raise SchemaError(printable(f"it is no JSON Schema{where}: {error.message}")) from None
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise SchemaError(printable(f"it is no JSON Schema: {error}")) from None
        try:
            growth = Growth(tree)
        except RecursionError:
            raise SchemaError("its references lead too deeply") from None
        if growth.in_place > MAX_IN_PLACE:
            raise SchemaError(
                f"it applies more than {MAX_IN_PLACE} schemas to one value: name each definition less often"
            )
        self._factor: Final = growth.factor
        self._patterns: Final = growth.patterns

    def fault(self, payload: bytes) -> str:
        if len(payload) > MAX_PAYLOAD_BYTES:
            return f"{len(payload)} bytes: a payload with a JSON Schema has {MAX_PAYLOAD_BYTES} at most"
        try:
            value = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return printable(f"$: it is no JSON: {error}")
        except RecursionError:
            return "$: it is nested too deeply"
        if self._factor > 1 and looks(value, self._factor) > MAX_LOOKS:
            return f"$: it is nested too deeply for a schema that has {self._factor} alternatives inside each other"
        if self._patterns * len(payload) > MAX_MATCHES:  # else it has too few keys and texts, whatever they are
            tried = texts(value) + len(payload) // BYTES_PER_MATCH
            if self._patterns * tried > MAX_MATCHES:
                return f"$: it has too many keys and texts, {tried}, for the patterns of the schema"
        try:
            self._validator.validate(value)  # stops at the first error; `iter_errors` looks for all, for minutes
        except jsonschema_rs.ValidationError as error:
            text = error.message if len(error.message) <= _QUOTED else f"{error.message[:60]} … {error.message[-80:]}"
            return printable(f"{place(error.instance_path)}: {text} ({error.kind.name})")
        except ValueError as error:
            return printable(f"$: it cannot be checked: {error}")
        return ""

    def unreadable(self, writer: ParsedSchema) -> str:
        if not isinstance(writer, JsonSchema):
            return "the other schema is not a JSON Schema"
        try:
            mine, theirs = self._canonical(), writer._canonical()
            verdict = mine.covers(theirs)
            if verdict == canonical.Containment.YES:
                return ""
            lost = theirs.subtract(mine).to_json_schema()
        except ValueError as error:
            return printable(f"it cannot be shown that all payloads are allowed that were: {error}")
        if isinstance(lost, dict):
            lost.pop("$schema", None)
        quoted = printable(json.dumps(lost, ensure_ascii=False), _QUOTED)
        if verdict == canonical.Containment.NO:
            return f"payloads are no longer allowed that were: those of the JSON Schema {quoted}"
        return f"it cannot be shown that all payloads are allowed that were: what of those of the JSON Schema {quoted}?"

    def _canonical(self) -> jsonschema_rs.CanonicalSchema:
        draft = None if _names_draft(self._tree) else jsonschema_rs.Draft7
        return jsonschema_rs.canonicalize(self._tree, draft=draft, offline=True, pattern_options=_PATTERNS)


def _names_draft(tree: object) -> bool:
    return isinstance(tree, dict) and "$schema" in tree
