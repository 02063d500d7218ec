"""The delivery log: the outcomes of the messages that were traced last, for each receiver, and the answer to *why*.

Nothing is timed here, see `tracing`; nothing is worded, see `why`. Invariant: it holds `entries` outcomes and
`max_bytes` at most; the oldest leave first, and an answer says how far back it goes.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from mqttlite.telemetry.tracing import UNFINISHED, DeliveryOutcome, Traced
from mqttlite.telemetry.wall import Wall
from mqttlite.telemetry.why import REASONS, clock, delivery_in_words, head
from mqttlite.topics.names import check_filter, has_wildcard, matches
from mqttlite.wire.errors import TopicFilterInvalid

ENTRY_BYTES: Final = 900
"""What an outcome takes in memory beside the names in it, measured."""

MAX_ANSWERED: Final = 20
"""Messages in one answer, the latest: more than a person reads."""

MAX_RECEIVERS: Final = 20
"""Receivers of each of them."""

SHORT_ID: Final = 4
"""Digits of the broker's id with which it names messages: enough to tell one run from the one before."""

_MESSAGE_ID: Final = re.compile(r"([0-9a-f]{4,16})-([0-9]{1,19})")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages the delivery log knows, and how many."""

    topics: tuple[str, ...] = ()
    """Filters: every message of these topics is traced, which costs time for each of them."""
    clients: tuple[str, ...] = ()
    """Client identifiers: every message from them and to them is traced."""
    sampled: bool = True
    """Whether sampled messages are entered as well."""
    entries: int = 10_000
    """Messages, counted once for each receiver."""
    max_bytes: int = 16 * 1_048_576

    def __post_init__(self) -> None:
        for number, topic_filter in enumerate(self.topics):
            try:
                check_filter(topic_filter.encode())
            except TopicFilterInvalid as error:
                raise ValueError(f"topics[{number}]: {error}") from None
        if not self.topics and not self.clients and not self.sampled:
            raise ValueError("topics and clients are empty and sampled is false: there would be nothing to enter")
        for name in ("entries", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: 1 at least")


class DeliveryLog:
    """One message in `mean_distance()` is sampled."""

    def __init__(
        self,
        options: Options,
        broker_id: str,
        wall: Wall,
        *,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
        mean_distance: Callable[[], float],
    ) -> None:
        self.options: Final = options
        self._broker_id: Final = broker_id
        self._wall: Final = wall
        self._clock: Final = clock
        self._stopwatch: Final = stopwatch
        self._mean_distance: Final = mean_distance
        self._began: Final = clock()
        self._filters: Final = [topic_filter.encode() for topic_filter in options.topics]
        self._clients: Final = frozenset(options.clients)
        self._deliveries: Final[deque[DeliveryOutcome]] = deque()
        self._by_topic: Final[dict[bytes, deque[DeliveryOutcome]]] = {}
        self._by_trace: Final[dict[int, int]] = {}
        self._bytes = 0
        self._latest = 0
        self._forgot = False

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def size_bytes(self) -> int:
        """What its entries take, about."""
        return self._bytes

    def traces_topic(self, topic: bytes) -> bool:
        return any(matches(topic_filter, topic) for topic_filter in self._filters)

    def traces_client(self, client_id: str) -> bool:
        return client_id in self._clients

    def enter(self, delivery: DeliveryOutcome) -> None:
        """Keep the outcome of a message for a receiver; it changes until the delivery ends."""
        message = delivery.message
        if not message.is_chosen and not self.options.sampled and delivery.receiver not in self._clients:
            return
        self._deliveries.append(delivery)
        self._by_topic.setdefault(message.topic, deque()).append(delivery)
        self._by_trace[message.trace] = self._by_trace.get(message.trace, 0) + 1
        self._latest = max(self._latest, message.trace)
        self._bytes += _size(delivery)
        while len(self._deliveries) > self.options.entries or self._bytes > self.options.max_bytes:
            self._forget_oldest()

    # ------------------------------------------------------------------ the answer

    def why(self, target: str, client: str | None = None) -> dict[str, Any]:
        """What became of a message, by its id, or of the latest ones of a topic or filter; ready for JSON.

        With a `client` only what became of them for it, or of those that it published. The answer has `sentences`, one
        for each message and receiver, and the same in `entries`; where nothing is known a sentence says why not, and
        what to configure.
        """
        found, about = self._find(target)
        if client is not None and found:
            of_client = [message for message in found if client in message.deliveries or message.publisher == client]
            if of_client:
                sentences = self._words(of_client, client)
            else:
                sentences = [self._not_for(message, client) for message in found[-MAX_ANSWERED:]]
            meant, found = of_client or found, of_client
        else:
            sentences = self._words(found, None)
            meant = found
        left_out = len(meant) - MAX_ANSWERED
        if left_out > 0:
            sentences.insert(0, f"The latest {MAX_ANSWERED} of {len(meant)} messages:")
        return {
            "target": target,
            "client": client,
            "known": bool(found),
            "sentences": sentences or [about, *self._advice(target, client)],
            "entries": [
                self._entry(delivery)
                for message in found[-MAX_ANSWERED:]
                for delivery in _deliveries_to(message, client)[:MAX_RECEIVERS]
            ],
            "traced": {
                "topics": list(self.options.topics),
                "clients": list(self.options.clients),
                "sampled": self.options.sampled,
                "one_in": self._one_in(),
            },
            "since": self._since().isoformat(),
        }

    def _find(self, target: str) -> tuple[list[Traced], str]:
        """The messages meant, oldest first; where there are none, a sentence about that."""
        named = _MESSAGE_ID.fullmatch(target)
        if named is not None:
            broker, trace = named[1], int(named[2])
            if self._broker_id.startswith(broker) and trace in self._by_trace:
                return _messages(delivery for delivery in self._deliveries if delivery.message.trace == trace), ""
        topic = target.encode(errors="replace")
        try:
            check_filter(topic)
        except TopicFilterInvalid as error:
            return [], f"{target!r} is neither a message id nor a topic: {error}."
        if has_wildcard(topic):
            found = _messages(delivery for delivery in self._deliveries if matches(topic, delivery.message.topic))
        else:
            found = _messages(self._by_topic.get(topic, ()))
        if found or named is None:
            return found, f"Nothing is known of any message on {target}."
        if not self._broker_id.startswith(named[1]):
            return [], f"{target} is no message of this run: its messages begin with {self._broker_id[:SHORT_ID]}-."
        if int(named[2]) > self._latest:
            return [], f"There is no message {target}: the latest that was entered is {self._id_of(self._latest)}."
        return [], f"Nothing is known of {target} any more, or it was not entered."

    def _words(self, messages: list[Traced], client: str | None) -> list[str]:
        now = self._stopwatch()
        sentences = []
        for message in messages[-MAX_ANSWERED:]:
            at = self._wall.at(message.at)
            began = head(message, self._id_of(message.trace), at)
            told = _deliveries_to(message, client)
            sentences += [f"{began}: {delivery_in_words(delivery, at, now)}" for delivery in told[:MAX_RECEIVERS]]
            if len(told) > MAX_RECEIVERS:
                sentences.append(f"{began}: and {len(told) - MAX_RECEIVERS} other receivers")
        return sentences

    def _not_for(self, message: Traced, client: str) -> str:
        receivers = [name for name in message.deliveries if name is not None]
        whom = ", ".join(receivers[:3]) + (f" and {len(receivers) - 3} others" if len(receivers) > 3 else "")
        began = head(message, self._id_of(message.trace), self._wall.at(message.at))
        return (
            f"{began}: was not for {client}, who had no subscription that matches, or is not the one its shared"
            f" subscription chose; it was for {whom or 'nobody'}"
        )

    def _advice(self, target: str, client: str | None) -> list[str]:
        """What is traced, how far back the delivery log goes, and what to configure."""
        chosen = []
        if self.options.topics:
            chosen.append(f"the topics {', '.join(self.options.topics)}")
        if self.options.clients:
            chosen.append(f"the messages from and to {', '.join(self.options.clients)}")
        if self.options.sampled:
            one_in = self._one_in()
            chosen.append("all others too while there are so few" if one_in == 1 else f"one in {one_in} of all others")
        said = [
            f"Traced are {'; '.join(chosen)}.",
            f"The delivery log goes back to {clock(self._since())}"
            + (
                f" and holds {len(self)} outcomes; [delivery_log] entries and max_bytes limit it."
                if self._forgot
                else "."
            ),
        ]
        topic = target.encode(errors="replace")
        is_topic = _MESSAGE_ID.fullmatch(target) is None and _is_filter(topic)
        if is_topic and not self.traces_topic(topic) and (client is None or not self.traces_client(client)):
            wanted = f"topics = [{msgspec.json.encode(target).decode()}]"
            if client is not None:
                wanted += f" or clients = [{msgspec.json.encode(client).decode()}]"
            said.append(f"To have every message of it traced, put {wanted} below [delivery_log] and start again.")
        return said

    # ------------------------------------------------------------------ inside

    def _entry(self, delivery: DeliveryOutcome) -> dict[str, Any]:
        message = delivery.message
        rule = REASONS.get(delivery.reason)
        waits = delivery.outcome == UNFINISHED and delivery.ended is None
        return {
            "message_id": self._id_of(message.trace),
            "at": self._wall.at(message.at).isoformat(),
            "topic": message.topic.decode(errors="replace"),
            "qos": message.qos,
            "publisher": message.publisher,
            "receiver": delivery.receiver,
            "outcome": "waiting" if waits else delivery.outcome,
            "reason": delivery.reason or (delivery.why if waits else "") or None,
            "detail": delivery.detail or None,
            "rule": rule.settings or None if rule is not None else None,
            "queued_s": _apart(delivery.queued, delivery.sent or delivery.ended),
            "written_s": _apart(message.received, delivery.written),
            "acknowledged_s": _apart(delivery.written, delivery.acknowledged),
        }

    def _one_in(self) -> int:
        return max(1, round(self._mean_distance()))

    def _since(self) -> datetime:
        """When the oldest entry came in; of an empty log, when it began."""
        return self._wall.at(self._deliveries[0].message.at if self._forgot and self._deliveries else self._began)

    def _id_of(self, trace: int) -> str:
        return f"{self._broker_id[:SHORT_ID]}-{trace}"

    def _forget_oldest(self) -> None:
        delivery = self._deliveries.popleft()
        self._forgot = True
        self._bytes -= _size(delivery)
        message = delivery.message
        of_topic = self._by_topic[message.topic]
        of_topic.popleft()
        if not of_topic:
            del self._by_topic[message.topic]
        self._by_trace[message.trace] -= 1
        if not self._by_trace[message.trace]:
            del self._by_trace[message.trace]


def _is_filter(topic: bytes) -> bool:
    try:
        check_filter(topic)
    except TopicFilterInvalid:
        return False
    return True


def _messages(deliveries: Iterable[DeliveryOutcome]) -> list[Traced]:
    return list(dict.fromkeys(delivery.message for delivery in deliveries))


def _deliveries_to(message: Traced, client: str | None) -> list[DeliveryOutcome]:
    """Those that a question for a client is about; all where it published the message itself."""
    deliveries = list(message.deliveries.values())
    if client is None or message.publisher == client:
        return deliveries
    return [delivery for delivery in deliveries if delivery.receiver == client]


def _apart(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 6)


def _size(delivery: DeliveryOutcome) -> int:
    return ENTRY_BYTES + len(delivery.message.topic) + len(delivery.receiver or "")
