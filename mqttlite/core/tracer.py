"""The port through which the core reports what happens: a `Tracer`.

The core reports rare events, and the outcomes of the few messages that are traced; it counts frequent events where they
happen. Invariant: the core reads nothing back but which messages to trace, and works the same without a tracer. A
tracer never raises and never calls the core.
"""

from typing import Final, Protocol

NOT_TRACED: Final = 0
"""The trace of a message that nobody follows."""

NO_SAMPLES: Final = 1 << 60
"""Messages until the next sample, where nobody takes any: more than ever come."""

OFFLINE: Final = "offline"
BACKPRESSURE: Final = "backpressure"
WINDOW_FULL: Final = "window_full"
"""Why a message waits: its receiver is away, does not read, or has as many unacknowledged as it takes."""


class Tracer(Protocol):
    """Implemented by telemetry. No call has the time as an argument: a tracer may read a clock.

    A *trace* is the number of a traced message (`MessageNumbers`); where a message may be any, it is `NOT_TRACED` for
    those that are not.
    A new tracer also hears of messages that its predecessor traced.
    """

    def traces_topic(self, topic: bytes) -> bool:
        """Whether every message of a topic is to be followed; asked when its route is made."""
        ...

    def traces_client(self, client_id: str) -> bool:
        """Whether every message from and to a client is to be followed; asked when it connects, and for each receiver
        when a route is made."""
        ...

    def next_sample(self) -> int:
        """How many messages to let pass until the next is followed, whatever its topic; at least 1. Asked once for each
        message that is, before it is told of; of a run that is longer than that the first are."""
        ...

    # ------------------------------------------------------------------ followed messages

    def on_received(self, trace: int, topic: bytes, qos: int, payload_bytes: int, publisher: str | None) -> None:
        """A message came in from a client, or from the broker itself (None), and is traced under that number."""
        ...

    def on_routed(self, trace: int, receivers: int) -> None:
        """It is known how many it is for, of a shared subscription one; what became of it for them follows."""
        ...

    def on_queued(self, trace: int, receiver: str, why: str, waiting: int, limit: int) -> None:
        """It waits for a receiver, for one of the reasons above, as one of `waiting` messages of `limit` at most."""
        ...

    def on_sent(self, trace: int, receiver: str, connection: int, qos: int) -> None:
        """It is in the outbox of a receiver's connection; it may be so again after that connection ended."""
        ...

    def on_acknowledged(self, trace: int, receiver: str) -> None:
        """The receiver answered with PUBACK or PUBREC."""
        ...

    def on_filtered(self, trace: int, receiver: str, expression: str) -> None:
        """A receiver's filter did not let it pass, or that of no member of a shared subscription, by whose whole name
        the receiver is called then."""
        ...

    # ------------------------------------------------------------------ any message

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        """Messages were dropped for a receiver, or met none (None). `topic` is empty where it is not known; `detail`
        says what was too full, such as `1000/1000`, or is empty."""
        ...

    # ------------------------------------------------------------------ clients

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        """A subscription was granted at that QoS, or refused (`reason_code` ≥ 0x80)."""
        ...

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        """A client ended a subscription that it had."""
        ...

    def on_blocked(self, connection: int) -> None:
        """Its socket takes no more."""
        ...

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        """It takes bytes again."""
        ...
