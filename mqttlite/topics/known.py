"""The topic names that a cache knows, by their levels: which of them a filter may match, without asking all of them.

A filter is answered by the rarest of its literal levels: `devices/+/alarm` by the names whose third level is `alarm`,
of which there may be none among any number of devices. A level that too many names have in one place is not worth a
list, and only remembered as such. Names are added once and forgotten together, which keeps the lists plain.
Invariant: `candidates` leaves out no name that the filter matches.
"""

from typing import Final, final


@final
class KnownTopics:
    """Names by level; lists are kept of up to `most` names."""

    __slots__ = ("_all", "_levels", "_most")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._all: list[bytes] | None = []
        # For each place in a name, which names have a level there: one, several, or too many.
        self._levels: list[dict[bytes, bytes | list[bytes] | None]] = []

    def add(self, topic: bytes) -> None:
        """Take in a valid name that is not known yet."""
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
        """The known names that a valid filter may match; None where that may be more than are listed."""
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
