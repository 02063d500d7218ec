"""Avro schemas: read by fastavro, compared by Apache's avro, whose check follows the rules of schema resolution.

How a payload is read is in `avro_payload`. Invariant: names are full names once a schema is parsed.
"""

from typing import Any, Final, final

import avro.schema
import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException

from mqttlite.extensions.schemas.avro_payload import AvroPayload
from mqttlite.extensions.schemas.parsed import ParsedSchema, SchemaError, decode_json, printable

_MEANINGFUL: Final = frozenset(("type", "name", "aliases", "fields", "default", "symbols", "size", "items", "values"))
"""What schema resolution looks at; logical types, documentation and order play no part in it."""

_NAMED: Final = ("record", "error", "enum", "fixed")


@final
class AvroSchema:
    """A `ParsedSchema`."""

    def __init__(self, text: str) -> None:
        """Raises `SchemaError`."""
        tree = decode_json(text)
        if not isinstance(tree, dict | list | str):
            raise SchemaError("an Avro schema is an object, an array or the name of a type")
        named: dict[str, dict[str, Any]] = {}
        try:
            parsed = fastavro.parse_schema(tree, named, _write_hint=False)
            self._avro: Final = avro.schema.make_avsc_object(_bare(parsed))
        except RecursionError:
            raise SchemaError("it is nested too deeply") from None
        except KeyError as error:
            raise SchemaError(printable(f"it is no Avro schema: {error.args[0]!r} is missing")) from None
        except (fastavro.schema.SchemaParseException, AvroException, ValueError, TypeError, AttributeError) as error:
            raise SchemaError(printable(f"it is no Avro schema: {error or type(error).__name__}")) from None
        self._payload: Final = AvroPayload(parsed, named)

    def fault(self, payload: bytes) -> str:
        return self._payload.fault(payload)

    def unreadable(self, writer: ParsedSchema) -> str:
        if not isinstance(writer, AvroSchema):
            return "the other schema is not an Avro schema"
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        result = checker.get_compatibility(self._avro, writer._avro)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return ""
        kinds = ", ".join(dict.fromkeys(each.value for each in result.incompatibilities))
        found = "; ".join(sorted(result.messages))
        return printable(f"{kinds} at {', '.join(sorted(result.locations))}: {found}")


def _bare(tree: Any) -> Any:
    """A parsed schema without what schema resolution does not look at, and with the full names of aliases."""
    if isinstance(tree, list):
        return [_bare(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    bare = {
        key: value if key in ("default", "aliases", "symbols") else _bare(value)
        for key, value in tree.items()
        if key in _MEANINGFUL
    }
    if "aliases" in bare and tree.get("type") in _NAMED:
        namespace = tree["name"].rpartition(".")[0]
        bare["aliases"] = [each if "." in each or not namespace else f"{namespace}.{each}" for each in bare["aliases"]]
    return bare
