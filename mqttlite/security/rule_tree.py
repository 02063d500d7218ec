"""A tree of rules, by the levels of their topic filters. Finds the rules that match a topic, cover a filter or overlap
one.

The sections of an ACL file, topic policies and the roles of dynamic security are such trees; `rules`, `topic_policies`
and `dynamic_security.rules` interpret the matches. Levels with `%u` or `%c` stay templates and are filled in at
look-up, so one tree serves all clients. Invariant: the cost of a look-up depends on the levels of the topic and the
matching branches, not on the number of rules.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final

DENY: Final = 0
READ: Final = 1
WRITE: Final = 2

_PATTERN: Final = re.compile(rb"%[uc]")


class Rule(NamedTuple):
    """What its source says about the topics of a filter. `line` is its place there, from 1 on: of several rules that
    match, the first is found. `access` is `DENY` or the sum of `READ` and `WRITE`."""

    line: int
    access: int
    topic_filter: bytes


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
    """`is_template` returns whether `%u` and `%c` in a level stand for names; without it they are ordinary levels."""

    __slots__ = ("_is_template", "_root", "depth")

    def __init__(self, rules: Iterable[Rule] = (), *, is_template: Callable[[bytes], bool] | None = None) -> None:
        self._is_template: Final = is_template
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
            elif self._is_template is not None and self._is_template(level):
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
        return self._find(levels, names, are_topics_longer=False)

    def find_covering(self, wanted: Sequence[bytes], names: Names = NOBODY) -> Found:
        """The rules that match every topic that a filter matches."""
        if wanted[-1] == b"#":
            return self._find(wanted[:-1], names, are_topics_longer=True)
        return self._find(wanted, names, are_topics_longer=False)

    def _find(self, levels: Sequence[bytes], names: Names, *, are_topics_longer: bool) -> Found:
        """With `are_topics_longer`, any levels may follow these."""
        below: list[Node] = []
        nodes = [self._root]
        wildcards = not levels or not levels[0].startswith(b"$")  # [MQTT-4.7.2-1]
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
                    for text, each in node.templates.items():
                        if fill(text, names) == level and (wildcards or text.startswith(b"$")):
                            step.append(each)
            nodes = step
            wildcards = True
            if not nodes:
                break
        deny = read = write = 0
        for node in below + nodes:  # "sport/#" also matches "sport" (§4.7.1.2)
            if node.has_below:
                deny = first(deny, node.deny_below)
                read = first(read, node.read_below)
                write = first(write, node.write_below)
        for node in () if are_topics_longer else nodes:
            if node.ends_here:
                deny = first(deny, node.deny)
                read = first(read, node.read)
                write = first(write, node.write)
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


def first(line: int, other: int) -> int:
    """The smaller of two line numbers, where 0 means none."""
    return min(line, other) if line and other else line or other
