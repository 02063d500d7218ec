"""The subscriptions, by topic filter: which of them match a topic name (5.0 §4.7).

Filters without wildcards are in one flat dictionary, so that they cost a look-up and no nodes; only filters with
wildcards make a tree. Invariant: no node is empty. A match costs the nodes it reaches, not what else is subscribed.
"""

from typing import Final, Generic, TypeVar, final

from mqttlite.topics.names import has_wildcard

V = TypeVar("V")

# Most filters have one holder: it stands by itself, and only several need a dictionary.


@final
class Node(Generic[V]):
    """One level of a filter with wildcards."""

    __slots__ = ("below", "children", "here", "plus")

    def __init__(self) -> None:
        self.children: dict[bytes, Node[V]] = {}
        self.plus: Node[V] | None = None
        self.here: dict[V, None] | None = None
        self.below: dict[V, None] | None = None

    def is_empty(self) -> bool:
        return not self.children and self.plus is None and self.here is None and self.below is None


@final
class SubscriptionTree(Generic[V]):
    """A set of (topic filter, value); values are compared by identity or their own equality, and hashable."""

    __slots__ = ("_exact", "_root", "_several", "_wild")

    def __init__(self) -> None:
        self._exact: dict[bytes, V] = {}
        self._several: dict[bytes, dict[V, None]] = {}
        self._root: Final[Node[V]] = Node()
        self._wild = 0

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
        if topic in self._exact:
            found.append(self._exact[topic])
        elif topic in self._several:
            found.extend(self._several[topic])
        if self._wild:
            self._match_wild(topic, found)
        return found

    def _match_wild(self, topic: bytes, found: list[V]) -> None:
        reached = [self._root]
        wildcards = not topic.startswith(b"$")  # leading wildcards do not see "$…" [MQTT-4.7.2-1]
        for level in topic.split(b"/"):
            step: list[Node[V]] = []
            for node in reached:
                if wildcards:
                    if node.below is not None:
                        found.extend(node.below)
                    if node.plus is not None:
                        step.append(node.plus)
                child = node.children.get(level)
                if child is not None:
                    step.append(child)
            if not step:
                return
            reached = step
            wildcards = True
        for node in reached:
            if node.here is not None:
                found.extend(node.here)
            if node.below is not None:  # "sport/#" also matches "sport" (§4.7.1.2)
                found.extend(node.below)

    def _add_wild(self, topic_filter: bytes, value: V) -> None:
        levels = topic_filter.split(b"/")
        node = self._root
        for level in levels:
            if level == b"#":
                break
            if level == b"+":
                if node.plus is None:
                    node.plus = Node()
                node = node.plus
            else:
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = Node()
                node = child
        if levels[-1] == b"#":
            if node.below is None:
                node.below = {}
            values = node.below
        else:
            if node.here is None:
                node.here = {}
            values = node.here
        if value not in values:
            values[value] = None
            self._wild += 1

    def _remove_wild(self, topic_filter: bytes, value: V) -> None:
        levels = topic_filter.split(b"/")
        if levels[-1] == b"#":
            levels.pop()
            below = True
        else:
            below = False
        path = [self._root]
        for level in levels:
            node = path[-1]
            child = node.plus if level == b"+" else node.children.get(level)
            if child is None:
                raise KeyError(topic_filter)
            path.append(child)
        last = path[-1]
        values = last.below if below else last.here
        if values is None:
            raise KeyError(topic_filter)
        del values[value]
        self._wild -= 1
        if not values:
            if below:
                last.below = None
            else:
                last.here = None
            self._prune(path, levels)

    def _prune(self, path: list[Node[V]], levels: list[bytes]) -> None:
        """Take away the nodes that a removal left empty, from the leaf upwards."""
        for depth in range(len(levels) - 1, -1, -1):
            if not path[depth + 1].is_empty():
                return
            if levels[depth] == b"+":
                path[depth].plus = None
            else:
                del path[depth].children[levels[depth]]
