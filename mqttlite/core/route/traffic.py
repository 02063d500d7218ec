"""Counts published messages by topic. A route holds its counter; a table holds all counters.

Invariants: at most `max_topics` counters are for single topics, and as many for all topics below a first level; topics
without a counter count under `#`. Each message is counted in exactly one counter, and each counter is drained once.
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
        """A topic, or a filter for many topics."""
        self.drain: Final = drain
        """The number of the drain that takes it. Nothing may be counted here after that drain."""
        self.topics: int = 1
        """About how many topics were counted here."""
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
    """Counters by name. Names in use before the last drain keep their entries until the next."""

    __slots__ = ("_former", "_kept", "_most", "counters")

    def __init__(self, most: int) -> None:
        self.counters: dict[bytes, TopicTraffic] = {}
        self._former: dict[bytes, TopicTraffic] = {}
        self._kept = 0  # entries of `_former` that are not in use again
        self._most: Final = most

    def add(self, name: bytes, drain: int) -> TopicTraffic | None:
        """A new counter for a name; None if the table is full."""
        if name in self._former:
            self._kept -= 1
        elif len(self.counters) + self._kept >= self._most:
            return None
        counter = self.counters[name] = TopicTraffic(name, drain)
        return counter

    def take(self) -> dict[bytes, TopicTraffic]:
        """Remove and return all counters."""
        self._former = self.counters
        self._kept = len(self._former)
        self.counters = {}
        return self._former


@final
class Traffic:
    """The counters in use. A drain takes all of them at once. A route that still holds a drained one sees from its
    `drain` number that it must ask for another, so counters of silent topics disappear by themselves.
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
        """How many drains there were. The counters in use have this number."""

    def of(self, topic: bytes) -> TopicTraffic:
        """The counter for a topic until the next drain. If the table is full, the counter of a filter above the
        topic."""
        drain = self.drains
        counter = self._topics.counters.get(topic) or self._topics.add(topic, drain)
        if counter is not None:
            return counter
        level = topic[: topic.find(b"/")] + b"/#" if b"/" in topic else topic + b"/#"
        for table, name in ((self._levels, level), (self._rest, EVERYTHING_ELSE)):
            counter = table.counters.get(name)
            if counter is not None:
                counter.topics += 1  # only "about": a route that is made again counts again
                return counter
            counter = table.add(name, drain)
            if counter is not None:
                return counter
        raise AssertionError("there is always room for all the rest")

    def drain(self) -> list[TopicTraffic]:
        """Take the counters since the last drain. They belong to the caller and count nothing more.

        Their names keep their entries in the tables until the next drain.
        """
        self.drains += 1
        return [counter for table in (self._topics, self._levels, self._rest) for counter in table.take().values()]
