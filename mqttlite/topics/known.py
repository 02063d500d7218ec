"""An index of the topic names in a cache, by level. It finds the names that a filter may match without comparing all.

It uses the rarest literal level of the filter: for `devices/+/alarm` the names whose third level is `alarm`, however
many devices there are. For a level that too many names share in one place, it keeps no list. Names are added once and
cleared together. Invariant: `candidates` leaves out no name that the filter matches.
"""

from typing import Final, final


@final
class KnownTopics:
    """Names by level, in lists of up to `most` names."""

    __slots__ = ("_all", "_levels", "_most")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._all: list[bytes] | None = []
        # For each position, the names with a given level there: one, several, or None for too many.
        self._levels: list[dict[bytes, bytes | list[bytes] | None]] = []

    def add(self, topic: bytes) -> None:
        """Add a valid name that is not in the index."""
        if self._all is not None:
            self._all = _with(self._all, topic, self._most)
        levels = self._levels
        for place, level in enumerate(topic.split(b"/")):
            if place == len(levels):
                levels.append({})
            names = levels[place]
            known = names.get(level, b"")
            if known is None:
                continue
            if isinstance(known, bytes):
                names[level] = [known, topic] if known else topic
            else:
                names[level] = _with(known, topic, self._most)

    def candidates(self, topic_filter: bytes) -> list[bytes] | None:
        """The names that a valid filter may match; None if there may be more than the lists hold."""
        rarest = self._all
        for place, level in enumerate(topic_filter.split(b"/")):
            if level == b"#":
                break
            if place == len(self._levels):
                return []
            if level != b"+":
                names = self._levels[place].get(level, b"")
                if isinstance(names, bytes):
                    return [names] if names else []
                if names is not None and (rarest is None or len(names) < len(rarest)):
                    rarest = names
        return rarest

    def clear(self) -> None:
        self._all = []
        self._levels.clear()


def _with(names: list[bytes], topic: bytes, most: int) -> list[bytes] | None:
    if len(names) >= most:
        return None
    names.append(topic)
    return names
