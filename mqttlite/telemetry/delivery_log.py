"""The delivery log: the outcomes of the latest traced messages, for each receiver.

`tracing` measures times, and `answers` answers questions. Invariant: it holds at most `entries` outcomes and
`max_bytes`; the oldest are dropped first.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from mqttlite.telemetry.tracing import DeliveryOutcome, Traced
from mqttlite.telemetry.wall import Wall
from mqttlite.topics.names import check_filter, has_wildcard, matches
from mqttlite.wire.errors import TopicFilterInvalid

ENTRY_BYTES: Final = 900
"""The measured memory of an outcome without its names."""

_MESSAGE_ID: Final = re.compile(r"[0-9]{16,17}")
"""The microseconds since 1970 have 16 digits until the year 2286."""


class DeliveryLogOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages the delivery log knows, and how many."""

    topics: tuple[str, ...] = ()
    """Topic filters: every message of these topics is traced, which costs time for each message."""
    clients: tuple[str, ...] = ()
    """Client identifiers: every message from them and to them is traced."""
    sampled: bool = True
    """Whether sampled messages are included. If false, without topics and clients, only traces at run time are."""
    entries: int = 10_000
    """The most entries: messages, counted once for each receiver."""
    max_bytes: int = 16 * 1_048_576
    """The most memory for the entries."""

    def __post_init__(self) -> None:
        for number, topic_filter in enumerate(self.topics):
            try:
                check_filter(topic_filter.encode())
            except TopicFilterInvalid as error:
                raise ValueError(f"topics[{number}]: {error}") from None
        for name in ("entries", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: 1 at least")


class DeliveryLog:
    """`clock` shows the broker's seconds."""

    def __init__(self, options: DeliveryLogOptions, wall: Wall, *, clock: Callable[[], float]) -> None:
        self.options: Final = options
        self.has_forgotten: bool = False
        """Whether entries have left it."""
        self.latest: int = 0
        """The trace of the latest message."""
        self.followed: frozenset[bytes] = frozenset()
        """Filters traced at run time, in addition to those of the options."""
        self.followed_clients: frozenset[str] = frozenset()
        """Clients traced at run time."""
        self._wall: Final = wall
        self._began: Final = clock()
        self._filters: Final = [topic_filter.encode() for topic_filter in options.topics]
        self._clients: Final = frozenset(options.clients)
        self._deliveries: Final[deque[DeliveryOutcome]] = deque()
        self._by_topic: Final[dict[bytes, deque[DeliveryOutcome]]] = {}
        self._by_trace: Final[dict[int, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def size_bytes(self) -> int:
        """About how much memory the entries take."""
        return self._bytes

    def traces_topic(self, topic: bytes) -> bool:
        return any(matches(topic_filter, topic) for topic_filter in (*self._filters, *self.followed))

    def traces_client(self, client_id: str) -> bool:
        return client_id in self._clients or client_id in self.followed_clients

    def enter(self, delivery: DeliveryOutcome) -> None:
        """Add the outcome of a message for a receiver. It may change until the delivery ends."""
        message = delivery.message
        if not message.is_chosen and not self.options.sampled and not self._traces_receiver(delivery):
            return
        self._deliveries.append(delivery)
        self._by_topic.setdefault(message.topic, deque()).append(delivery)
        self._by_trace[message.trace] = self._by_trace.get(message.trace, 0) + 1
        self.latest = max(self.latest, message.trace)
        self._bytes += _size(delivery)
        while len(self._deliveries) > self.options.entries or self._bytes > self.options.max_bytes:
            self._forget_oldest()

    def _traces_receiver(self, delivery: DeliveryOutcome) -> bool:
        return delivery.receiver is not None and self.traces_client(delivery.receiver)

    # ------------------------------------------------------------------ look-up

    def find(self, target: str) -> tuple[list[Traced], str]:
        """The messages for an id, a topic or a filter, oldest first; and a sentence if there are none."""
        trace = int(target) if is_message_id(target) else None
        if trace is not None and trace in self._by_trace:
            return messages_of(each for each in self._deliveries if each.message.trace == trace), ""
        topic = target.encode(errors="replace")
        try:
            check_filter(topic)
        except TopicFilterInvalid as error:
            return [], f"{target!r} is neither a message id nor a topic: {error}."
        if has_wildcard(topic):
            found = messages_of(each for each in self._deliveries if matches(topic, each.message.topic))
        else:
            found = messages_of(self._by_topic.get(topic, ()))
        if found or trace is None:
            return found, f"Nothing is known of any message on {target}."
        came = datetime.fromtimestamp(trace / 1e6, UTC)
        return [], (
            f"A message {target} came at {came:%Y-%m-%d %H:%M:%S} UTC, if there was one: it was not traced, or is no "
            f"longer in the delivery log, which goes back to {self.since():%H:%M:%S}."
        )

    def of_client(self, client: str) -> list[Traced]:
        """The messages from and to a client, oldest first."""
        return messages_of(each for each in self._deliveries if client in (each.receiver, each.message.publisher))

    def after(self, trace: int) -> list[Traced]:
        """The messages after a trace, oldest first."""
        found = messages_of(each for each in self._deliveries if each.message.trace > trace)
        return sorted(found, key=lambda message: message.trace)

    def since(self) -> datetime:
        """The time of the oldest entry; for an empty log, of its beginning."""
        oldest = self._deliveries[0].message.at if self.has_forgotten and self._deliveries else self._began
        return self._wall.at(oldest)

    # ------------------------------------------------------------------ inside

    def _forget_oldest(self) -> None:
        delivery = self._deliveries.popleft()
        self.has_forgotten = True
        self._bytes -= _size(delivery)
        message = delivery.message
        of_topic = self._by_topic[message.topic]
        of_topic.popleft()
        if not of_topic:
            del self._by_topic[message.topic]
        self._by_trace[message.trace] -= 1
        if not self._by_trace[message.trace]:
            del self._by_trace[message.trace]


def is_message_id(target: str) -> bool:
    """Whether a target has the form of a message's id."""
    return _MESSAGE_ID.fullmatch(target) is not None


def messages_of(deliveries: Iterable[DeliveryOutcome]) -> list[Traced]:
    """The messages of some deliveries, each once."""
    return list(dict.fromkeys(delivery.message for delivery in deliveries))


def _size(delivery: DeliveryOutcome) -> int:
    return ENTRY_BYTES + len(delivery.message.topic) + len(delivery.receiver or "")
