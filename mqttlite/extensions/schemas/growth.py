"""How much work a JSON Schema makes of a payload: alternatives that are inside themselves multiply with each level.

With `anyOf: [and, or, text]`, where `and` and `or` have operands of the same kind, a library looks at each operand
twice, at those in it four times, and so on: a few hundred bytes take minutes and gigabytes. Invariant: what is counted
is not less than what is looked at, as if nothing were cut short.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

MAX_IN_PLACE: Final = 10_000
"""Schemas that one schema applies to one value; more come from definitions that name each other many times."""

MAX_LOOKS: Final = 65_536
"""Of a payload whose schema multiplies: some 30 ms."""

MAX_MATCHES: Final = 500_000
"""Of a payload: its keys and texts, and its bytes by the hundred, times what the patterns weigh that are tried on each;
about 50 ms."""

BYTES_PER_MATCH: Final = 100

BACKTRACKING_WEIGHT: Final = 100
"""What a pattern weighs that is not matched in one pass: with look-around or a back-reference."""

_BACKTRACKS: Final = re.compile(r"\(\?[=!<>]|\\[1-9k]")

_UNKNOWN: Final = 4
"""The growth that is assumed of a schema with a reference by another way than a JSON Pointer."""

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_DICTS: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_PROPERTY: Final = "."
_ITEM: Final = "["
_OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
_OTHER_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")

Inside: TypeAlias = dict[str, list[Any]]
"""The schemas for the values inside, by property (`.name`) and place (`[0`). Those for all others are `.` and `[`."""


class Growth:
    """`in_place` is how many schemas apply to one value at most, and `factor` how many times more with each level of it
    that is inside itself; 1: no more. `patterns` is what the regular expressions weigh that are tried on one key or
    text at most. Raises `RecursionError` for a schema whose references lead too deeply."""

    def __init__(self, tree: Any) -> None:
        self._tree: Final = tree
        self._is_known = True
        self._counts: Final[dict[int, int]] = {}
        self._insides: Final[dict[int, Inside]] = {}
        self._weights: Final[dict[int, int]] = {}
        self.factor: int = 1
        self.patterns: int = 0
        nodes = self._applied()
        self.in_place: Final = max(self._count(node) for node in nodes.values())
        if self.in_place > MAX_IN_PLACE:
            return
        self.patterns = max(self._weight(node) for node in nodes.values())
        recursive = _in_cycles(
            {number: {id(each) for each in chain(*self._inside(node).values())} for number, node in nodes.items()}
        )
        for node in nodes.values():
            for found in self._inside(node).values():
                self.factor = max(self.factor, sum(id(each) in recursive for each in found))
        if not self._is_known:
            self.factor = max(self.factor, _UNKNOWN)

    def _applied(self) -> dict[int, Any]:
        """All schemas in the tree that are applied to anything, by their ids."""
        found: dict[int, Any] = {}
        waiting = [self._tree]
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                waiting.extend(self._here(node))
                waiting.extend(chain(*self._directly_inside(node).values()))
        return found

    def _here(self, node: Any) -> Iterator[Any]:
        """The schemas that a schema applies to the same value."""
        if not isinstance(node, dict):
            return
        for key in _REFERENCES:
            if isinstance(node.get(key), str):
                target = self._target(node[key])
                if target is None:
                    self._is_known = False
                else:
                    yield target
        for key in _LISTS:
            if isinstance(node.get(key), list):
                yield from node[key]
        for key in _SINGLE:
            if key in node:
                yield node[key]
        for key in _DICTS:
            if isinstance(node.get(key), dict):
                yield from node[key].values()

    def _target(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return None
        found = self._tree
        for step in unquote(reference).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
                found = found[int(step[:9])]
            else:
                return None
        return found

    def _count(self, node: Any) -> int:
        """How many schemas a schema applies to a value, itself among them. What leads back to it is counted once."""
        known = self._counts.get(id(node))
        if known is None:
            self._counts[id(node)] = 1
            known = min(1 + sum(self._count(each) for each in self._here(node)), MAX_IN_PLACE + 1)
            self._counts[id(node)] = known
        return known

    def _weight(self, node: Any) -> int:
        """What the regular expressions weigh that a schema, and those at its place, try on a value or its keys."""
        known = self._weights.get(id(node))
        if known is None:
            self._weights[id(node)] = 0
            known = sum(self._weight(each) for each in self._here(node))
            if isinstance(node, dict):
                patterns = [node.get("pattern")]
                if isinstance(node.get("patternProperties"), dict):
                    patterns += node["patternProperties"]
                known += sum(_pattern_weight(each) for each in patterns if isinstance(each, str))
                known += self._weight(node.get("propertyNames"))
            self._weights[id(node)] = known
        return known

    def _inside(self, node: Any) -> Inside:
        """What a schema, and those at its place, apply to the values inside."""
        known = self._insides.get(id(node))
        if known is not None:
            return known
        self._insides[id(node)] = {}
        parts = [self._directly_inside(node), *(self._inside(each) for each in self._here(node))]
        parts = [each for each in parts if each]
        found: Inside = parts[0] if len(parts) == 1 else {}
        if len(parts) > 1:
            for name in dict.fromkeys(chain(*parts)):
                found[name] = list(chain(*(each.get(name, each.get(name[0], ())) for each in parts)))
        self._insides[id(node)] = found
        return found

    def _directly_inside(self, node: Any) -> Inside:
        if not isinstance(node, dict):
            return {}
        patterns = node.get("patternProperties")
        matched = list(patterns.values()) if isinstance(patterns, dict) else []
        found = {_PROPERTY: matched + [node[key] for key in _OTHER_PROPERTIES if key in node]}
        if isinstance(node.get("properties"), dict):
            found |= {f"{_PROPERTY}{name}": [each, *matched] for name, each in node["properties"].items()}
        found[_ITEM] = [node[key] for key in _OTHER_ITEMS if key in node and not isinstance(node[key], list)]
        for key in ("items", "prefixItems"):
            if isinstance(node.get(key), list):
                found |= {f"{_ITEM}{place}": [each] for place, each in enumerate(node[key])}
        return {name: [self._meant(each) for each in schemas] for name, schemas in found.items() if schemas}

    def _meant(self, node: Any) -> Any:
        """The schema that a node names which is nothing but a reference; other nodes are their own."""
        if isinstance(node, dict) and len(node) == 1 and isinstance(node.get("$ref"), str):
            target = self._target(node["$ref"])
            return node if target is None else target
        return node


def _pattern_weight(pattern: str) -> int:
    return BACKTRACKING_WEIGHT if _BACKTRACKS.search(pattern) else 1


def texts(value: Any) -> int:
    """How many keys and texts a payload has."""
    total = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            total += 1
        elif isinstance(each, dict):
            total += len(each)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return total


def looks(value: Any, factor: int) -> int:
    """How many times the values of a payload are looked at where a schema multiplies: an upper bound, counted up
    to a bit more than `MAX_LOOKS`."""
    total, weight = 0, 1
    level = [value]
    while level and total <= MAX_LOOKS:
        total += weight * len(level)
        weight *= factor
        level = [
            each
            for outer in level
            if isinstance(outer, dict | list)
            for each in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return total


def _in_cycles(inside: dict[int, set[int]]) -> set[int]:
    """The schemas that are inside themselves, and those between two of these."""
    found = set(inside)
    outside: dict[int, set[int]] = {number: set() for number in inside}
    for number, targets in inside.items():
        for each in targets:
            outside[each].add(number)
    for edges, back in ((inside, outside), (outside, inside)):
        left = {number: len(edges[number] & found) for number in found}
        ends = [number for number, count in left.items() if not count]
        while ends:
            end = ends.pop()
            found.discard(end)
            for each in back[end] & found:
                left[each] -= 1
                if not left[each]:
                    ends.append(each)
    return found
