"""Counts published messages by topic: a counter that a route carries, and the table of the counters.

Invariants: there are `max_topics` counters of single topics at most, and as many of what lies below a first level; all
that finds no room is counted under `#`. Each message is counted in one of them, and each counter is drained once.
"""

from typing import Final, final

EVERYTHING_ELSE: Final = b"#"


@final
class TopicTraffic:
    """The messages and bytes that were published to a topic since the last drain."""

    __slots__ = (
        "deliveries",
        "drain",
        "messages_qos0",
        "messages_qos1",
        "messages_qos2",
        "payload_bytes",
        "payload_bytes_max",
        "topic",
        "topics",
    )

    def __init__(self, topic: bytes, drain: int) -> None:
        self.topic: Final = topic
        """A topic, or a filter that stands for many."""
        self.drain: Final = drain
        """The number of the drain that takes it; after that drain nothing may be counted here."""
        self.topics: int = 1
        """How many were counted here, about."""
        self.messages_qos0: int = 0
        self.messages_qos1: int = 0
        self.messages_qos2: int = 0
        self.payload_bytes: int = 0
        self.payload_bytes_max: int = 0
        self.deliveries: int = 0

    def count(self, qos: int, messages: int, payload_bytes: int, receivers: int) -> None:
        """Messages of one QoS were published, each with `payload_bytes` and for `receivers` sessions."""
        if qos == 0:
            self.messages_qos0 += messages
        elif qos == 1:
            self.messages_qos1 += messages
        else:
            self.messages_qos2 += messages
        if payload_bytes > self.payload_bytes_max:
            self.payload_bytes_max = payload_bytes
        if messages > 1:
            payload_bytes *= messages
            receivers *= messages
        self.payload_bytes += payload_bytes
        self.deliveries += receivers


@final
class _Table:
    """Counters by name. Names that were used before the last drain keep their entries until the next."""

    __slots__ = ("_former", "_kept", "_most", "counters")

    def __init__(self, most: int) -> None:
        self.counters: dict[bytes, TopicTraffic] = {}
        self._former: dict[bytes, TopicTraffic] = {}
        self._kept = 0  # entries of `_former` that are not in use again
        self._most: Final = most

    def add(self, name: bytes, drain: int) -> TopicTraffic | None:
        """A counter for a name that has none; None where the table is full."""
        if name in self._former:
            self._kept -= 1
        elif len(self.counters) + self._kept >= self._most:
            return None
        counter = self.counters[name] = TopicTraffic(name, drain)
        return counter

    def take(self) -> dict[bytes, TopicTraffic]:
        """All counters; it goes on without any."""
        self._former = self.counters
        self._kept = len(self._former)
        self.counters = {}
        return self._former


@final
class Traffic:
    """The counters that are in use. A drain takes all of them at once. A route that still has one sees by its
    `drain` that it must ask for another, so the counters of topics without messages go by themselves.
    """

    __slots__ = ("_levels", "_rest", "_topics", "drains")

    def __init__(self, max_topics: int) -> None:
        """Raises `ValueError` for a number below 1."""
        if max_topics < 1:
            raise ValueError(f"max_topics is {max_topics}: 1 at least")
        self._topics: Final = _Table(max_topics)
        self._levels: Final = _Table(max_topics)
        self._rest: Final = _Table(1)
        self.drains: int = 0
        """How many there were: the counters in use have this number."""

    def of(self, topic: bytes) -> TopicTraffic:
        """The counter for a topic until the next drain; where its table is full, that of a filter above it."""
        drain = self.drains
        counter = self._topics.counters.get(topic) or self._topics.add(topic, drain)
        if counter is not None:
            return counter
        level = topic[: topic.find(b"/")] + b"/#" if b"/" in topic else topic + b"/#"
        for table, name in ((self._levels, level), (self._rest, EVERYTHING_ELSE)):
            counter = table.counters.get(name)
            if counter is not None:
                counter.topics += 1  # a route that is made anew asks anew: hence about
                return counter
            counter = table.add(name, drain)
            if counter is not None:
                return counter
        raise AssertionError("there is always room for all the rest")

    def drain(self) -> list[TopicTraffic]:
        """The counters since the last drain; they are the caller's now, and count nothing more.

        Their names keep their entries in the tables until the next drain.
        """
        self.drains += 1
        return [counter for table in (self._topics, self._levels, self._rest) for counter in table.take().values()]
