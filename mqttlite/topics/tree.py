"""The subscriptions, by topic filter: which of them match a topic name (5.0 §4.7).

Filters without wildcards are in one flat dictionary, so that they cost a look-up and no nodes; only filters with
wildcards make a tree. Most nodes hold one value and lead to one other node, and have a dictionary for neither.
Invariant: no node is empty. A match costs the nodes it reaches, not what else is subscribed.
"""

from typing import Final, Generic, TypeVar, final

from mqttlite.topics.names import has_wildcard

V = TypeVar("V")

SHARED_BYTES: Final = 64
"""Longer levels are nobody's habit, and are not kept for others."""

LEVELS_SHARED: Final = 10_000
"""Different levels of which all nodes share one copy: names of sites and measurements come again and again. Device
numbers may not, and when there are as many as that the sharing begins anew."""


@final
class Several(Generic[V]):
    """What stands where one filter has more than one value: they are kept in their order."""

    __slots__ = ("values",)

    def __init__(self, first: V, second: V) -> None:
        self.values: Final[dict[V, None]] = {first: None, second: None}


@final
class Node(Generic[V]):
    """One level of a filter with wildcards."""

    __slots__ = ("below", "child", "children", "here", "level", "plus")

    def __init__(self) -> None:
        self.level: bytes | None = None
        """The only level that goes on from here, unless `children` has several."""
        self.child: Node[V] | None = None
        self.children: dict[bytes, Node[V]] | None = None
        self.plus: Node[V] | None = None
        self.here: V | Several[V] | None = None
        self.below: V | Several[V] | None = None

    def is_empty(self) -> bool:
        return (
            self.child is None
            and self.children is None
            and self.plus is None
            and self.here is None
            and self.below is None
        )

    def get(self, level: bytes) -> "Node[V] | None":
        """Where a literal level leads."""
        if self.children is not None:
            return self.children.get(level)
        return self.child if self.level == level else None

    def put(self, level: bytes, child: "Node[V]") -> None:
        if self.children is not None:
            self.children[level] = child
        elif self.child is None or self.level is None:
            self.level, self.child = level, child
        else:
            self.children = {self.level: self.child, level: child}
            self.level = self.child = None

    def discard(self, level: bytes) -> None:
        if self.children is None:
            self.level = self.child = None
            return
        del self.children[level]
        if not self.children:
            self.children = None


@final
class SubscriptionTree(Generic[V]):
    """A set of (topic filter, value); values are compared by identity or their own equality, and hashable."""

    __slots__ = ("_exact", "_levels", "_root", "_several", "_wild", "steps")

    def __init__(self) -> None:
        self._exact: dict[bytes, V] = {}
        self._several: dict[bytes, dict[V, None]] = {}
        self._root: Final[Node[V]] = Node()
        self._levels: Final[dict[bytes, bytes]] = {}
        self._wild = 0
        self.steps = 0
        """How many levels of filters the latest match went through."""

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
        """The values whose filters match a valid topic name, those of several matching filters once for each."""
        found: list[V] = []
        self.steps = 0
        if topic in self._exact:
            found.append(self._exact[topic])
        elif topic in self._several:
            found.extend(self._several[topic])
        if self._wild:
            levels = topic.split(b"/")
            if topic.startswith(b"$"):  # leading wildcards do not see "$…" [MQTT-4.7.2-1]
                first = self._root.get(levels[0])
                if first is not None:
                    self._walk(first, levels, 1, found)
            else:
                self._walk(self._root, levels, 0, found)
        return found

    def _walk(self, node: Node[V], levels: list[bytes], at: int, found: list[V]) -> None:
        """Gather what matches from a node on, which stands before `levels[at]`."""
        end = len(levels)
        while at < end:
            self.steps += 1
            if node.below is not None:
                _gather(node.below, found)
            step = node.plus
            child = node.get(levels[at])
            at += 1
            if child is None:
                if step is None:
                    return
                child = step
            elif step is not None:
                self._walk(step, levels, at, found)
            node = child
        if node.here is not None:
            _gather(node.here, found)
        if node.below is not None:  # "sport/#" also matches "sport" (§4.7.1.2)
            _gather(node.below, found)

    def _add_wild(self, topic_filter: bytes, value: V) -> None:
        node = self._root
        levels = topic_filter.split(b"/")
        for level in levels:
            if level == b"#":
                break
            if level == b"+":
                if node.plus is None:
                    node.plus = Node()
                node = node.plus
            else:
                child = node.get(level)
                if child is None:
                    child = Node()
                    node.put(self._shared(level), child)
                node = child
        if levels[-1] == b"#":
            self._wild += not _holds(node.below, value)
            node.below = _with(node.below, value)
        else:
            self._wild += not _holds(node.here, value)
            node.here = _with(node.here, value)

    def _shared(self, level: bytes) -> bytes:
        if len(level) > SHARED_BYTES:
            return level
        if len(self._levels) >= LEVELS_SHARED:
            self._levels.clear()
        return self._levels.setdefault(level, level)

    def _remove_wild(self, topic_filter: bytes, value: V) -> None:
        levels = topic_filter.split(b"/")
        below = levels[-1] == b"#"
        if below:
            levels.pop()
        path = [self._root]
        for level in levels:
            node = path[-1]
            child = node.plus if level == b"+" else node.get(level)
            if child is None:
                raise KeyError(topic_filter)
            path.append(child)
        last = path[-1]
        if below:
            last.below = _without(last.below, value)
        else:
            last.here = _without(last.here, value)
        self._wild -= 1
        self._prune(path, levels)

    def _prune(self, path: list[Node[V]], levels: list[bytes]) -> None:
        """Take away the nodes that a removal left empty, from the leaf upwards."""
        for depth in range(len(levels) - 1, -1, -1):
            if not path[depth + 1].is_empty():
                return
            if levels[depth] == b"+":
                path[depth].plus = None
            else:
                path[depth].discard(levels[depth])


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
    """What is left. Raises `KeyError` when the value is not there."""
    if not isinstance(held, Several):
        if held is None or held != value:
            raise KeyError(value)
        return None
    del held.values[value]
    return held if len(held.values) > 1 else next(iter(held.values))
