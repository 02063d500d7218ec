"""The retained messages, by topic name (5.0 §3.3.1.3): one for a topic, found by filter.

pygtrie answers the prefix question: which names are below a filter's literal beginning. What hangs in it are shelves,
one for each of the first `SHELF_LEVELS` levels that a name goes through. A shelf with many names has them all in a flat
dictionary, for walking a trie takes microseconds for each; one with few has its own, and the shelves below have theirs.
So a search begins with a list that is quickly made, and goes through it as far as its caller wants at a time.
What a retained message is, and how many there may be, is the core's business.

Invariant: a search finds what was kept when it began and still is, however much later it gets there.
"""

from typing import Final, Generic, TypeVar, final

import pygtrie

from mqttlite.topics.names import has_wildcard, matches

V = TypeVar("V")

SHELF_LEVELS: Final = 8
"""Levels of a name that have shelves: each level makes a new name dearer, and few filters have more before a wildcard;
their shelf holds some names that are not looked for."""

MANY: Final = 100
FEW: Final = 50
"""Names on a shelf before it has a dictionary of all, and when it has none again: to walk the trie for so many takes a
fraction of a millisecond."""

EMPTY_PLACES: Final = 100
"""Places to keep for names that lost their value: most get another one at once, for that is how it is replaced."""


@final
class Place(Generic[V]):
    """Where the value of a topic is, until that topic is forgotten."""

    __slots__ = ("serial", "topic", "value")

    def __init__(self, topic: bytes) -> None:
        self.topic: Final = topic
        self.value: V | None = None
        self.serial = 0
        """Which of all values it is."""


@final
class Shelf(Generic[V]):
    """The names below one prefix."""

    __slots__ = ("all", "count", "here", "listed")

    def __init__(self) -> None:
        self.count = 0
        self.here: list[Place[V]] = []
        """Those that are on no shelf below this one, while they are few."""
        self.all: dict[bytes, Place[V]] | None = None
        """Those on the shelves below as well, where they are many."""
        self.listed: list[Place[V]] | None = None
        """The same for searches to share, until there is another name."""


@final
class Search(Generic[V]):
    """The values that a filter matches, as of when the search began, without those that are gone since."""

    __slots__ = ("_at", "_ending", "_leading", "_places", "_serial", "_topic_filter", "everything")

    def __init__(self, topic_filter: bytes, places: list[Place[V]], serial: int, everything: bool) -> None:
        self._topic_filter: Final = topic_filter
        self._places: Final = places
        self._serial: Final = serial
        self.everything: Final = everything
        """Whether all that is left will be found, unless it goes before."""
        self._ending: Final = b"" if topic_filter.endswith(b"#") else topic_filter[topic_filter.rfind(b"+") + 1 :]
        self._leading: Final = topic_filter[0] in b"+#"
        self._at = 0

    def __len__(self) -> int:
        """How many names are left to look at."""
        return len(self._places) - self._at

    def end(self) -> None:
        """Find nothing more."""
        self._at = len(self._places)

    def take(self, most: int) -> list[V]:
        """What there is among the next `most` names."""
        found: list[V] = []
        start = self._at
        self._at = min(start + most, len(self._places))
        ending = self._ending
        for at in range(start, self._at):
            place = self._places[at]
            value = place.value
            if value is None or place.serial > self._serial:
                continue
            if self._leading and place.topic.startswith(b"$"):
                continue  # [MQTT-4.7.2-1]
            if self.everything or (place.topic.endswith(ending) and matches(self._topic_filter, place.topic)):
                found.append(value)
        return found


@final
class RetainedMessages(Generic[V]):
    """Topic name → value."""

    __slots__ = ("_empty", "_listed", "_places", "_serial", "_trie")

    def __init__(self) -> None:
        self._trie: Final = pygtrie.Trie()
        self._places: Final[dict[bytes, Place[V]]] = {}
        self._empty: Final[dict[bytes, None]] = {}
        self._listed: list[Place[V]] | None = None
        self._serial = 0

    def __len__(self) -> int:
        return len(self._places) - len(self._empty)

    def get(self, topic: bytes) -> V | None:
        place = self._places.get(topic)
        return None if place is None else place.value

    def put(self, topic: bytes, value: V) -> None:
        place = self._places.get(topic)
        if place is None:
            place = self._places[topic] = Place(topic)
            self._listed = None
            self._shelve(place)
        elif place.value is None:
            del self._empty[topic]
        self._serial += 1
        place.value, place.serial = value, self._serial

    def remove(self, topic: bytes) -> V | None:
        """Forget what is kept for a topic, and return it; nothing kept is harmless."""
        place = self._places.get(topic)
        if place is None or place.value is None:
            return None
        removed, place.value = place.value, None
        self._empty[topic] = None
        if len(self._empty) > EMPTY_PLACES:
            oldest = next(iter(self._empty))
            del self._empty[oldest]
            self._listed = None
            self._unshelve(self._places.pop(oldest))
        return removed

    def values(self) -> list[V]:
        return [place.value for place in self._places.values() if place.value is not None]

    def search(self, topic_filter: bytes) -> Search[V]:
        """A search for the values of all topics that a valid filter matches."""
        if not has_wildcard(topic_filter):
            exact = self._places.get(topic_filter)
            return Search(topic_filter, [] if exact is None else [exact], self._serial, True)
        levels = topic_filter.split(b"/")
        literal = 0
        while levels[literal] not in (b"+", b"#"):
            literal += 1
        if literal == 0:
            if self._listed is None:
                self._listed = list(self._places.values())
            return Search(topic_filter, self._listed, self._serial, topic_filter == b"#")
        places = self._below(levels[: min(literal, SHELF_LEVELS)])
        everything = levels[literal] == b"#" and literal <= SHELF_LEVELS  # else the shelf holds others too
        parent = self._places.get(topic_filter[:-2]) if everything else None
        if parent is not None:  # "sport/#" also matches "sport" (§4.7.1.2), which stands one shelf higher
            places = [parent, *places]
        return Search(topic_filter, places, self._serial, everything)

    def _below(self, prefix: list[bytes]) -> list[Place[V]]:
        shelf: Shelf[V] | None = self._trie.get(prefix)
        if shelf is None:
            return []
        if shelf.all is None:
            return self._gather(prefix)
        if shelf.listed is None:
            shelf.listed = list(shelf.all.values())
        return shelf.listed

    def _gather(self, prefix: list[bytes]) -> list[Place[V]]:
        """What is on a shelf with few names, and on those below."""
        shelves: list[Shelf[V]] = self._trie.values(prefix)
        return [place for shelf in shelves for place in shelf.here]

    def _shelve(self, place: Place[V]) -> None:
        levels = place.topic.split(b"/")[:-1][:SHELF_LEVELS]
        shelves: list[Shelf[V]] = [step.value for step in self._trie.prefixes(levels)]
        while len(shelves) < len(levels):
            shelf: Shelf[V] = Shelf()
            self._trie[levels[: len(shelves) + 1]] = shelf
            shelves.append(shelf)
        if shelves and shelves[-1].all is None:
            shelves[-1].here.append(place)
        for depth, shelf in enumerate(shelves):
            shelf.count += 1
            if shelf.all is not None:
                shelf.all[place.topic] = place
                shelf.listed = None
            elif shelf.count > MANY:
                shelf.all = {each.topic: each for each in self._gather(levels[: depth + 1])}
                shelf.here = []

    def _unshelve(self, place: Place[V]) -> None:
        levels = place.topic.split(b"/")[:-1][:SHELF_LEVELS]
        shelves: list[Shelf[V]] = [step.value for step in self._trie.prefixes(levels)]
        for depth in range(len(shelves) - 1, -1, -1):
            shelf = shelves[depth]
            shelf.count -= 1
            if shelf.all is not None:
                del shelf.all[place.topic]
                shelf.listed = None
                if shelf.count < FEW:
                    shelf.here = [each for each in shelf.all.values() if _is_last(each, depth + 1)]
                    shelf.all = None
            elif depth == len(shelves) - 1:
                shelf.here.remove(place)
            if shelf.count == 0:
                del self._trie[levels[: depth + 1]]


def _is_last(place: Place[V], depth: int) -> bool:
    """Whether a name has no shelf below that of so many levels."""
    return depth == SHELF_LEVELS or place.topic.count(b"/") == depth
