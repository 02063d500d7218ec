"""The port through which the core reports what happens: a `Tracer`.

The core reports rare events, and the outcomes of the few traced messages; it counts frequent events where they happen.
Invariant: the core asks a tracer only which messages to trace, and behaves the same without a tracer. A tracer must not
raise or call the core.
"""

from typing import Final, Protocol

NOT_TRACED: Final = 0
"""The trace of an untraced message."""

NO_SAMPLES: Final = 1 << 60
"""Messages until the next sample when there are no samples: more than will ever come."""

OFFLINE: Final = "offline"
BACKPRESSURE: Final = "backpressure"
WINDOW_FULL: Final = "window_full"
"""Why a message waits: its receiver is away, does not read, or its window is full."""


class Tracer(Protocol):
    """Implemented by telemetry. No call has the time as an argument: a tracer may read a clock.

    A *trace* is the number of a traced message (`MessageNumbers`), or `NOT_TRACED`. A new tracer also gets reports
    about messages that its predecessor traced.
    """

    def traces_topic(self, topic: bytes) -> bool:
        """Whether to trace every message of a topic. Asked when its route is made."""
        ...

    def traces_client(self, client_id: str) -> bool:
        """Whether to trace every message from and to a client. Asked when it connects, and for each receiver when a
        route is made."""
        ...

    def next_sample(self) -> int:
        """How many messages pass until the next sample, at least 1. Asked once for each sample, before it is reported.
        Samples in a batch are its first messages."""
        ...

    # ------------------------------------------------------------------ followed messages

    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None:
        """A traced message arrived from a client, or from the broker itself (None)."""
        ...

    def on_routed(self, trace: int, receivers: int) -> None:
        """The number of receivers is known; a shared subscription counts as one. The outcomes follow."""
        ...

    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None:
        """It waits for a receiver, for one of the reasons above. `waiting` messages wait now; `limit` may wait."""
        ...

    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None:
        """It is in the outbox of a receiver's connection. It may be sent again on a later connection."""
        ...

    def on_acknowledged(self, trace: int, receiver: str) -> None:
        """The receiver answered with PUBACK or PUBREC."""
        ...

    def on_returned(self, trace: int, receiver: str, detail: str) -> None:
        """The receiver refused or missed it, or left with it, and its origin delivers it again, perhaps to another
        receiver: this attempt is over. Harmless for a receiver that was not sent the message."""
        ...

    def on_filtered(self, trace: int, receiver: str, expression: str) -> None:
        """A receiver's filter kept it out. `receiver` is the complete name of a shared subscription if the filters of
        all its members did."""
        ...

    # ------------------------------------------------------------------ any message

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        """Messages were dropped for a receiver, or had no receiver (None). `topic` is empty if it is not known;
        `detail` says what was full, for example `1000/1000`, or is empty."""
        ...

    # ------------------------------------------------------------------ clients

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        """A subscription was granted at `qos`, or refused (`reason_code` ≥ 0x80)."""
        ...

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        """A client ended a subscription."""
        ...

    def on_blocked(self, connection: int) -> None:
        """The connection's socket takes no more bytes."""
        ...

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        """The connection's socket takes bytes again."""
        ...
