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
        "is_literal",
        "plus",
        "read",
        "read_below",
        "templates",
        "way",
        "write",
        "write_below",
    )

    def __init__(self) -> None:
        self.way: tuple[bytes, ...] = ()
        """The levels that lead here from the one under which the parent has it. Nothing branches or ends between
        them."""
        self.is_literal: bool = True
        """Whether all levels of `way` stand for themselves."""
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
    """`is_template` returns whether `%u` and `%c` in a level stand for names; without it they are ordinary levels.

    Invariant: a rule adds at most two nodes, whatever the levels of its filter.
    """

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
        node = self._node_of(levels)
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

    def _node_of(self, levels: Sequence[bytes]) -> Node:
        """The node where a filter ends; made if there is none."""
        node, at = self._root, 0
        while at < len(levels):
            level = levels[at]
            at += 1
            after = self._child(node, level)
            if after is None:
                after = Node()
                self._lead(after, levels[at:])
                self._attach(node, level, after)
                return after
            same = _same_levels(after.way, levels, at)
            if same < len(after.way):  # another filter branches or ends on the way
                between, way = Node(), after.way
                self._lead(between, way[:same])
                self._attach(node, level, between)
                self._lead(after, way[same + 1 :])
                self._attach(between, way[same], after)
                after = between
            node = after
            at += same
        return node

    def _child(self, node: Node, level: bytes) -> Node | None:
        if level == b"+":
            return node.plus
        children = node.templates if self._stands_for_names(level) else node.children
        return None if children is None else children.get(level)

    def _attach(self, node: Node, level: bytes, child: Node) -> None:
        if level == b"+":
            node.plus = child
        elif self._stands_for_names(level):
            if node.templates is None:
                node.templates = {}
            node.templates[level] = child
        else:
            if node.children is None:
                node.children = {}
            node.children[level] = child

    def _lead(self, node: Node, way: Sequence[bytes]) -> None:
        node.way = tuple(way)
        node.is_literal = b"+" not in way and (self._is_template is None or not any(map(self._is_template, way)))

    def _stands_for_names(self, level: bytes) -> bool:
        return self._is_template is not None and self._is_template(level)

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
        end = len(levels)
        deny = read = write = 0
        stack = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            if node.way:
                before, at = at, at + len(node.way)
                if at > end or not self._leads(node, levels[before:at], names):
                    continue
            wildcards = at > 0 or not levels or not levels[0].startswith(b"$")  # [MQTT-4.7.2-1]
            if node.has_below and wildcards:  # "sport/#" also matches "sport" (§4.7.1.2)
                deny = first(deny, node.deny_below)
                read = first(read, node.read_below)
                write = first(write, node.write_below)
            if at == end:
                if node.ends_here and not are_topics_longer:
                    deny = first(deny, node.deny)
                    read = first(read, node.read)
                    write = first(write, node.write)
                continue
            level = levels[at]
            at += 1
            if wildcards and node.plus is not None:
                stack.append((node.plus, at))
            if node.children is not None:
                child = node.children.get(level)
                if child is not None:
                    stack.append((child, at))
            if node.templates is not None:
                for text, each in node.templates.items():
                    if fill(text, names) == level and (wildcards or text.startswith(b"$")):
                        stack.append((each, at))
        return Found(deny, read, write)

    def _leads(self, node: Node, levels: Sequence[bytes], names: Names) -> bool:
        """Whether these levels of a topic match the way to a node."""
        if node.is_literal:
            return node.way == tuple(levels)
        return all(
            text in (b"+", level) if not self._stands_for_names(text) else fill(text, names) == level
            for text, level in zip(node.way, levels, strict=True)
        )

    def overlaps(self, wanted: Sequence[bytes], names: Names = NOBODY) -> Iterator[list[bytes]]:
        """For each read rule that overlaps a filter: the filter of the common topics, in levels."""
        return self._overlaps(self._root, wanted, 0, [], names)

    def _overlaps(
        self, node: Node, wanted: Sequence[bytes], at: int, way: list[bytes], names: Names
    ) -> Iterator[list[bytes]]:
        lead = self._filled(node, names)
        if lead is None:
            return
        way = [*way]
        for passed, each in enumerate(lead):
            if at == len(wanted):
                return
            level = wanted[at]
            if level == b"#":
                yield from self._all_reads(node, [*way, *lead[passed:]], names)
                return
            if level != b"+" and each not in (b"+", level):
                return
            way.append(each if level == b"+" else level)
            at += 1
        if at == len(wanted):
            if node.read or node.read_below:
                yield way
            return
        level = wanted[at]
        if level == b"#":
            yield from self._all_reads(node, way, names)
            return
        wildcards = at > 0 or not level.startswith(b"$")
        if node.read_below and wildcards:
            yield [*way, *wanted[at:]]
        for each, child in _ways_on(node, names):
            if level == b"+":
                if at > 0 or not each.startswith(b"$"):
                    yield from self._overlaps(child, wanted, at + 1, [*way, each], names)
            elif each == level or (each == b"+" and wildcards):
                yield from self._overlaps(child, wanted, at + 1, [*way, level], names)

    def _all_reads(self, node: Node, way: list[bytes], names: Names) -> Iterator[list[bytes]]:
        """The filters of all read rules at a node and below it that `#` covers."""
        if node.read_below:
            yield [*way, b"#"]
        elif node.read:
            yield way
        for level, child in _ways_on(node, names):
            lead = self._filled(child, names)
            if lead is not None and (way or not level.startswith(b"$")):
                yield from self._all_reads(child, [*way, level, *lead], names)

    def _filled(self, node: Node, names: Names) -> Sequence[bytes] | None:
        """The way to a node with the client's names; None if the client lacks one."""
        if node.is_literal:
            return node.way
        found: list[bytes] = []
        for text in node.way:
            level = fill(text, names) if self._stands_for_names(text) else text
            if level is None:
                return None
            found.append(level)
        return found


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


def _same_levels(way: Sequence[bytes], levels: Sequence[bytes], at: int) -> int:
    """How many levels at the beginning of `way` are those of a filter from `at` on."""
    same = 0
    while same < len(way) and at + same < len(levels) and way[same] == levels[at + same]:
        same += 1
    return same


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
