"""Finds parts of a configuration file that fit no option: unknown keys, values of a wrong type, missing options.

The options' types say what is right. Values that have the right type and are wrong all the same are found in `file`.
Invariant: each problem is reported once, and the search goes on behind it.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import date, time
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DataclassType,
    DictType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from mqttlite.config.options import Config, refusal_of

MAX_INTEGER: Final = 2**63 - 1
"""The range of integers that TOML guarantees."""

SIMILAR: Final = 0.75
"""How alike two names must be, from 0 to 1, for the one to be proposed in place of the other."""


class Problem(NamedTuple):
    """An error of an option: its sentence is the path followed by the text."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}{self.text}" if self.path else self.text.lstrip(" :")


def shape_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """All wrong keys and types of what a TOML file holds."""
    return _section(raw, msgspec.inspect.type_info(Config), "")


def _walk(value: object, kind: Type, path: str) -> Iterator[Problem]:
    kinds = [each for each in _alternatives(kind) if not isinstance(each, NoneType)]
    kinds.sort(key=lambda each: not isinstance(each, BoolType))
    fitting = next((each for each in kinds if _fits(value, each)), None)
    if fitting is None:
        expected = _either([_expected(each) for each in kinds])
        yield Problem(path, f" must be {expected}, not {show(value)}{_hint(value, kinds, path)}")
    elif isinstance(fitting, StructType | DataclassType):
        assert isinstance(value, dict)
        yield from _section(value, fitting, path)
    elif isinstance(fitting, VarTupleType):
        assert isinstance(value, list)
        for number, item in enumerate(value):
            yield from _walk(item, fitting.item_type, f"{path}[{number}]")
    elif isinstance(fitting, DictType):
        assert isinstance(value, dict)
        keys = [str(each) for each in fitting.key_type.values] if isinstance(fitting.key_type, LiteralType) else None
        for key, item in value.items():
            if keys is None or key in keys:
                yield from _walk(item, fitting.value_type, join(path, key))
            else:
                near = propose(key, keys)
                remedy = f"; did you mean {near}?" if near else f"; {path} may have {', '.join(keys)}"
                yield Problem(join(path, key), f" is unknown{remedy}")
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        yield Problem(path, f" is {value}: {MAX_INTEGER} at most")
    elif isinstance(value, str) and "\0" in value:
        yield Problem(path, f" is {value!r}: it has a NUL character")
    elif value == "" and path.endswith("_file"):
        yield Problem(path, " is empty: name a file, or leave the option out")


def _section(raw: Mapping[str, Any], kind: Type, path: str) -> Iterator[Problem]:
    assert isinstance(kind, StructType | DataclassType)
    fields = {each.encode_name: each for each in kind.fields if not refusal_of(join(path, each.encode_name))}
    for key, value in raw.items():
        if refused := refusal_of(join(path, key)):
            yield Problem(join(path, key), refused)
        elif key in fields:
            yield from _walk(value, fields[key].type, join(path, key))
        else:
            yield Problem(join(path, key), f" is unknown{_remedy(key, fields, path)}")
    for name, field in fields.items():
        if field.required and name not in raw:
            yield Problem(join(path, name), f" is missing: it has no default and must be {_expected(field.type)}")


def join(path: str, name: str) -> str:
    """The path of an option in a section."""
    return f"{path}.{name}" if path else name


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(value: object) -> str:
    """A value as an operator knows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value}"' if len(value) <= 60 else f'the text "{value[:60]}…"'
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, date | time):
        return f"the date or time {value}"
    return f"{value}"


def propose(name: str, names: Mapping[str, object] | list[str]) -> str:
    """A name that is nearly the same; empty if there is none."""
    by_form = {known.lower().replace("_", ""): known for known in names}
    form = name.lower().replace("_", "").replace("-", "")
    found = difflib.get_close_matches(form, by_form, 1, SIMILAR)
    return by_form[found[0]] if found else ""


def _remedy(key: str, fields: Mapping[str, Field], path: str) -> str:
    near = propose(key, fields)
    if near:
        return f"; did you mean {_header(near, path) or near}?"
    homes = [home for home in _homes().get(key, ()) if home != path]
    if homes:
        return f" here; it belongs to {' or '.join(homes)}"
    elsewhere = propose(key, _homes())
    if elsewhere:
        return f" here; did you mean {elsewhere} of {' or '.join(_homes()[elsewhere])}?"
    return f"; {path or 'the file'} may have {', '.join(fields)}"


def _header(name: str, path: str) -> str:
    """How a section at the top of the file is written; empty for an option."""
    if path:
        return ""
    kind = next(field.type for field in _fields(msgspec.inspect.type_info(Config)) if field.encode_name == name)
    kinds = _alternatives(kind)
    if any(isinstance(each, VarTupleType) for each in kinds):
        return f"[[{name}]]"
    return f"[{name}]" if any(isinstance(each, StructType | DataclassType | DictType) for each in kinds) else ""


@cache
def _homes() -> dict[str, list[str]]:
    """The sections that have an option of a name, as they are written in a file."""
    found: dict[str, list[str]] = {}

    def visit(kind: Type, path: str, header: str) -> None:
        for field in _fields(kind):
            name = field.encode_name
            found.setdefault(name, []).append(header)
            for each in _alternatives(field.type):
                inner = each.item_type if isinstance(each, VarTupleType) else each
                if isinstance(inner, StructType | DataclassType):
                    at = join(path, name)
                    visit(inner, at, f"[[{at}]]" if isinstance(each, VarTupleType) else f"[{at}]")

    visit(msgspec.inspect.type_info(Config), "", "the top of the file")
    return found


def _fields(kind: Type) -> tuple[Field, ...]:
    assert isinstance(kind, StructType | DataclassType)
    return kind.fields


def _alternatives(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def _fits(value: object, kind: Type) -> bool:
    match kind:
        case AnyType():
            return True
        case BoolType():
            return isinstance(value, bool)
        case IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case LiteralType():
            return value in kind.values
        case StructType() | DataclassType() | DictType():
            return isinstance(value, dict)
        case VarTupleType():
            return isinstance(value, list)
    return isinstance(value, str)


def _expected(kind: Type) -> str:
    match kind:
        case BoolType():
            return "true or false"
        case IntType():
            return "a whole number"
        case FloatType():
            return "a number"
        case LiteralType():
            return _either([f'"{value}"' for value in kind.values])
        case StructType() | DataclassType() | DictType():
            return "a section"
        case VarTupleType():
            return "a list"
    return "text in quotes"


def _hint(value: object, kinds: list[Type], path: str) -> str:
    """A hint at the value that was probably meant, for one of another type."""
    header = re.sub(r"\[\d+\]", "", path)
    for kind in kinds:
        match kind:
            case IntType() if isinstance(value, str) and re.fullmatch("0[0-7]+", value):
                return f"; write 0o{value[1:]} without quotes"
            case IntType() | FloatType() if isinstance(value, str) and value.replace("_", "").isdecimal():
                return f"; write {value} without quotes"
            case BoolType() if isinstance(value, str) and value.lower() in ("true", "false"):
                return f"; write {value.lower()} without quotes"
            case BoolType() if value in ("yes", "on", 1, "no", "off", 0):
                return f"; write {'true' if value in ('yes', 'on', 1) else 'false'}"
            case LiteralType() if isinstance(value, str) and (near := propose(value, [str(v) for v in kind.values])):
                return f'; did you mean "{near}"?'
            case LiteralType() if str(value) in kind.values:
                return f'; write "{value}" in quotes'
            case VarTupleType() if isinstance(value, dict):
                return f"; write its header with two brackets, [[{header}]]"
            case VarTupleType() if isinstance(value, str):
                return f'; write ["{value}"]'
            case StructType() | DataclassType() | DictType() if not path.endswith("]"):
                return f"; write its options below a header, [{header}]"
            case msgspec.inspect.StrType() if isinstance(value, int | float) and not isinstance(value, bool):
                return f'; write "{value}"'
    return ""


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
