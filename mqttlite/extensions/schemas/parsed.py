"""A schema in the form in which it is used, whatever its language.

Invariant: a schema that was parsed needs nothing from outside: no network, no files.
"""

import json
from collections.abc import Sequence
from typing import Final, Literal, Protocol

SchemaType = Literal["JSON", "AVRO"]

SCHEMA_TYPES: Final[tuple[SchemaType, ...]] = ("JSON", "AVRO")

MAX_REASON: Final = 300
"""Characters of a sentence about a payload or a schema: both may quote what somebody wrote."""

MAX_PLACE: Final = 120
"""Characters of a place in a payload, which may be deep in it."""


class SchemaError(ValueError):
    """A text that is no schema; the sentence says why."""


class ParsedSchema(Protocol):
    """One schema."""

    def fault(self, payload: bytes) -> str:
        """What is wrong with a payload: the place in it, and the rule; empty if nothing is. It never raises, and what
        it costs is bounded."""
        ...

    def unreadable(self, writer: "ParsedSchema") -> str:
        """Why payloads that are right by the schema `writer` may be wrong by this one; empty if none is."""
        ...


def decode_json(text: str) -> object:
    """The value of a JSON text. Raises `SchemaError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"it is no JSON: {error}") from None


def place(path: Sequence[str | int]) -> str:
    """A place in a payload, such as `$.order.items[0]`."""
    parts = ["$"]
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if step.isidentifier() else f"[{json.dumps(step, ensure_ascii=False)}]")
    found = "".join(parts)
    return found if len(found) <= MAX_PLACE else f"{found[: MAX_PLACE // 2]}…{found[-MAX_PLACE // 2 :]}"


def printable(text: str, most: int = MAX_REASON) -> str:
    """A text on one line, without control characters, and not too long."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return short if short.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in short)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"
