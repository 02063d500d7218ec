"""What is published, counted by topic: a counter that a route carries, and the table of them.

Invariants: there are `max_topics` counters of single topics at most, and as many of what lies below a first level; all
that finds no room is counted under `#`. Whatever is counted is counted in one of them, and harvested once.
"""

from typing import Final, final

EVERYTHING_ELSE: Final = b"#"


@final
class TopicTraffic:
    """Since the last harvest."""

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
        """The harvest that takes it. Once that is over nothing may be counted here any more."""
        self.topics = 1
        """How many were counted here, about."""
        self.messages_qos0 = 0
        self.messages_qos1 = 0
        self.messages_qos2 = 0
        self.payload_bytes = 0
        self.payload_bytes_max = 0
        self.deliveries = 0

    def count(self, qos: int, messages: int, payload_bytes: int, receivers: int) -> None:
        """Messages of one QoS were published, each with so many bytes of payload and for so many sessions."""
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
    """Counters by name. Those that were used until the last harvest keep their places until the next."""

    __slots__ = ("_former", "_kept", "_most", "counters")

    def __init__(self, most: int) -> None:
        self.counters: dict[bytes, TopicTraffic] = {}
        self._former: dict[bytes, TopicTraffic] = {}
        self._kept = 0  # places of `_former` that nobody has claimed yet
        self._most: Final = most

    def add(self, name: bytes, drain: int) -> TopicTraffic | None:
        """A counter for a name that has none; None where all places are taken."""
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
    """The counters that are in use. A collection takes all of them at once. A route that still has one sees by its
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
        self.drains = 0
        """How many there were: the counters in use have this number."""

    def of(self, topic: bytes) -> TopicTraffic:
        """The counter for a topic until the next harvest, or of the filter that it finds room under."""
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
        """What was counted since the last time. Nothing more is counted there: the counters are the caller's.

        Not for the caller alone: their names keep their places until the next harvest.
        """
        self.drains += 1
        return [counter for table in (self._topics, self._levels, self._rest) for counter in table.take().values()]
