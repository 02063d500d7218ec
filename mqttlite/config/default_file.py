"""The configuration file with every option: `mqttlite config default`.

Names, types and defaults come from the option types, and the sentences from their docstrings. Invariant: without their
`#`, the lines that begin with one `#` and no space are a file of the default configuration; lines that begin with two
belong to absent options and sections.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec.inspect import (
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
from mqttlite.config.shape import join

WIDTH: Final = 120

_LARGE: Final = 65_536

_OCTAL: Final = frozenset({"mode"})
"""Options that people write in octal."""

_HEAD: Final = """\
# All options of mqttlite with their defaults. To change a default, remove the # from a line such as
# "#stop_timeout_s = 5.0" and edit the value. Lines with ## belong to options and sections that are absent by default.
"""


def default_file() -> str:
    """The text of the file, which ends with a newline."""
    return "\n".join((_HEAD, *_section(Config(), _info(Config), "", "#")))


def _section(value: object, kind: StructType | DataclassType, path: str, mark: str) -> Iterator[str]:
    """The options of a section, then its sections. `value` has the defaults; None if the section is absent by
    default."""
    inner: list[tuple[Field, str]] = []
    for field in kind.fields:
        if refusal_of(join(path, field.encode_name)):
            continue
        section = _section_of(field.type)
        if section is not None and not isinstance(field.type, DictType):
            inner.append((field, section))
            continue
        yield from _option(field, kind.cls, mark)
    for field, opening in inner:
        yield from _inner(value, field, kind.cls, path, opening, mark)


def _option(field: Field, cls: type, mark: str) -> Iterator[str]:
    yield from _prose(sentence_of(cls, field.name))
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    is_absent = default is None or default is msgspec.NODEFAULT
    written = _example(field.type) if is_absent else _toml(default)
    if field.name in _OCTAL and written.isdecimal():
        written = oct(int(written))
    yield f"{'##' if is_absent and mark == '#' else mark}{field.encode_name} = {written}\n"


def _inner(value: object, field: Field, cls: type, path: str, opening: str, mark: str) -> Iterator[str]:
    """A section in a section, or a list of them, of which one is shown."""
    at = join(path, field.encode_name)
    mine: object = getattr(value, field.name, None) if value is not None else None
    kind = _struct_in(field.type)
    if isinstance(mine, tuple):
        mine = mine[0] if mine else None
    is_there = isinstance(mine, kind.cls)
    mark = mark if is_there else "##"
    yield from _prose(sentence_of(cls, field.name))
    yield f"{mark}{opening}{at}{']' * len(opening)}\n"
    yield from _section(mine if is_there else None, kind, at, mark)


def _prose(sentence: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(sentence, WIDTH - 2))


def _info(cls: type) -> StructType | DataclassType:
    kind = msgspec.inspect.type_info(cls)
    assert isinstance(kind, StructType | DataclassType)
    return kind


def _alternatives(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def _section_of(kind: Type) -> str | None:
    """The opening bracket of an option's section header; None if it is not a section."""
    for each in _alternatives(kind):
        if isinstance(each, VarTupleType) and isinstance(each.item_type, StructType | DataclassType):
            return "[["
        if isinstance(each, StructType | DataclassType):
            return "["
    return None


def _struct_in(kind: Type) -> StructType | DataclassType:
    for each in _alternatives(kind):
        inner = each.item_type if isinstance(each, VarTupleType) else each
        if isinstance(inner, StructType | DataclassType):
            return inner
    raise AssertionError("the option has a section")


def _example(kind: Type) -> str:
    """An example for an option without default: the first value of its type, or an empty one."""
    first = next(each for each in _alternatives(kind) if not isinstance(each, NoneType))
    match first:
        case BoolType():
            return "false"
        case IntType():
            return "0"
        case FloatType():
            return "0.0"
        case LiteralType():
            return _toml(first.values[0])
        case VarTupleType():
            return f"[{_example(first.item_type)}]"
    return '"…"'


def _toml(value: object) -> str:
    """A value as TOML, which looks like JSON except for underscores in large numbers. Tables must be empty."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= _LARGE:
        return f"{value:_}"
    return msgspec.json.encode(value).decode()


# ── sentences ────────────────────────────────────────────────────────────────────────────────────────────────────────


def sentence_of(cls: type, name: str) -> str:
    """The docstring of an option, where it is defined: in the type or in one that it extends. Empty if it has none."""
    owner = next((each for each in cls.__mro__ if name in inspect.get_annotations(each)), cls)
    return " ".join(_sentences(owner).get(name, "").split())


@cache
def _sentences(cls: type) -> dict[str, str]:
    """The docstrings of a type's options, from its source, because Python does not keep them."""
    for node in ast.walk(_source(cls.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {
                option.target.id: text.value.value
                for option, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(option, ast.AnnAssign)
                and isinstance(option.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    raise AssertionError(f"{cls} is in its module")


@cache
def _source(module: str) -> ast.Module:
    """Raises `OSError` where the package has no sources."""
    path = Path(__file__).parents[2].joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))
