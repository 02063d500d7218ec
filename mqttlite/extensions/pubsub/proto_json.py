"""What JSON of Protocol Buffers may be beside its usual form: the names of the `.proto` file (`max_messages`), numbers
as text, base64 of the alphabet for URLs or without padding, and null for a member that is absent.

Google's server takes all of it. Invariant: what is in the usual form already stays as it is.
"""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")

_TO_STANDARD = str.maketrans("-_", "+/")


def usual(value: object, kind: type) -> object:
    """A decoded body with the names and values that `kind` expects; what is wrong stays wrong."""
    return _usual(value, _type_of(kind))


@lru_cache(maxsize=64)
def _type_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _usual(value: object, kind: inspect.Type) -> object:
    match kind:
        case inspect.UnionType():  # of a type and None
            return _usual(value, next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
        case inspect.StructType() if isinstance(value, dict):
            return _members(value, kind)
        case inspect.ListType() if isinstance(value, list):
            return [_usual(each, kind.item_type) for each in value]
        case inspect.BytesType() if isinstance(value, str):
            text = value.translate(_TO_STANDARD).rstrip("=")
            return text + "=" * (-len(text) % 4)
        case inspect.IntType() if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
            return int(value)
    return value


def _members(value: dict[str, Any], kind: inspect.StructType) -> dict[str, Any]:
    fields = {name: field for field in kind.fields for name in (field.name, field.encode_name)}
    found: dict[str, Any] = {}
    for name, member in value.items():
        field = fields.get(name)
        if member is None and field is not None:
            continue
        found[name if field is None else field.encode_name] = member if field is None else _usual(member, field.type)
    return found


def decode(body: bytes, kind: type[T]) -> T:
    """A body of `kind`, in any of these forms. Raises what `msgspec.json.decode` raises."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(usual(msgspec.json.decode(body), kind), kind)
