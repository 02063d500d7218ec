"""A filter: a compiled expression that is evaluated for messages."""

from dataclasses import dataclass
from typing import Final, final

from mqttlite.filters.conditions import compiled, value_of
from mqttlite.filters.message import Filterable
from mqttlite.filters.nodes import All, Any, Attribute, Node, Not, Payload, fields_of


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A part of an expression with its result. A condition has no parts, but the value that it found."""

    text: str
    result: bool
    found: object = None
    parts: tuple["Evaluated", ...] = ()


@final
class Filter:
    """Raises `FilterError` for an invalid expression. May be used in several threads.

    For a client below a mount point, topic names in it are relative to the mount point.
    """

    __slots__ = ("__weakref__", "_mount_point", "_root", "_test", "expression", "reads_payload")

    def __init__(self, expression: str, mount_point: bytes = b"") -> None:
        from mqttlite.filters.build import parse  # imported here: programs without filters do not need lark

        self._root: Final = parse(expression)
        self._test: Final = compiled(self._root, mount_point)
        self._mount_point: Final = mount_point
        self.expression: Final = expression
        self.reads_payload: Final = any(isinstance(each, Payload) for each in fields_of(self._root))
        """Whether the result may depend on the payload."""

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"

    def matches(self, message: Filterable) -> bool:
        return self._test(message.properties.user_properties, message)

    def explain(self, message: Filterable) -> Evaluated:
        """Each part with its result, also parts that `matches` does not evaluate."""
        return self._explain(self._root, message)

    def _explain(self, node: Node, message: Filterable) -> Evaluated:
        text = self.expression[node.start : node.end]
        if isinstance(node, Not):
            part = self._explain(node.part, message)
            return Evaluated(text, not part.result, parts=(part,))
        if isinstance(node, All | Any):
            parts = tuple([self._explain(part, message) for part in node.parts])
            results = [part.result for part in parts]
            return Evaluated(text, all(results) if isinstance(node, All) else any(results), parts=parts)
        result = compiled(node, self._mount_point)(message.properties.user_properties, message)
        found = value_of(node.field, message)
        if isinstance(node.field, Attribute) and isinstance(found, list) and len(found) == 1:
            found = found[0]
        return Evaluated(text, result, found)
