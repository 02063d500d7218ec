"""The effects of an input: everything that the core asks its adapters to do.

The loop driver carries them out once for each iteration of the loop: it commits the changes, writes the dirty outboxes,
asks the questions and closes the links of the connections that ended.
"""

from typing import Final, final

from mqttlite.core.changes import Change
from mqttlite.core.limits import CROWD, FILL_BYTES, ITERATION_WORK, LEAST_SHARE, SHORT_FILL_BYTES, SHORT_SHARE
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Message
from mqttlite.core.message_numbers import MessageNumbers
from mqttlite.core.outbox import Outbox, OutboxEffects
from mqttlite.core.question import Question
from mqttlite.core.tracer import NO_SAMPLES


class AwaitsCommit:
    """Called when the changes that it made are committed."""

    __slots__ = ()

    def on_committed(self, now: float) -> None:
        """They are, and what waited for that is written next."""
        raise NotImplementedError


@final
class Effects(OutboxEffects):
    """The effects since the loop driver last took them. Connections are named by their numbers."""

    __slots__ = (
        "_charged",
        "awaiting",
        "backlogged",
        "changed_bytes",
        "changes",
        "closed",
        "connected",
        "crowds",
        "deferred",
        "fill_bytes",
        "filling",
        "held_back",
        "is_short",
        "meters_senders",
        "numbers",
        "pending_bytes",
        "questions",
        "refuses_connects",
        "share_from",
        "sheds_low_priority",
        "sheds_qos0",
        "slowed",
        "throttled",
        "unslowed",
        "unthrottled",
        "until_sample",
        "work",
        "work_at_start",
    )

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    dirty: list[Outbox]

    def __init__(self, max_memory_bytes: int = 0, wall_ahead_us: int = 0) -> None:
        super().__init__(MemoryAccount(max_memory_bytes))
        self.numbers: Final = MessageNumbers(wall_ahead_us)
        self.until_sample: int = NO_SAMPLES
        """How many messages pass until one is traced, whatever its topic."""
        self.changes: list[Change] = []
        """The driver commits them before it writes those dirty outboxes that say `awaits_commit`."""
        self.changed_bytes: int = 0
        """About what the messages in them take in memory; the driver sets it to 0 when it takes them."""
        self.awaiting: list[AwaitsCommit] = []
        """The driver calls each of these once, when the changes up to now are committed."""
        self._charged: Message | None = None
        self.crowds: list[tuple[int, int]] = []
        """Where in `dirty` the outboxes are that one message for many made dirty."""
        self.questions: list[Question] = []
        self.connected: list[int] = []
        """Connections whose CONNECT was accepted."""
        self.closed: list[int] = []
        """Connections to close after a last write."""
        self.backlogged: list[int] = []
        """Connections with more to send than one iteration should write: `Broker.tick` goes on with them."""
        self.deferred: list[int] = []
        """Connections that sent more than one iteration should handle. When the loop has read all other links the
        driver calls `Broker.feed` without bytes for them. Bytes that arrive earlier go behind those that wait."""
        self.filling: Final[set[int]] = set()
        """Connections whose clients' queues fill up although they read: publishers wait for them."""
        self.held_back: int = 0
        """How many messages waited at their publishers for one of these."""
        self.throttled: list[int] = []
        """Connections that sent more than their quotas allow: their links are held."""
        self.unthrottled: list[int] = []
        """Connections whose links may be read again."""
        self.slowed: list[int] = []
        """Connections whose links are held because they sent more than the overload lets them."""
        self.unslowed: list[int] = []
        """The opposite."""
        self.meters_senders: bool = False
        """Whether the overload wants to know what each client costs."""
        self.sheds_low_priority: bool = False
        self.sheds_qos0: bool = False
        self.refuses_connects: bool = False
        """Which stages of `Overload` are in force."""
        self.is_short: bool = False
        """Whether iterations are to be short, for some clients send much and others little."""
        self.fill_bytes: int = FILL_BYTES
        """How many bytes a session sends from its queue before others have their turn."""
        self.work_at_start: int = 0
        """The value with which `work` begins: not 0 where iterations are to be short."""
        self.share_from: int = ITERATION_WORK - LEAST_SHARE
        """`work` is lowered to this value for a part that is to have the least share of an iteration."""
        self.work: int = 0
        """The work of the packets and jobs of this loop iteration, in the unit of `ITERATION_WORK`. The driver sets it
        to `work_at_start` at the end of each iteration."""
        self.pending_bytes: int = 0
        """About how many bytes the dirty outboxes hold. Bytes that several outboxes share count once for each."""

    def shorten(self, is_short: bool) -> None:
        """Let iterations be short from now on, or as long as they may be."""
        self.is_short = is_short
        self.fill_bytes = SHORT_FILL_BYTES if is_short else FILL_BYTES
        self.work_at_start = ITERATION_WORK - SHORT_SHARE if is_short else 0
        self.share_from = ITERATION_WORK - (SHORT_SHARE if is_short else LEAST_SHARE)

    def note_crowd(self, start: int) -> None:
        """One message made all outboxes in `dirty` from there on dirty; others go first if they are many."""
        end = len(self.dirty)
        if end - start > CROWD:
            self.crowds.append((start, end))

    def take_dirty(self) -> list[Outbox]:
        """All dirty outboxes in the order in which they are to be written."""
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
        """The driver commits a change, and writes the outbox, if one is given, only after that."""
        self.changes.append(change)
        if outbox is not None:
            outbox.awaits_commit = True

    def identify(self, message: Message) -> int:
        """The number of a message, which gets one now if it has none."""
        if not message.number:
            message.number = self.numbers.next(self.now)
        return message.number

    def charge_change(self, message: Message) -> None:
        """A recorded change has that message. The same for many sessions, one behind the other, counts once."""
        if message is not self._charged:
            self._charged = message
            self.changed_bytes += message.memory_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to carry out, as after a PUBACK that lets nothing else go."""
        return not (
            self.dirty
            or self.changes
            or self.questions
            or self.connected
            or self.closed
            or self.backlogged
            or self.deferred
            or self.pending_bytes
            or self.throttled
            or self.slowed
        )
