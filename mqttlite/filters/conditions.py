"""Compiles nodes to closures. Results are only true or false, and the closures never raise.

A condition on a missing value, or one of another type, is false, and NOT makes that true: `!=` is NOT `=`. If a message
has a user property several times, a condition holds if it holds for one of the values.
"""

import operator as operators
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from mqttlite.filters.json_payload import MISSING, at_path
from mqttlite.filters.literals import number
from mqttlite.filters.message import Filterable
from mqttlite.filters.nodes import (
    All,
    Any,
    Attribute,
    Comparison,
    Exists,
    Field,
    HasPrefix,
    Node,
    Not,
    Payload,
    Qos,
    Topic,
    Value,
)

Pairs: TypeAlias = list[tuple[str, str]]
Test: TypeAlias = Callable[[Pairs, Filterable], bool]
"""Takes the user properties of a message, and the message."""

_ORDER: Final[dict[str, Callable[[int | float, int | float], bool]]] = {
    "=": operators.eq,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
"""The form of a user property that can be compared as a number: a JSON number."""


def compiled(node: Node, mount_point: bytes = b"") -> Test:
    """The closure of a node. Topic names in it are relative to the mount point."""
    if isinstance(node, Not):
        return _negated(compiled(node.part, mount_point))
    if isinstance(node, All):
        return _all([compiled(part, mount_point) for part in node.parts])
    if isinstance(node, Any):
        return _any([compiled(part, mount_point) for part in node.parts])
    if isinstance(node, Exists):
        return _exists(node.field)
    if isinstance(node, HasPrefix):
        return _has_prefix(node.field, node.prefix, mount_point)
    return _compared(node, mount_point)


def value_of(field: Field, message: Filterable) -> object:
    """The value that a condition tests. For an attribute it is a list of values."""
    if isinstance(field, Attribute):
        return [value for name, value in message.properties.user_properties if name == field.key]
    if isinstance(field, Payload):
        return at_path(message.payload, field.path)
    if isinstance(field, Topic):
        return message.topic.decode(errors="replace")
    return message.qos if isinstance(field, Qos) else message.retain


# ------------------------------------------------------------------ operators


def _negated(test: Test) -> Test:
    return lambda pairs, message: not test(pairs, message)


def _all(tests: list[Test]) -> Test:
    first, second, *rest = tests
    if not rest:
        return lambda pairs, message: first(pairs, message) and second(pairs, message)

    def holds(pairs: Pairs, message: Filterable) -> bool:
        for test in tests:  # noqa: SIM110 - a generator takes twice as long
            if not test(pairs, message):
                return False
        return True

    return holds


def _any(tests: list[Test]) -> Test:
    first, second, *rest = tests
    if not rest:
        return lambda pairs, message: first(pairs, message) or second(pairs, message)

    def holds(pairs: Pairs, message: Filterable) -> bool:
        for test in tests:  # noqa: SIM110
            if test(pairs, message):
                return True
        return False

    return holds


# ------------------------------------------------------------------ conditions


def _exists(field: Attribute | Payload) -> Test:
    if isinstance(field, Payload):
        path = field.path
        return lambda _pairs, message: at_path(message.payload, path) is not MISSING
    key = field.key

    def holds(pairs: Pairs, _message: Filterable) -> bool:
        for name, _value in pairs:  # noqa: SIM110
            if name == key:
                return True
        return False

    return holds


def _has_prefix(field: Attribute | Payload | Topic, prefix: str, mount_point: bytes) -> Test:
    if isinstance(field, Topic):
        beginning = _mounted(prefix, mount_point)
        return lambda _pairs, message: message.topic.startswith(beginning)
    if isinstance(field, Payload):
        path = field.path

        def is_prefix(_pairs: Pairs, message: Filterable) -> bool:
            value = at_path(message.payload, path)
            return type(value) is str and value.startswith(prefix)

        return is_prefix
    key = field.key

    def holds(pairs: Pairs, _message: Filterable) -> bool:
        for name, value in pairs:  # noqa: SIM110
            if name == key and value.startswith(prefix):
                return True
        return False

    return holds


def _compared(node: Comparison, mount_point: bytes) -> Test:
    if node.operator == "!=":
        return _negated(_compared(Comparison(node.field, "=", node.value, node.start, node.end), mount_point))
    field, value = node.field, node.value
    if isinstance(field, Payload):
        return _payload_compared(field.path, node.operator, value)
    if isinstance(value, str):
        if isinstance(field, Attribute):
            pair = (field.key, value)
            return lambda pairs, _message: pair in pairs
        topic = _mounted(value, mount_point)
        return lambda _pairs, message: message.topic == topic
    if isinstance(value, bool):
        return lambda _pairs, message: message.retain is value
    assert value is not None, "only a payload is compared with null"
    limit, order = value, _ORDER[node.operator]
    if isinstance(field, Attribute):
        return _number_compared(field.key, order, limit)
    return lambda _pairs, message: order(message.qos, limit)


def _mounted(topic: str, mount_point: bytes) -> bytes:
    """A topic name or prefix with the mount point, except for `$SYS`, which is the same for all clients."""
    return topic.encode() if topic.startswith("$") else mount_point + topic.encode()


def _number_compared(key: str, order: Callable[[int | float, int | float], bool], limit: int | float) -> Test:
    is_number = _NUMBER.fullmatch

    def holds(pairs: Pairs, _message: Filterable) -> bool:
        for name, value in pairs:  # noqa: SIM110
            if name == key and is_number(value) and order(number(value), limit):
                return True
        return False

    return holds


def _payload_compared(path: tuple[str | int, ...], sign: str, wanted: Value) -> Test:
    if wanted is None or isinstance(wanted, bool):
        return lambda _pairs, message: at_path(message.payload, path) is wanted
    if isinstance(wanted, str):

        def is_text(_pairs: Pairs, message: Filterable) -> bool:
            value = at_path(message.payload, path)
            return type(value) is str and value == wanted

        return is_text
    limit, order = wanted, _ORDER[sign]

    def holds(_pairs: Pairs, message: Filterable) -> bool:
        value = at_path(message.payload, path)
        return (type(value) is int or type(value) is float) and order(value, limit)

    return holds
