"""The tree of an expression. Nodes know their position in the expression. They only hold data."""

from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool | None

MAX_DEPTH: Final = 16
"""The deepest nesting of NOT, AND and OR: an evaluation recurses as deep."""

MAX_CONDITIONS: Final = 64
"""Conditions of one expression: an evaluation takes some hundred nanoseconds for each."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The values of the user properties with a name; there may be several."""

    key: str


@dataclass(frozen=True, slots=True)
class Payload:
    """The value at a path in a JSON payload; without a path, the whole payload."""

    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic name."""


@dataclass(frozen=True, slots=True)
class Qos:
    """The QoS with which the message was published."""


@dataclass(frozen=True, slots=True)
class Retain:
    """Whether the message was published with RETAIN."""


Field: TypeAlias = Attribute | Payload | Topic | Qos | Retain


@dataclass(frozen=True, slots=True)
class Exists:
    field: Attribute | Payload
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HasPrefix:
    field: Attribute | Payload | Topic
    prefix: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Comparison:
    field: Field
    operator: str
    value: Value
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Not:
    part: "Node"
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class All:
    """AND."""

    parts: "tuple[Node, ...]"
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Any:
    """OR."""

    parts: "tuple[Node, ...]"
    start: int
    end: int


Condition: TypeAlias = Exists | HasPrefix | Comparison
Node: TypeAlias = Condition | Not | All | Any


def fields_of(node: Node) -> list[Field]:
    """The field of each condition, in order."""
    if isinstance(node, Not):
        return fields_of(node.part)
    if isinstance(node, All | Any):
        return [field for part in node.parts for field in fields_of(part)]
    return [node.field]
