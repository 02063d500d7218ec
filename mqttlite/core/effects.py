"""The effects of an input: everything that the core asks its adapters to do.

The loop driver carries them out once for each iteration of the loop: it commits the changes, writes the dirty outboxes,
asks the questions and closes the links of the connections that ended.
"""

from typing import Final, final

from mqttlite.core.changes import Change
from mqttlite.core.interest import Interest
from mqttlite.core.limits import CROWD, FILL_BYTES, ITERATION_WORK, LEAST_SHARE, SHORT_FILL_BYTES, SHORT_SHARE
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Message
from mqttlite.core.message_numbers import MessageNumbers
from mqttlite.core.outbound.outbox import Outbox, OutboxEffects
from mqttlite.core.question import Question
from mqttlite.core.tracer import NO_SAMPLES
from mqttlite.topics.namespaces import Namespaces


class AwaitsCommit:
    """Something that waits for the commit of changes that it made."""

    __slots__ = ()

    def on_committed(self, now: float) -> None:
        """The changes are committed. Outboxes that waited for them are written next."""
        raise NotImplementedError


@final
class Hold:
    """The link of a connection is held for a `HoldReason`, or released from it."""

    __slots__ = ("is_held", "number", "reason")

    def __init__(self, number: int, reason: int, is_held: bool) -> None:
        self.number: Final = number
        self.reason: Final = reason
        self.is_held: Final = is_held


@final
class Effects(OutboxEffects):
    """The effects since the loop driver last took them. It refers to connections by their numbers."""

    __slots__ = (
        "_charged",
        "awaiting",
        "backlogged",
        "changed_bytes",
        "changes",
        "closed",
        "commit_number",
        "connected",
        "crowds",
        "deferred",
        "fill_bytes",
        "filling",
        "has_jobs",
        "held_back",
        "holds",
        "interest",
        "is_short",
        "meters_senders",
        "namespaces",
        "numbers",
        "pending_bytes",
        "questions",
        "refuses_connects",
        "share_from",
        "sheds_low_priority",
        "sheds_qos0",
        "until_sample",
        "work",
        "work_at_start",
    )

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    dirty: list[Outbox]

    def __init__(self, max_memory_bytes: int = 0, wall_ahead_us: int = 0, namespaces: Namespaces | None = None) -> None:
        super().__init__(MemoryAccount(max_memory_bytes))
        self.numbers: Final = MessageNumbers(wall_ahead_us)
        self.namespaces: Final = Namespaces() if namespaces is None else namespaces
        self.until_sample: int = NO_SAMPLES
        """How many messages pass until the next one is sampled for a trace."""
        self.changes: list[Change] = []
        """The driver commits them before it writes the dirty outboxes with `awaits_commit`."""
        self.changed_bytes: int = 0
        """About how much memory the messages in `changes` take. The driver sets it to 0 when it takes them."""
        self.awaiting: list[AwaitsCommit] = []
        """The driver calls each entry once, when the changes recorded so far are committed."""
        self.commit_number: int = 1
        """The number of the commit that what is recorded now will be in."""
        self.interest: Interest | None = None
        """What is subscribed here; None if nobody outside is to know."""
        self._charged: Message | None = None
        self.crowds: list[tuple[int, int]] = []
        """Ranges in `dirty`: the outboxes that one message for many receivers made dirty."""
        self.questions: list[Question] = []
        self.connected: list[int] = []
        """Connections whose CONNECT was accepted."""
        self.closed: list[int] = []
        """Connections to close after a last write."""
        self.backlogged: list[int] = []
        """Connections with more to send than one iteration should write. `Broker.tick` continues with them."""
        self.deferred: list[int] = []
        """Connections that sent more than one iteration should handle. After the loop has read all other links, the
        driver calls `Broker.feed` with an empty chunk for each. Bytes that arrive before are appended to the waiting
        ones."""
        self.filling: Final[set[int]] = set()
        """Connections of clients that read, but whose queues fill up: publishers wait for them."""
        self.held_back: int = 0
        """How many messages had to wait for a connection in `filling`."""
        self.holds: list[Hold] = []
        """Links that the driver stops reading, or reads again, in this order."""
        self.has_jobs: bool = False
        """Whether a job was queued since the jobs ran."""
        self.meters_senders: bool = False
        """Whether to measure how much work each client causes, because of overload."""
        self.sheds_low_priority: bool = False
        self.sheds_qos0: bool = False
        self.refuses_connects: bool = False
        """Which stages of `Overload` are in force."""
        self.is_short: bool = False
        """Whether iterations are to be short, because some clients send much and others little."""
        self.fill_bytes: int = FILL_BYTES
        """How many bytes a session may send from its queue before the next session's turn."""
        self.work_at_start: int = 0
        """The initial value of `work` in an iteration; above 0 when iterations are to be short."""
        self.share_from: int = ITERATION_WORK - LEAST_SHARE
        """`work` is lowered to this value to guarantee a part of the iteration its least share."""
        self.work: int = 0
        """The work done so far in this loop iteration, in the unit of `ITERATION_WORK`. The driver resets it to
        `work_at_start` at the end of each iteration."""
        self.pending_bytes: int = 0
        """About how many bytes the dirty outboxes hold. Shared bytes count once for each outbox."""

    def shorten(self, is_short: bool) -> None:
        """Switch to short iterations, or back to full ones."""
        self.is_short = is_short
        self.fill_bytes = SHORT_FILL_BYTES if is_short else FILL_BYTES
        self.work_at_start = ITERATION_WORK - SHORT_SHARE if is_short else 0
        self.share_from = ITERATION_WORK - (SHORT_SHARE if is_short else LEAST_SHARE)

    def note_crowd(self, start: int) -> None:
        """One message made all outboxes in `dirty` from `start` on dirty. If they are many, others are written
        first."""
        end = len(self.dirty)
        if end - start > CROWD:
            self.crowds.append((start, end))

    def take_dirty(self) -> list[Outbox]:
        """Take all dirty outboxes, in the order in which to write them."""
        dirty, self.dirty = self.dirty, []
        if not self.crowds:
            return dirty
        crowds, self.crowds = self.crowds, []
        others: list[Outbox] = []
        last: list[Outbox] = []
        at = 0
        for start, end in crowds:
            others += dirty[at:start]
            last += dirty[start:end]
            at = end
        return others + dirty[at:] + last

    def record(self, change: Change, outbox: Outbox | None = None) -> None:
        """Record a change. The driver writes `outbox` only after the commit."""
        self.changes.append(change)
        if outbox is not None:
            outbox.awaits_commit = True

    def take_awaiting(self) -> list[AwaitsCommit]:
        """What must be told of a commit that begins now with all changes so far."""
        awaiting, self.awaiting = self.awaiting, []
        self.commit_number += 1
        return awaiting

    def hold(self, number: int, reason: int) -> None:
        self.holds.append(Hold(number, reason, True))

    def release(self, number: int, reason: int) -> None:
        self.holds.append(Hold(number, reason, False))

    def identify(self, message: Message) -> int:
        """The number of a message. Gives it one if it has none."""
        if not message.number:
            message.number = self.numbers.next(self.now)
        return message.number

    def charge_change(self, message: Message) -> None:
        """Count the memory of a message in a recorded change. Consecutive changes with the same message count it
        once."""
        if message is not self._charged:
            self._charged = message
            self.changed_bytes += message.memory_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to carry out, for example after a PUBACK when no message waits."""
        return not (
            self.dirty
            or self.changes
            or self.questions
            or self.connected
            or self.closed
            or self.backlogged
            or self.deferred
            or self.pending_bytes
            or self.holds
            or self.has_jobs
        )
