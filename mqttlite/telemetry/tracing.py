"""The traced messages, each with the outcome of its delivery to each receiver.

The core's reports about them arrive here, are timed, and go on to a `TraceListener`, which makes rows, histograms or
answers of them.
Invariants: there are `MAX_MESSAGES` and `MAX_DELIVERIES` at most, beyond which the oldest are evicted as unfinished; of
a
message that was evicted nothing more is recorded. A receiver that gets two copies, by itself and in a group, has one
outcome.
"""

from collections.abc import Callable
from typing import Final

from mqttlite.core.tracer import OFFLINE

MAX_MESSAGES: Final = 5_000
"""The most messages traced at the same time: those of 25 seconds without acknowledgements, some megabytes."""

MAX_DELIVERIES: Final = 20_000
"""The most receivers of all traced messages. A message for more is traced to only this many."""

SENT: Final = "sent"
ACKNOWLEDGED: Final = "acknowledged"
DROPPED: Final = "dropped"
UNFINISHED: Final = "unfinished"
RETURNED: Final = "returned"
"""The outcomes of a message for a receiver, by their names in the dataset, which has no row for `RETURNED`: that is an
attempt of a queue."""


class Traced:
    """A message. `at` is in the broker's seconds, `received` and `routed` in those of the stopwatch."""

    __slots__ = (
        "at",
        "deliveries",
        "is_chosen",
        "is_in_queue",
        "open",
        "payload_bytes",
        "publisher",
        "qos",
        "received",
        "receivers",
        "routed",
        "stands_for",
        "topic",
        "trace",
    )

    def __init__(
        self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None, at: float, received: float
    ) -> None:
        self.trace: Final = trace
        self.topic: Final = topic
        self.qos: Final = qos
        self.payload_bytes: Final = payload_bytes
        self.publisher: Final = publisher
        self.at: Final = at
        self.received: Final = received
        self.routed: float | None = None
        self.receivers: int = 0
        """How many it is for, once that is known."""
        self.deliveries: Final[dict[str | None, DeliveryOutcome]] = {}
        self.open: int = 0
        """How many of them have not ended."""
        self.is_in_queue: bool = False
        """A delivery queue (`$queue/<name>`) took it: until a consumer gets it, it waits there."""
        self.stands_for: int = 0
        """How many messages it stands for in the dataset; 0 if it is not for the dataset."""
        self.is_chosen: bool = False
        """Traced for its topic, its publisher or a receiver, and not by chance."""


class DeliveryOutcome:
    """The outcome of a message for a receiver (None: it had no receiver). Times are the stopwatch's."""

    __slots__ = (
        "acknowledged",
        "again",
        "cause",
        "connection",
        "detail",
        "end_cause",
        "ended",
        "is_away",
        "limit",
        "message",
        "outcome",
        "qos",
        "queued",
        "reason",
        "receiver",
        "sent",
        "waiting",
        "why",
        "written",
    )

    def __init__(self, message: Traced, receiver: str | None) -> None:
        self.message: Final = message
        self.receiver: Final = receiver
        self.qos: int = message.qos
        self.connection: int = 0
        self.queued: float | None = None
        self.why: str = ""
        """Why it waited: `offline`, `backpressure` or `window_full`; empty where it did not."""
        self.waiting: int = 0
        self.limit: int = 0
        self.sent: float | None = None
        self.written: float | None = None
        self.acknowledged: float | None = None
        self.again: int = 0
        """How often it was sent again."""
        self.is_away: bool = False
        """Whether the receiver disconnected without acknowledging it, and is not back."""
        self.ended: float | None = None
        self.outcome: str = UNFINISHED
        self.reason: str = ""
        self.detail: str = ""
        self.cause: str = ""
        """The state of the receiver when the message had to wait, in words."""
        self.end_cause: str = ""
        """The state of the receiver when the message was dropped, in words."""


class TraceListener:
    """Gets the progress of traced messages; the default methods do nothing. Times are the stopwatch's."""

    def on_stage(self, message: Traced, stage: str, qos: int, seconds: float) -> None:
        """A message has passed a stage, for one of its receivers; `route` for all of them."""

    def on_delivery(self, delivery: DeliveryOutcome) -> None:
        """The first report about a message and a receiver."""

    def on_end(self, delivery: DeliveryOutcome) -> None:
        """The outcome is final."""


class MessageTracer:
    """The table of traced messages. `stopwatch` shows seconds; `receiver_state` describes a receiver in words."""

    def __init__(
        self, listener: TraceListener, stopwatch: Callable[[], float], receiver_state: Callable[[str, str], str]
    ) -> None:
        self._listener: Final = listener
        self._stopwatch: Final = stopwatch
        self._receiver_state: Final = receiver_state
        self._messages: Final[dict[int, Traced]] = {}
        self._deliveries = 0
        self._unwritten: Final[dict[int, dict[DeliveryOutcome, None]]] = {}
        self._unacknowledged: Final[dict[DeliveryOutcome, None]] = {}
        self._waits_for: Final[dict[str, dict[DeliveryOutcome, None]]] = {}
        self.evicted: int = 0
        """Receivers whose outcome is unknown because too many messages were traced."""

    def __len__(self) -> int:
        return len(self._messages)

    def oldest_unacknowledged_s(self) -> float:
        """The age of the oldest message that was written to a socket and not acknowledged; 0.0 if there is none."""
        for delivery in self._unacknowledged:
            assert delivery.written is not None
            return self._stopwatch() - delivery.written
        return 0.0

    def unacknowledged_since(self, receiver: str) -> float | None:
        """When the oldest message that a receiver has not acknowledged was handed to its socket."""
        for delivery in self._waits_for.get(receiver, ()):
            return delivery.written
        return None

    # ------------------------------------------------------------------ reports of the core

    def begin(self, message: Traced) -> None:
        self._messages[message.trace] = message
        while len(self._messages) > MAX_MESSAGES:
            self._evict_oldest()

    def on_routed(self, trace: int, receivers: int) -> None:
        message = self._messages.get(trace)
        if message is None:
            return
        message.routed = self._stopwatch()
        message.receivers = receivers
        self._listener.on_stage(message, "route", message.qos, message.routed - message.received)
        self._forget_if_over(message)

    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None:
        delivery = self._delivery(trace, receiver)
        if delivery is None:
            return
        if receiver.startswith("$queue/"):
            delivery.message.is_in_queue = True
        if delivery.sent is not None and why == OFFLINE:
            delivery.is_away = True  # its client went and left it unacknowledged
        elif delivery.sent is not None or delivery.queued is not None:
            self._copied(delivery)
        else:
            delivery.why, delivery.waiting, delivery.limit = why, waiting, limit
            delivery.queued = self._stopwatch()
            delivery.cause = self._receiver_state(receiver, why)

    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None:
        delivery = self._delivery(trace, receiver)
        if delivery is None:
            return
        if delivery.sent is not None:
            if delivery.connection == connection:
                self._copied(delivery)
            else:
                delivery.connection = connection
                delivery.is_away = False
                delivery.again += 1
            return
        message = delivery.message
        now = self._stopwatch()
        routed = message.received if message.routed is None else message.routed
        delivery.qos, delivery.connection = qos, connection
        delivery.sent = routed if delivery.queued is None and not message.is_in_queue else now
        self._listener.on_stage(message, "queue", qos, delivery.sent - routed)
        self._unwritten.setdefault(connection, {})[delivery] = None

    def on_written(self, connection: int) -> None:
        """The messages sent to a connection were written to its socket."""
        deliveries = self._unwritten.pop(connection, None)
        if deliveries is None:
            return
        now = self._stopwatch()
        for delivery in deliveries:
            assert delivery.sent is not None
            delivery.written = now
            message = delivery.message
            self._listener.on_stage(message, "write", delivery.qos, now - delivery.sent)
            self._listener.on_stage(message, "total", delivery.qos, now - message.received)
            if delivery.qos == 0:
                self._end(delivery, SENT, now)
            else:
                assert delivery.receiver is not None
                self._unacknowledged[delivery] = None
                self._waits_for.setdefault(delivery.receiver, {})[delivery] = None

    def on_acknowledged(self, trace: int, receiver: str) -> None:
        message = self._messages.get(trace)
        delivery = None if message is None else message.deliveries.get(receiver)
        if delivery is None or delivery.ended is not None:  # absent: a PUBACK of an attempt that is over
            return
        now = self._stopwatch()
        delivery.acknowledged = now
        if delivery.written is not None:
            self._listener.on_stage(delivery.message, "acknowledge", delivery.qos, now - delivery.written)
        self._end(delivery, ACKNOWLEDGED, now)

    def on_dropped(self, trace: int, receiver: str | None, reason: str, detail: str) -> None:
        delivery = self._delivery(trace, receiver)
        if delivery is None or delivery.ended is not None:
            return
        delivery.reason, delivery.detail = reason, detail
        if receiver is not None:
            delivery.end_cause = self._receiver_state(receiver, reason)
        self._end(delivery, DROPPED, self._stopwatch())

    def on_returned(self, trace: int, receiver: str, detail: str) -> None:
        """An attempt to deliver a message of a queue is over. Another one to the same receiver is a new delivery."""
        message = self._messages.get(trace)
        delivery = None if message is None else message.deliveries.pop(receiver, None)
        if message is None or delivery is None:
            return
        self._deliveries -= 1
        if delivery.ended is None:
            delivery.detail = detail
            self._close(delivery, RETURNED, self._stopwatch())

    def on_gone(self, connection: int) -> None:
        """A connection ended: messages not yet written to its socket never will be."""
        for delivery in self._unwritten.pop(connection, ()):
            if delivery.qos == 0:
                self._end(delivery, UNFINISHED, self._stopwatch())

    def end_some(self, messages: int) -> bool:
        """After the core's last report: evict this many messages. Return whether there are more."""
        for _ in range(min(messages, len(self._messages))):
            self._evict_oldest()
        return bool(self._messages)

    # ------------------------------------------------------------------ inside

    def _delivery(self, trace: int, receiver: str | None) -> DeliveryOutcome | None:
        """The outcome of a message for a receiver; None if the message is no longer traced."""
        message = self._messages.get(trace)
        if message is None:
            return None
        delivery = message.deliveries.get(receiver)
        if delivery is not None:
            return delivery
        while self._deliveries >= MAX_DELIVERIES and next(iter(self._messages)) != trace:
            self._evict_oldest()
        if self._deliveries >= MAX_DELIVERIES:
            return None
        delivery = message.deliveries[receiver] = DeliveryOutcome(message, receiver)
        message.open += 1
        self._deliveries += 1
        self._listener.on_delivery(delivery)
        return delivery

    def _copied(self, delivery: DeliveryOutcome) -> None:
        """A receiver gets the message once more: the second copy is not traced."""
        message = delivery.message
        message.receivers -= 1
        self._forget_if_over(message)

    def _end(self, delivery: DeliveryOutcome, outcome: str, now: float) -> None:
        self._close(delivery, outcome, now)
        self._listener.on_end(delivery)
        self._forget_if_over(delivery.message)

    def _close(self, delivery: DeliveryOutcome, outcome: str, now: float) -> None:
        delivery.outcome, delivery.ended = outcome, now
        unwritten = self._unwritten.get(delivery.connection)
        if unwritten is not None and unwritten.pop(delivery, delivery) is None and not unwritten:
            del self._unwritten[delivery.connection]
        if delivery in self._unacknowledged:
            del self._unacknowledged[delivery]
            assert delivery.receiver is not None
            waits = self._waits_for[delivery.receiver]
            del waits[delivery]
            if not waits:
                del self._waits_for[delivery.receiver]
        delivery.message.open -= 1

    def _forget_if_over(self, message: Traced) -> None:
        """A message without receivers has one outcome all the same."""
        if message.open == 0 and (
            None in message.deliveries
            or (message.routed is not None and 0 < message.receivers <= len(message.deliveries))
        ):
            self._forget(message)

    def _forget(self, message: Traced) -> None:
        if self._messages.pop(message.trace, None) is not None:
            self._deliveries -= len(message.deliveries)

    def _evict_oldest(self) -> None:
        trace = next(iter(self._messages))
        message = self._messages[trace]
        if not message.deliveries:
            self._delivery(trace, None)
        self.evicted += max(0, message.receivers - len(message.deliveries))
        self._forget(message)
        now = self._stopwatch()
        for delivery in list(message.deliveries.values()):
            if delivery.ended is None:
                self.evicted += 1
                self._end(delivery, UNFINISHED, now)
