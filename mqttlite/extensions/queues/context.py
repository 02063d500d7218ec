"""The dependencies of a queue: its policy, its dead letter box, and the context shared by all queues."""

from typing import Final, Protocol, final

from mqttlite.core.connect.attempts import AttemptTracer
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Jobs
from mqttlite.core.message import Delivery, Message
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.queues.entry import Entry
from mqttlite.extensions.queues.limits import MAX_LANE

DROP_NEWEST: Final = "drop_newest"
TO_DEAD_LETTERS: Final = "dead_letter"
ON_FILTER: Final = "filter"
ON_EXPIRY: Final = "expiry"
AT_ONCE: Final = "at_once"
EXPLICIT: Final = "explicit"


class Retry(Protocol):
    """The delays between attempts."""

    @property
    def min_s(self) -> float: ...
    @property
    def max_s(self) -> float: ...
    @property
    def on_deadline(self) -> str: ...


class Policy(Protocol):
    """The options that a queue reads."""

    @property
    def ack_deadline_s(self) -> float: ...
    @property
    def ack(self) -> str: ...
    @property
    def retry(self) -> Retry: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def ordering(self) -> bool: ...
    @property
    def priority(self) -> bool: ...
    @property
    def max_messages(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def expiry_s(self) -> int: ...
    @property
    def dead_letter(self) -> bool: ...
    @property
    def dead_letter_on(self) -> tuple[str, ...]: ...
    @property
    def on_overflow(self) -> str: ...
    @property
    def retain_acked(self) -> bool: ...
    @property
    def max_rate(self) -> float: ...


class DeadLetterBox(Protocol):
    """Takes undeliverable messages."""

    def put(self, entry: Entry, cause: str, detail: str = "") -> None: ...


@final
class QueueContext:
    """What all queues of a broker share."""

    __slots__ = (
        "attempts",
        "deadlines",
        "effects",
        "has_pages",
        "jobs",
        "latest",
        "max_lane",
        "pages",
        "wall_ahead_us",
    )

    def __init__(
        self,
        effects: Effects,
        jobs: Jobs,
        deadlines: Deadlines,
        pages: QueuePages,
        has_pages: bool,
        wall_ahead_us: int,
    ) -> None:
        self.effects: Final = effects
        self.jobs: Final = jobs
        self.deadlines: Final = deadlines
        self.pages: Final = pages
        self.has_pages: Final = has_pages
        """Whether the store has the most part of long queues alone."""
        self.wall_ahead_us: Final = wall_ahead_us
        self.max_lane: int = MAX_LANE
        self.attempts: AttemptTracer | None = None
        """Gets reports of attempts; None: no tracer."""
        self.latest: Delivery | None = None
        """The delivery of the latest message. The next queue usually takes the same message, and shares it."""

    def delivery_of(self, message: Message) -> Delivery:
        latest = self.latest
        if latest is None or latest.message is not message:
            latest = self.latest = Delivery(message, 1, False)
        return latest
