"""Parses schemas by their language. The libraries are imported when the first schema is parsed.

Invariant: without the extra `schemas` a schema is refused with a sentence that says what to install.
"""

import importlib.util
from typing import Final

from mqttlite.extensions.schemas.parsed import ParsedSchema, SchemaError, SchemaType

MAX_SCHEMA_BYTES: Final = 65_536
"""Longer ones are generated, and take longer to compile than a loop iteration may."""

EXTRA_MISSING: Final = "schemas need the extra of that name: pip install 'mqttlite[schemas]'"


def parse(schema_type: SchemaType, text: str) -> ParsedSchema:
    """Raises `SchemaError`."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema is longer than {MAX_SCHEMA_BYTES} bytes")
    if not is_installed():
        raise SchemaError(EXTRA_MISSING)
    if schema_type == "JSON":
        from mqttlite.extensions.schemas.json_schema import JsonSchema

        return JsonSchema(text)
    from mqttlite.extensions.schemas.avro_schema import AvroSchema

    return AvroSchema(text)


def is_installed() -> bool:
    """Whether the libraries are there."""
    return all(importlib.util.find_spec(name) is not None for name in ("avro", "fastavro", "jsonschema_rs"))
