"""A tree of the rules of one ACL section, by the levels of their topic filters. Finds the rules that match a topic or
overlap a filter.

`rules` interprets the matches. Levels with `%u` or `%c` stay templates and are filled in at look-up, so one tree serves
all clients. Invariant: the cost of a look-up depends on the levels of the topic and the matching branches, not on the
number of rules.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final

from mqttlite.security.acl_file import DENY, READ, WRITE, Rule

_PATTERN: Final = re.compile(rb"%[uc]")


class Names(NamedTuple):
    """The values of `%u` and `%c`; None: levels with it match nothing."""

    username: bytes | None = None
    client_id: bytes | None = None


class Found(NamedTuple):
    """The lines of the first matching rules, by kind; 0: none."""

    deny: int
    read: int
    write: int


NOTHING: Final = Found(0, 0, 0)
NOBODY: Final = Names()


@final
class Node:
    """A place where filters branch or end. The numbers are lines of rules that end here; `…_below` is for rules with
    `#` after it."""

    __slots__ = (
        "children",
        "deny",
        "deny_below",
        "ends_here",
        "has_below",
        "plus",
        "read",
        "read_below",
        "templates",
        "write",
        "write_below",
    )

    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.templates: dict[bytes, Node] | None = None
        """Children by levels that contain `%u` or `%c`."""
        self.ends_here: bool = False
        """Whether one of the numbers without `…_below` is set; `has_below` is for the others."""
        self.has_below: bool = False
        self.deny: int = 0
        self.read: int = 0
        self.write: int = 0
        self.deny_below: int = 0
        self.read_below: int = 0
        self.write_below: int = 0


@final
class RuleTree:
    """With `has_names`, `%u` and `%c` are patterns; otherwise they are ordinary levels."""

    __slots__ = ("_has_names", "_root", "depth")

    def __init__(self, rules: Iterable[Rule], *, has_names: bool = False) -> None:
        self._has_names: Final = has_names
        self._root: Final = Node()
        self.depth: int = 0
        """The most levels of a filter."""
        for rule in rules:
            self.add(rule)

    def nodes(self) -> list[Node]:
        """All nodes, parents first."""
        found = [self._root]
        for node in found:  # the list grows meanwhile
            for below in (node.children, node.templates):
                if below is not None:
                    found += below.values()
            if node.plus is not None:
                found.append(node.plus)
        return found

    def add(self, rule: Rule) -> None:
        """Add a rule. An earlier rule with the same filter keeps its line."""
        levels = rule.topic_filter.split(b"/")
        self.depth = max(self.depth, len(levels))
        is_below = levels[-1] == b"#"
        if is_below:
            levels.pop()
        node = self._root
        for level in levels:
            if level == b"+":
                node.plus = after = node.plus or Node()
            elif self._has_names and (b"%u" in level or b"%c" in level):
                if node.templates is None:
                    node.templates = {}
                after = node.templates.setdefault(level, Node())
            else:
                if node.children is None:
                    node.children = {}
                found = node.children.get(level)
                if found is None:
                    found = node.children[level] = Node()
                after = found
            node = after
        line = rule.line
        if is_below:
            node.has_below = True
        else:
            node.ends_here = True
        if rule.access == DENY:
            if is_below:
                node.deny_below = node.deny_below or line
            else:
                node.deny = node.deny or line
        if rule.access & READ:
            if is_below:
                node.read_below = node.read_below or line
            else:
                node.read = node.read or line
        if rule.access & WRITE:
            if is_below:
                node.write_below = node.write_below or line
            else:
                node.write = node.write or line

    def find(self, levels: Sequence[bytes], names: Names = NOBODY) -> Found:
        """The rules that match a topic."""
        below: list[Node] = []
        nodes = [self._root]
        wildcards = not levels[0].startswith(b"$")  # [MQTT-4.7.2-1]
        for level in levels:
            step: list[Node] = []
            for node in nodes:
                if wildcards:
                    if node.has_below:
                        below.append(node)
                    if node.plus is not None:
                        step.append(node.plus)
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        step.append(child)
                if node.templates is not None:
                    step.extend(each for text, each in node.templates.items() if fill(text, names) == level)
            nodes = step
            wildcards = True
            if not nodes:
                break
        deny = read = write = 0
        for node in below + nodes:  # "sport/#" also matches "sport" (§4.7.1.2)
            if node.has_below:
                deny = _first(deny, node.deny_below)
                read = _first(read, node.read_below)
                write = _first(write, node.write_below)
        for node in nodes:
            if node.ends_here:
                deny = _first(deny, node.deny)
                read = _first(read, node.read)
                write = _first(write, node.write)
        return Found(deny, read, write)

    def overlaps(self, wanted: Sequence[bytes], names: Names = NOBODY) -> Iterator[list[bytes]]:
        """For each read rule that overlaps a filter: the filter of the common topics, in levels."""
        return _overlaps(self._root, wanted, 0, [], names)


def _overlaps(node: Node, wanted: Sequence[bytes], at: int, way: list[bytes], names: Names) -> Iterator[list[bytes]]:
    if at == len(wanted):
        if node.read or node.read_below:
            yield way
        return
    level = wanted[at]
    if level == b"#":
        yield from _all_reads(node, way, names)
        return
    wildcards = at > 0 or not level.startswith(b"$")
    if node.read_below and wildcards:
        yield [*way, *wanted[at:]]
    for each, child in _ways_on(node, names):
        if level == b"+":
            if at > 0 or not each.startswith(b"$"):
                yield from _overlaps(child, wanted, at + 1, [*way, each], names)
        elif each == level or (each == b"+" and wildcards):
            yield from _overlaps(child, wanted, at + 1, [*way, level], names)


def _all_reads(node: Node, way: list[bytes], names: Names) -> Iterator[list[bytes]]:
    """The filters of all read rules at a node and below it that `#` covers."""
    if node.read_below:
        yield [*way, b"#"]
    elif node.read:
        yield way
    for level, child in _ways_on(node, names):
        if way or not level.startswith(b"$"):
            yield from _all_reads(child, [*way, level], names)


def _ways_on(node: Node, names: Names) -> Iterator[tuple[bytes, Node]]:
    """The children of a node, by literal level or `+`."""
    if node.plus is not None:
        yield b"+", node.plus
    if node.children is not None:
        yield from node.children.items()
    if node.templates is not None:
        for text, child in node.templates.items():
            level = fill(text, names)
            if level is not None:
                yield level, child


def fill(template: bytes, names: Names) -> bytes | None:
    """A level with `%u` and `%c` replaced by the client's names; None if the client lacks the name."""
    username, client_id = names
    if (username is None and b"%u" in template) or (client_id is None and b"%c" in template):
        return None
    # One pass, so that `%c` inside a name is not replaced.
    return _PATTERN.sub(lambda found: (username if found[0] == b"%u" else client_id) or b"", template)


def _first(line: int, other: int) -> int:
    """The smaller of two line numbers, where 0 means none."""
    return min(line, other) if line and other else line or other
