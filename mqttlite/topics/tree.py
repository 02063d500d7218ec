"""The subscription tree: finds the subscriptions whose filters match a topic name (5.0 §4.7).

Filters without wildcards are in one flat dictionary, without nodes. Filters with wildcards form a tree. A node is a
place where filters branch or end; the levels after the one that leads to it, up to the next branch, are its run. So a
filter takes about its own bytes and one or two nodes, however many levels it has.

Invariant: every node except the root holds a value or has two children. The cost of a match depends on the levels
compared, not on the number of subscriptions.
"""

from typing import Final, Generic, TypeVar, final

from mqttlite.topics.names import has_wildcard

V = TypeVar("V")

SPLIT_LEVELS: Final = 8
"""Runs of up to this many levels are lists, because splitting a run takes longer than comparing it. A list takes up to
50 bytes more for each level, so longer runs, which are rare, are one `bytes`."""

SHARED_BYTES: Final = 64
"""Longer levels and runs are rare and are not interned."""

LEVELS_SHARED: Final = 10_000
"""The most interned levels and runs: names of sites and measurements repeat. Device numbers may not, so the table is
cleared when it is full."""


@final
class Several(Generic[V]):
    """The values of a filter that has more than one, in the order in which they were added."""

    __slots__ = ("values",)

    def __init__(self, first: V, second: V) -> None:
        self.values: Final[dict[V, None]] = {first: None, second: None}


@final
class Node(Generic[V]):
    """A place where filters with wildcards branch or end. Most nodes have at most one child, and no dictionary."""

    __slots__ = ("below", "child", "children", "here", "level", "plus", "run")

    def __init__(self) -> None:
        self.run: list[bytes] | bytes | None = None
        """The levels, including `+`, to match after the level that leads here; None: no more. More than `SPLIT_LEVELS`
        are one `bytes`."""
        self.level: bytes | None = None
        """The only literal level with a child, unless `children` has several."""
        self.child: Node[V] | None = None
        self.children: dict[bytes, Node[V]] | None = None
        self.plus: Node[V] | None = None
        self.here: V | Several[V] | None = None
        """The values of filters that end here; `below` has those of filters that end with `#` after it."""
        self.below: V | Several[V] | None = None

    def get(self, level: bytes) -> "Node[V] | None":
        """The child for a literal level."""
        if self.children is not None:
            return self.children.get(level)
        return self.child if self.level == level else None

    def after(self, level: bytes) -> "Node[V] | None":
        """The child for a level of a filter, literal or `+`."""
        return self.plus if level == b"+" else self.get(level)

    def put(self, level: bytes, child: "Node[V]") -> None:
        """Set the child for a level of a filter, replacing an existing one."""
        if level == b"+":
            self.plus = child
        elif self.children is not None:
            self.children[level] = child
        elif self.level is None or self.child is None or self.level == level:
            self.level, self.child = level, child
        else:
            self.children = {self.level: self.child, level: child}
            self.level = self.child = None

    def discard(self, level: bytes) -> None:
        """Remove the child for a level."""
        if level == b"+":
            self.plus = None
        elif self.children is None:
            self.level = self.child = None
        else:
            del self.children[level]
            if len(self.children) == 1:
                self.level, self.child = self.children.popitem()
                self.children = None

    def holds_or_branches(self) -> bool:
        """Whether it holds a value or has several children."""
        return (
            self.here is not None
            or self.below is not None
            or self.children is not None
            or (self.child is not None and self.plus is not None)
        )


@final
class SharedLevels:
    """Interns up to `most` levels and as many runs, so that nodes share them."""

    __slots__ = ("_levels", "_most", "_runs")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._levels: Final[dict[bytes, bytes]] = {}
        self._runs: Final[dict[bytes, list[bytes]]] = {}

    def level(self, level: bytes) -> bytes:
        """The interned copy of a level."""
        if len(level) > SHARED_BYTES:
            return level
        known = self._levels.get(level)
        if known is None:
            if len(self._levels) >= self._most:
                self._levels.clear()
            known = self._levels[level] = level
        return known

    def run(self, levels: list[bytes]) -> list[bytes] | bytes | None:
        """The run for these levels in the form for nodes, interned. Must not be changed."""
        if not levels:
            return None
        run = levels[0] if len(levels) == 1 else b"/".join(levels)
        if len(levels) > SPLIT_LEVELS:
            return run
        if len(run) > SHARED_BYTES:
            return levels
        known = self._runs.get(run)
        if known is None:
            if len(self._runs) >= self._most:
                self._runs.clear()
            known = self._runs[run] = [self.level(level) for level in levels]
        return known


@final
class SubscriptionTree(Generic[V]):
    """A set of (topic filter, value). Values must be hashable."""

    __slots__ = ("_exact", "_root", "_several", "_shared", "_wild", "steps")

    def __init__(self) -> None:
        self._exact: dict[bytes, V] = {}
        self._several: dict[bytes, dict[V, None]] = {}
        self._root: Final[Node[V]] = Node()
        self._shared: Final = SharedLevels(LEVELS_SHARED)
        self._wild = 0
        self.steps: int = 0
        """How many levels the latest match compared."""

    def add(self, topic_filter: bytes, value: V) -> None:
        """Add a value under a valid filter; adding it twice is harmless."""
        if has_wildcard(topic_filter):
            self._add_wild(topic_filter, value)
        elif topic_filter in self._several:
            self._several[topic_filter][value] = None
        elif topic_filter not in self._exact:
            self._exact[topic_filter] = value
        elif self._exact[topic_filter] != value:
            self._several[topic_filter] = {self._exact.pop(topic_filter): None, value: None}

    def remove(self, topic_filter: bytes, value: V) -> None:
        """Remove a value that was added under that filter. Raises `KeyError` when it was not."""
        if has_wildcard(topic_filter):
            self._remove_wild(topic_filter, value)
        elif topic_filter in self._several:
            values = self._several[topic_filter]
            del values[value]
            if not values:
                del self._several[topic_filter]
        elif self._exact[topic_filter] == value:
            del self._exact[topic_filter]
        else:
            raise KeyError(topic_filter)

    def match(self, topic: bytes) -> list[V]:
        """The values whose filters match a valid topic name, once for each matching filter."""
        found: list[V] = []
        self.steps = 0
        if topic in self._exact:
            found.append(self._exact[topic])
        elif topic in self._several:
            found.extend(self._several[topic])
        if self._wild:
            levels = topic.split(b"/")
            if topic.startswith(b"$"):  # leading wildcards do not match "$…" [MQTT-4.7.2-1]
                first = self._root.get(levels[0])
                if first is not None:
                    self._walk(first, levels, 1, found)
            else:
                self._walk(self._root, levels, 0, found)
        return found

    def _walk(self, node: Node[V], levels: list[bytes], at: int, found: list[V]) -> None:
        """Collect the matching values from a node on. Its run begins at `levels[at]`."""
        start, end = at, len(levels)
        while True:
            run = node.run
            if run is not None:
                for level in run if isinstance(run, list) else run.split(b"/"):
                    if at == end or (level != levels[at] and level != b"+"):
                        self.steps += at - start + 1
                        return
                    at += 1
            if node.below is not None:  # "sport/#" also matches "sport" (§4.7.1.2)
                _gather(node.below, found)
            if at == end:
                if node.here is not None:
                    _gather(node.here, found)
                break
            plus = node.plus
            child = node.get(levels[at])
            at += 1
            if child is None:
                if plus is None:
                    break
                child = plus
            elif plus is not None:
                self._walk(plus, levels, at, found)
            node = child
        self.steps += at - start

    def _add_wild(self, topic_filter: bytes, value: V) -> None:
        levels = topic_filter.split(b"/")
        below = levels[-1] == b"#"
        if below:
            levels.pop()
        node = self._node_for(levels)
        if below:
            self._wild += not _holds(node.below, value)
            node.below = _with(node.below, value)
        else:
            self._wild += not _holds(node.here, value)
            node.here = _with(node.here, value)

    def _node_for(self, levels: list[bytes]) -> Node[V]:
        """The node where these levels end. It is created if missing."""
        node = self._root
        at, end = 0, len(levels)
        while at < end:
            level = levels[at]
            child = node.after(level)
            at += 1
            if child is None:
                child = Node()
                child.run = self._shared.run(levels[at:])
                node.put(self._shared.level(level), child)
                return child
            if child.run is not None:
                run = _levels_of(child)
                same = 0
                while same < len(run) and at < end and run[same] == levels[at]:
                    same += 1
                    at += 1
                if same < len(run):
                    upper: Node[V] = Node()
                    upper.run = self._shared.run(run[:same])
                    upper.put(self._shared.level(run[same]), child)
                    child.run = self._shared.run(run[same + 1 :])
                    node.put(level, upper)
                    child = upper
            node = child
        return node

    def _remove_wild(self, topic_filter: bytes, value: V) -> None:
        levels = topic_filter.split(b"/")
        below = levels[-1] == b"#"
        if below:
            levels.pop()
        node = parent = above = self._root
        way = way_above = b""
        at = 0
        while at < len(levels):
            child = node.after(levels[at])
            if child is None:
                raise KeyError(topic_filter)
            above, way_above, parent, way, node = parent, way, node, levels[at], child
            at += 1
            if node.run is not None:
                run = _levels_of(node)
                if levels[at : at + len(run)] != run:
                    raise KeyError(topic_filter)
                at += len(run)
        if below:
            node.below = _without(node.below, value)
        else:
            node.here = _without(node.here, value)
        self._wild -= 1
        if node is not self._root:
            self._compact(parent, way, node)
            if parent is not self._root:
                self._compact(above, way_above, parent)

    def _compact(self, above: Node[V], way: bytes, node: Node[V]) -> None:
        """Remove a node that neither holds a value nor branches. Its only child, if any, gets both runs."""
        if node.holds_or_branches():
            return
        level, child = (node.level, node.child) if node.plus is None else (b"+", node.plus)
        if level is None or child is None:
            above.discard(way)
            return
        child.run = self._shared.run([*_levels_of(node), level, *_levels_of(child)])
        above.put(way, child)


def _levels_of(node: Node[V]) -> list[bytes]:
    """The levels of a node's run."""
    if isinstance(node.run, bytes):
        return node.run.split(b"/")
    return node.run or []


def _gather(held: V | Several[V], found: list[V]) -> None:
    if isinstance(held, Several):
        found.extend(held.values)
    else:
        found.append(held)


def _holds(held: V | Several[V] | None, value: V) -> bool:
    if isinstance(held, Several):
        return value in held.values
    return held is not None and held == value


def _with(held: V | Several[V] | None, value: V) -> V | Several[V]:
    if held is None or held == value:
        return value
    if not isinstance(held, Several):
        return Several(held, value)
    held.values[value] = None
    return held


def _without(held: V | Several[V] | None, value: V) -> V | Several[V] | None:
    """The values without this one. Raises `KeyError` if it is missing."""
    if not isinstance(held, Several):
        if held is None or held != value:
            raise KeyError(value)
        return None
    del held.values[value]
    return held if len(held.values) > 1 else next(iter(held.values))
