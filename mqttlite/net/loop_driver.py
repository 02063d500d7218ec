"""Carries out the effects of the core once for each iteration of the loop: commit, write, ask, close.

True on disk before true on the wire: an outbox with `awaits_commit` waits for the commit of the earlier changes
(`commits`); the others do not wait. Invariants: all effects of an iteration are carried out, or queued for a later one;
the link of an ended connection is closed after its last write.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.inbound.inbound import Ticket
from mqttlite.core.ports import Store
from mqttlite.core.question import Question
from mqttlite.net.commits import Commits
from mqttlite.net.deferred_links import DeferredLinks
from mqttlite.net.held_links import HeldLinks
from mqttlite.net.link import LinkDriver, LinkPort, about
from mqttlite.net.outbox_writer import OutboxWriter
from mqttlite.net.reading_turns import ReadingTurns
from mqttlite.net.shedding import Shedding

CLOSES_PER_ITERATION: Final = 128
"""How many links one iteration closes: the log, the dataset and presence take some 100 microseconds for each. The
others follow in order in the next iterations."""

LATE_S: Final = 0.05
"""A timer that fires this late shows that the loop, or the whole process, was blocked."""

CATCH_UP_S: Final = 0.001
"""How long a late timer is postponed, so that the loop reads every socket before it fires again."""

_log = logging.getLogger("mqttlite.store")


@final
class LoopDriver(LinkDriver):
    """One for each broker."""

    # Inherited; declared again because type checkers differ in what they infer from the assignments elsewhere.
    is_stalled: bool

    def __init__(
        self,
        broker: Broker,
        store: Store,
        *,
        on_connected: Callable[[LinkPort], None],
        on_closed: Callable[[LinkPort], None],
        on_question: Callable[[Question], None],
        on_memory_short: Callable[[bool, str], None],
    ) -> None:
        super().__init__()
        self._loop: Final = asyncio.get_running_loop()
        self._call_soon: Final = self._loop.call_soon
        self._on_iteration: Final[Callable[[], None]] = self._end_iteration
        """Bound once, like `time`."""
        self.broker: Final = broker
        self.commits: Final = Commits(store, broker.effects, self, self._on_commit_done)
        self.writer: Final = OutboxWriter(broker.effects, self.links, self.commits)
        self.shedding: Final = Shedding(broker, self.links, self.time, on_memory_short)
        self._held: Final = HeldLinks(self.links, self._loop.time)
        self._deferred: Final = DeferredLinks(broker, self.links, self._loop.time)
        self._reading_turns: Final = ReadingTurns(broker.effects, self.links)
        self._on_connected: Final = on_connected
        self._on_closed: Final = on_closed
        self._on_question: Final = on_question
        self.iterations: int = 0
        """How many iterations had effects to carry out."""
        self._woken = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._catching_up = False
        self._closing: list[int] = []
        self._unfinished: Final[set[asyncio.Future[None]]] = set()
        """Of messages that still wait for their receivers."""

    # ------------------------------------------------------------------ an iteration

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._call_soon(self._on_iteration)

    def _end_iteration(self) -> None:
        """The loop has read all links: continue deferred links, carry out the effects, and then write the outboxes left
        by earlier iterations."""
        self.iterations += 1
        writer = self.writer
        writer.begin_iteration()
        effects = self.broker.effects
        if effects.deferred:
            self._deferred.add(effects)
        if len(self._deferred):
            self._deferred.go_on()
        self._woken = False
        self._reading_turns.go_on()
        if len(self._deferred) or len(self._reading_turns):
            self.wake()
        effects.work = effects.work_at_start
        if writer.committed:
            writer.write_committed()
            if writer.committed:
                self.wake()
        self.run()
        if writer.unwritten:
            writer.write_more()
            if writer.unwritten or self._closing:
                self.wake()
            self._arm()  # for the pace of an outbox
        memory = effects.memory
        if memory.used > memory.shed_above or self.shedding.is_short:
            self.shedding.check(memory)

    def run(self) -> None:
        effects = self.broker.effects
        commits = self.commits
        writer = self.writer
        begun = commits.begun
        commits.go_on(effects.pending_bytes - writer.unwritten_bytes)
        if effects.dirty:
            writer.write_dirty(commits.begun > begun)
            if writer.unwritten:
                self.wake()
        elif not writer.unwritten:
            effects.pending_bytes = 0
        writer.unwritten_bytes = effects.pending_bytes
        if commits.is_under_way:
            commits.stall_if_long()
        if effects.deferred:
            self._deferred.add(effects)
            self.wake()
        if effects.holds:
            holds, effects.holds = effects.holds, []
            self._held.apply(holds)
        if effects.connected:
            connected, effects.connected = effects.connected, []
            for number in connected:
                self._report(self._on_connected, self.links[number])
        if effects.questions:
            questions, effects.questions = effects.questions, []
            for question in questions:
                self._on_question(question)
        if effects.closed:
            self._closing += effects.closed
            effects.closed.clear()
        if self._closing:
            self._close_links(CLOSES_PER_ITERATION)
        self._arm()

    def _on_commit_done(self) -> None:
        """Write the frames that waited for the commit, release links that were held for it, and carry out new
        effects."""
        commits = self.commits
        writer = self.writer
        writer.committed.extend(commits.held)
        commits.held.clear()
        writer.write_committed()
        if writer.committed:
            self.wake()
        self.broker.effects.dirty += commits.late
        commits.late.clear()
        commits.end_stall()
        self.run()

    # ------------------------------------------------------------------ links that wait

    def hold_for_commit(self, link: LinkPort) -> None:
        self.commits.hold_link(link)

    def hold_for_writes(self, link: LinkPort) -> None:
        self.writer.hold_link(link)

    def note_read(self, link: LinkPort, size: int) -> None:
        self._reading_turns.note(link, size)
        self.wake()

    def await_turn(self, link: LinkPort) -> None:
        self._reading_turns.wait(link)
        self.wake()

    # ------------------------------------------------------------------ waiting for the driver

    async def finish(self, ticket: Ticket) -> None:
        """Wait until every receiver has an offered message, and the disk what is kept of it. Raises `ConnectionError`
        if the broker stops before."""
        if not ticket.done:
            done: asyncio.Future[None] = self._loop.create_future()
            self._unfinished.add(done)
            ticket.on_done = lambda: None if done.done() else done.set_result(None)
            self.wake()
            try:
                await done
            finally:
                self._unfinished.discard(done)
        if ticket.tally.is_durable:
            await self.settled()
        else:
            self.wake()

    async def settled(self) -> None:
        """Wait until all changes made so far are committed. Frames that waited for it are then written, or queued for
        the next iterations."""
        self.run()
        await self.commits.settled()

    async def stop(self) -> None:
        """Close the last links, and stop the timer and the commits."""
        self._close_links(len(self._closing))
        self._stopped = True
        for done in self._unfinished:
            if not done.done():  # one that is done has not been heard yet
                done.set_exception(ConnectionError("the broker stops: the message still waited for its receivers"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.commits.stop()

    # ------------------------------------------------------------------ closing

    def _close_links(self, most: int) -> None:
        """Close the links of ended connections, except those with unwritten frames."""
        numbers, self._closing = self._closing, []
        for position, number in enumerate(numbers):
            if most == 0:
                self._closing += numbers[position:]
                self.wake()
                return
            link = self.links[number]
            outbox = link.connection.outbox
            if outbox.dirty and not link.gone:
                self._closing.append(number)
                continue
            most -= 1
            del self.links[number]
            if outbox.chunks and not link.gone:  # unwritten because it was blocked
                self.writer.write_last(link)
            link.finish()
            self._report(self._on_closed, link)

    def _report(self, callback: Callable[[LinkPort], None], link: LinkPort) -> None:
        try:
            callback(link)
        except Exception:  # a log line or telemetry row may be lost, but no message
            _log.exception("%s: a report about its connection failed", link.address, extra=about(link))

    # ------------------------------------------------------------------ time

    def _on_timer(self) -> None:
        if self.time() - self._timer_at > LATE_S and not self._catching_up:
            # The loop was blocked, so clients that look silent may not be: first read what they sent.
            self._catching_up = True
            self._timer = self._loop.call_later(CATCH_UP_S, self._on_timer)
            return
        self._catching_up = False
        self._timer = None
        try:
            self.broker.tick(self.time())
        finally:
            self.run()

    def _arm(self) -> None:
        """Set the single timer to the time when the core has work due."""
        at = self.broker.due_at()
        if at is not None and not self._stopped and (self._timer is None or at < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._on_timer)
            self._timer_at = at
