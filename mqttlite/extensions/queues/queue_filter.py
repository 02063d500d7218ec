"""The filter of a queue, evaluated for each message before the queue takes it.

Invariant: a message that does not pass takes no room and no sequence, and does not delay others with its ordering key.
A queue without a filter has no such object.
"""

from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.limits import JSON_BYTES_PER_WORK_UNIT
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.route.tally import Tally
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import ON_FILTER
from mqttlite.extensions.queues.outcomes import FILTERED


@final
class QueueFilter:
    """Messages that do not pass are counted apart from drops, and may become dead letters."""

    __slots__ = ("_contents", "_drops", "_effects", "_filter")

    def __init__(self, message_filter: MessageFilter, contents: Contents, drops: Drops, effects: Effects) -> None:
        self._filter: Final = message_filter
        self._contents: Final = contents
        self._drops: Final = drops
        self._effects: Final = effects

    @property
    def expression(self) -> str:
        return self._filter.expression

    def would_pass(self, message: Message, knows_payload: bool) -> bool | None:
        """Whether the queue would take a message; None if that depends on an unknown payload."""
        return self.matches(message) if knows_payload or not self._filter.reads_payload else None

    def passes(self, message: Message, tally: Tally) -> bool:
        """Whether a message passes. If not, undo the fan-out's count of this receiver."""
        if self.matches(message):
            return True
        tally.reached -= 1
        self._effects.pending_bytes -= message.size()
        self._keep_out(message, tally)
        return False

    def passing(self, batch: PublishBatch, tally: Tally) -> list[int]:
        """The positions in a batch of the messages that pass."""
        everywhere = list(range(batch.count))
        if self._filter.reads_payload:
            places = [at for at in everywhere if self.matches(batch.delivery(at, 0).message)]
        else:
            places = everywhere if self.matches(batch.delivery(0, 0).message) else []
        if len(places) < batch.count:
            tally.reached -= 1
            tally.reach(places, batch.count)
            self._effects.pending_bytes -= batch.message_bytes() * (batch.count - len(places))
            for at in sorted(set(everywhere).difference(places)):
                self._keep_out(batch.delivery(at, 0).message, tally)
        return places

    def matches(self, message: Message) -> bool:
        """Whether a message passes. Counts nothing."""
        self._effects.work += 1
        if self._filter.reads_payload:
            self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return self._filter.matches(message)

    def _keep_out(self, message: Message, tally: Tally) -> None:
        contents = self._contents
        contents.counts.filtered += 1
        tally.filtered += 1
        self._drops.add_filtered(1, message.trace, contents.shown, self._filter.expression)
        if ON_FILTER in contents.policy.dead_letter_on:
            contents.reject(message, FILTERED, self._filter.expression)
