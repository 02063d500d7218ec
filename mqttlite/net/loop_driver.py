"""Carries out what the core wants done, once for each iteration of the loop: commit, write, ask, close.

True on disk before true on the wire: an outbox that says so waits for the commit of the changes before it; the others
do not wait. One iteration writes a bounded number of outboxes; the rest follow in later iterations, after the loop has
read all links again. Invariants: at most one commit is under way, and the changes that arrive meanwhile are the next
one; each dirty outbox is in one place, `Effects.dirty`, `_unwritten`, `_held`, `_committed` or `_late`; a closed
connection's link is closed after its last write.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.outbox import Outbox
from mqttlite.core.ports import Store
from mqttlite.core.question import Question
from mqttlite.core.reasons import HoldReason
from mqttlite.net.deferred_links import DeferredLinks
from mqttlite.net.link import LinkDriver, LinkPort, about
from mqttlite.net.reading_turns import ReadingTurns
from mqttlite.wire.encode import PINGRESP_FRAME

WRITES_PER_ITERATION: Final = 256
"""How many outboxes one iteration of the loop writes: a write takes about 20 microseconds, most of it in the kernel."""

BYTES_PER_ITERATION: Final = 2 * 1_048_576
"""How many bytes one iteration writes, for long writes cost by their length: some milliseconds."""

CLOSES_PER_ITERATION: Final = 128
"""How many links are closed at a time: what the log, the dataset and presence do for each takes some 100 microseconds.
The others follow in their order in the next iterations."""

NEW_WRITES: Final = WRITES_PER_ITERATION // 2
NEW_BYTES: Final = BYTES_PER_ITERATION // 2
"""How much of that is for outboxes that became dirty in this iteration while others wait for their turn: a message for
one client passes the copies of a message for thousands, and none of these waits for ever."""

RETRY_COMMIT_S: Final = 0.25
"""How long to wait before a failed commit is tried again: so soon goes everything on when the disk does."""

STALL_BYTES: Final = 16 * 1_048_576
STALL_CHANGES: Final = 10_000
"""How many bytes may be written, or changes arrive, during one commit before the links that wait for a commit, and
those that make more changes, are held. Bounds the memory that a slow or full disk costs; a healthy disk commits that
much in some tens of milliseconds."""

LATE_COMMIT_S: Final = 2.0
"""A commit that takes longer holds up no PINGRESP behind what waits for it: a client whose broker does not answer
connects again, and gives its messages back. Until then PINGRESP is behind what was sent before."""

LATE_S: Final = 0.05
"""A timer that fires this late shows that the loop, or the whole process, was held up."""

CATCH_UP_S: Final = 0.001
"""How long a late timer waits then: the loop reads every socket before it fires again."""

_log = logging.getLogger("mqttlite.store")
_net_log = logging.getLogger("mqttlite.net")


SHED_TOLD_S: Final = 1.0
"""As often as the biggest hoarders of memory are told: a short memory can last for many iterations."""
SHED_TOLD: Final = 10
"""How many of them: when many clients do not read, the first ones hold most."""


@final
class LoopDriver(LinkDriver):
    """One for each broker."""

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
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
        self.broker: Final = broker
        self.on_written: Callable[[int], None] | None = None
        """Called with the number of a connection when its link took an outbox that holds traced messages. Traced
        messages behind those that wait for a commit count as written with these."""
        self.on_shed: Callable[[LinkPort, int, int], None] | None = None
        """Called when memory was short, with each of the `SHED_TOLD` clients that held most, whose QoS 0 messages were
        dropped, and how many bytes and messages these were: once in `SHED_TOLD_S` at most."""
        self.retry_commit_s = RETRY_COMMIT_S
        self.late_commit_s = LATE_COMMIT_S
        self.stall_bytes = STALL_BYTES
        self.stall_changes = STALL_CHANGES
        self.throttled: int = 0
        """How often a link was not read because its client was over a quota."""
        self._shed = 0
        self._shed_told_at = -SHED_TOLD_S
        self._store: Final = store
        self._on_connected: Final = on_connected
        self._on_closed: Final = on_closed
        self._on_question: Final = on_question
        self._on_memory_short: Final = on_memory_short
        self._memory_short = False
        self._loop: Final = asyncio.get_running_loop()
        self._woken = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._catching_up = False
        self._unwritten: Final[deque[Outbox]] = deque()
        """Dirty outboxes that an iteration had no room for, in their order."""
        self._unwritten_bytes = 0
        """About how much those hold: what is left of `Effects.pending_bytes` after a run."""
        self._writes_left = WRITES_PER_ITERATION
        self._bytes_left = BYTES_PER_ITERATION
        self._uncommitted: list[Change] = []
        self._uncommitted_bytes = 0
        self._committing: list[Change] = []
        self._commit: asyncio.Task[None] | None = None
        self._commits_begun = 0
        self._ping_timer: asyncio.TimerHandle | None = None
        """When clients that wait for a late commit get PINGRESP."""
        self._held: list[tuple[Outbox, int]] = []
        """Outboxes that wait for the commit under way with that many of their frames; the frames behind those wait for
        the next one."""
        self._committed: Final[deque[tuple[Outbox, int]]] = deque()
        """The same after that commit, until an iteration has room for them."""
        self._late: list[Outbox] = []
        """Outboxes that wait for the next commit."""
        self._deferred: Final = DeferredLinks(broker, self.links, self._loop.time)
        self._reading_turns: Final = ReadingTurns(broker.effects, self.links)
        self._bytes_meanwhile = 0
        self._waiting_for_commit: list[LinkPort] = []
        """Links that are held because a commit takes too long."""
        self._written = 0
        """How many outboxes ever left `_unwritten`."""
        self._waiting_for_writes: deque[tuple[LinkPort, int]] = deque()
        """Links that are held because they published too much, until `_written` is that number: then all outboxes that
        were in `_unwritten` have left it."""
        self._closing: list[int] = []

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._end_iteration)

    def _end_iteration(self) -> None:
        """The loop has read all links: go on with those that sent much, carry out the effects, and then write what
        earlier iterations left."""
        self._writes_left = WRITES_PER_ITERATION
        self._bytes_left = BYTES_PER_ITERATION
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
        if self._committed:
            self._write_committed()
        self.run()
        if self._unwritten:
            self._write_more()
        memory = self.broker.effects.memory
        if memory.used > memory.shed_above or self._memory_short:
            self._look_at_memory(memory)

    def run(self) -> None:
        effects = self.broker.effects
        begun = self._commits_begun
        if effects.changes:
            self._uncommitted += effects.changes
            effects.changes.clear()
            self._uncommitted_bytes += effects.changed_bytes
            effects.changed_bytes = 0
        if self._commit is None:
            if self._uncommitted:
                self._begin_commit()
        else:
            self._bytes_meanwhile += effects.pending_bytes - self._unwritten_bytes
        committing = self._commit is not None or self._stopped
        if effects.dirty:
            self._write_dirty(effects, committing, self._commits_begun > begun)
        elif not self._unwritten:
            effects.pending_bytes = 0
        self._unwritten_bytes = effects.pending_bytes
        if committing and (
            self._bytes_meanwhile > self.stall_bytes
            or self._uncommitted_bytes > self.stall_bytes
            or len(self._uncommitted) > self.stall_changes
        ):
            self._stall()
        if effects.deferred:
            self._deferred.add(effects)
            self.wake()
        if effects.throttled:
            self._hold_throttled(effects)
        if effects.unthrottled:
            self._release_throttled(effects)
        if effects.slowed or effects.unslowed:
            self._slow_senders(effects)
        if effects.connected:
            connected, effects.connected = effects.connected, []
            for number in connected:
                self._tell(self._on_connected, self.links[number])
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

    def _look_at_memory(self, memory: MemoryAccount) -> None:
        """Memory is short, or was: shed, and tell the begin and the end of it."""
        is_short = self._memory_short
        if memory.used > memory.shed_above:
            self._memory_short = True
            if not is_short:
                self._on_memory_short(True, memory.detail())
            shed = self.broker.shed(self._loop.time())
            self._tell_hoarders(shed)
            for number, size, _ in shed:
                self._tell_shed(number, size)
        elif memory.used < memory.enough_below:
            self._memory_short = False
            self._on_memory_short(False, memory.detail())

    def _tell_hoarders(self, shed: list[tuple[int, int, int]]) -> None:
        """Tell who held most: memory may be short in each iteration for a while."""
        now = self._loop.time()
        if self.on_shed is None or not shed or now - self._shed_told_at < SHED_TOLD_S:
            return
        self._shed_told_at = now
        for number, size, messages in shed[:SHED_TOLD]:
            link = self.links.get(number)
            if link is not None:
                self.on_shed(link, size, messages)

    def _tell_shed(self, number: int, size: int) -> None:
        """Log the 1st, 2nd, 4th, 8th … time, and not a line for each."""
        self._shed += 1
        link = self.links.get(number)
        if link is not None and self._shed & (self._shed - 1) == 0:
            _net_log.warning(
                "%s client %r is the biggest hoarder of memory (%d bytes): its QoS 0 messages are dropped; so far: %d",
                *(link.address, link.connection.client_id, size, self._shed),
                extra=about(link),
            )

    # ------------------------------------------------------------------ writing

    def _write_dirty(self, effects: Effects, committing: bool, in_time: bool) -> None:
        """Write the outboxes that became dirty, as far as this iteration has room for them.

        `in_time` says that the commit under way holds all changes up to now. Where others wait, and this iteration has
        written its part, they stay the first of the next one.
        """
        links = self.links
        unwritten = self._unwritten
        before = len(unwritten)
        writes_kept = WRITES_PER_ITERATION - NEW_WRITES if before else 0
        bytes_kept = BYTES_PER_ITERATION - NEW_BYTES if before else 0
        writes_left = self._writes_left
        bytes_left = self._bytes_left
        if before and (writes_left <= writes_kept or bytes_left <= bytes_kept):
            self.wake()
            return
        dirty = effects.take_dirty()
        for outbox in dirty:
            if outbox.awaits_commit and committing:
                self._hold(outbox, in_time)
                continue
            outbox.awaits_commit = False
            if writes_left <= writes_kept or bytes_left <= bytes_kept:
                unwritten.append(outbox)
                continue
            link = links.get(outbox.number)
            if link is not None:
                data = outbox.take()
                writes_left -= 1
                bytes_left -= len(data)
                link.write(data)
                if outbox.traced:
                    self._tell_written(outbox)
        self._writes_left = writes_left
        self._bytes_left = bytes_left
        if unwritten:
            effects.pending_bytes = effects.pending_bytes * len(unwritten) // (before + len(dirty))
            self.wake()
        else:
            effects.pending_bytes = 0

    def _write_committed(self) -> None:
        """Write what waited for a commit, as far as this iteration has room for it."""
        committed = self._committed
        while committed and self._writes_left > 0 and self._bytes_left > 0:
            outbox, frames = committed.popleft()
            link = self.links.get(outbox.number)
            if link is not None and not link.gone:
                data = outbox.take_first(frames)
                self._writes_left -= 1
                self._bytes_left -= len(data)
                link.write(data)
                if outbox.traced:
                    self._tell_written(outbox)
                if outbox.dirty:
                    self.broker.effects.dirty.append(outbox)
        if committed:
            self.wake()

    def _write_more(self) -> None:
        """Write the outboxes that earlier iterations had no room for, as far as this one has."""
        effects = self.broker.effects
        unwritten = self._unwritten
        before = len(unwritten)
        while unwritten and self._writes_left > 0 and self._bytes_left > 0:
            outbox = unwritten.popleft()
            self._written += 1
            if outbox.awaits_commit and (self._commit is not None or self._stopped):
                self._hold(outbox, False)  # since it was put there it got frames that wait for a commit
                continue
            outbox.awaits_commit = False
            link = self.links.get(outbox.number)
            if link is not None:
                data = outbox.take()
                self._writes_left -= 1
                self._bytes_left -= len(data)
                link.write(data)
                if outbox.traced:
                    self._tell_written(outbox)
        effects.pending_bytes = effects.pending_bytes * len(unwritten) // before
        self._unwritten_bytes = effects.pending_bytes
        if unwritten or self._closing:
            self.wake()
        self._arm()  # for the pace of an outbox
        while self._waiting_for_writes and self._waiting_for_writes[0][1] <= self._written:
            self._waiting_for_writes.popleft()[0].release(HoldReason.UNWRITTEN)

    def hold_for_writes(self, link: LinkPort) -> None:
        if not link.gone and not link.connection.hold_reasons & HoldReason.UNWRITTEN:
            link.hold(HoldReason.UNWRITTEN)
            self._waiting_for_writes.append((link, self._written + len(self._unwritten)))

    def note_read(self, link: LinkPort, size: int) -> None:
        self._reading_turns.note(link, size)
        self.wake()

    def await_turn(self, link: LinkPort) -> None:
        self._reading_turns.wait(link)
        self.wake()

    def _hold_throttled(self, effects: Effects) -> None:
        """Do not read the links whose clients sent more than their quotas allow."""
        throttled, effects.throttled = effects.throttled, []
        for number in throttled:
            link = self.links.get(number)
            if link is not None and not link.gone:
                link.hold(HoldReason.RATE)
                self._tell_held(link)

    def _release_throttled(self, effects: Effects) -> None:
        unthrottled, effects.unthrottled = effects.unthrottled, []
        for number in unthrottled:
            link = self.links.get(number)
            if link is not None:
                link.release(HoldReason.RATE)

    def _slow_senders(self, effects: Effects) -> None:
        """Hold the links that the overload slows, and release those that may be read again."""
        slowed, effects.slowed = effects.slowed, []
        unslowed, effects.unslowed = effects.unslowed, []
        for number in slowed:
            link = self.links.get(number)
            if link is not None and not link.gone:
                link.hold(HoldReason.OVERLOAD)
        for number in unslowed:
            link = self.links.get(number)
            if link is not None:
                link.release(HoldReason.OVERLOAD)

    def _tell_held(self, link: LinkPort) -> None:
        """Log the 1st, 2nd, 4th, 8th … time, and not a line for each."""
        self.throttled += 1
        throttle = link.connection.throttle
        if self.throttled & (self.throttled - 1) == 0 and throttle is not None:
            _net_log.warning(
                "%s client %r sends more than the quota of its %s allows: not read for %.1f s; so far: %d",
                *(link.address, link.connection.client_id, throttle.held_for),
                *(throttle.held_until - self._loop.time(), self.throttled),
                extra=about(link),
            )

    # ------------------------------------------------------------------ waiting for it

    async def settled(self) -> None:
        """Wait until everything up to now is committed. What waited for that is written, or is in `_unwritten`."""
        self.run()
        last = self._commits_begun + bool(self._uncommitted)
        while self._commit is not None and self._commits_begun <= last and not self._stopped:
            await asyncio.wait([self._commit])

    async def stop(self) -> None:
        """Close the last links, stop the timer, and commit nothing more."""
        self._close_links(len(self._closing))
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None
        if self._commit is not None:
            self._commit.cancel()
            await asyncio.wait([self._commit])
            lost = len(self._committing) + len(self._uncommitted)
            _log.error("%d changes were not committed; none of them was acknowledged", lost)

    # ------------------------------------------------------------------ closing

    def _close_links(self, most: int) -> None:
        """Close the links whose connections ended, but for those with frames that are not written yet."""
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
            if outbox.chunks and not link.gone:  # blocked until now: DISCONNECT follows what the link still holds
                link.write(outbox.take())
                if outbox.traced:
                    self._tell_written(outbox)
            link.finish()
            self._tell(self._on_closed, link)

    def _tell_written(self, outbox: Outbox) -> None:
        """Report that traced messages were written."""
        outbox.traced = outbox.dirty  # what is left may hold others
        if self.on_written is not None:
            self.on_written(outbox.number)

    def _tell(self, callback: Callable[[LinkPort], None], link: LinkPort) -> None:
        try:
            callback(link)
        except Exception:  # a log line or a telemetry row may be lost, but no message
            _log.exception("%s: a report about its connection failed", link.address, extra=about(link))

    # ------------------------------------------------------------------ time

    def _on_timer(self) -> None:
        if self._loop.time() - self._timer_at > LATE_S and not self._catching_up:
            # The loop did not listen, so clients may not be silent: first it reads what they sent meanwhile.
            self._catching_up = True
            self._timer = self._loop.call_later(CATCH_UP_S, self._on_timer)
            return
        self._catching_up = False
        self._timer = None
        try:
            self.broker.tick(self._loop.time())
        finally:
            self.run()

    def _arm(self) -> None:
        """Let the one timer fire when the core has something due."""
        at = self.broker.due_at()
        if at is not None and not self._stopped and (self._timer is None or at < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._on_timer)
            self._timer_at = at

    # ------------------------------------------------------------------ commits

    def _begin_commit(self) -> None:
        """Commit the changes that arrived. A store that is done at once costs no task."""
        if self._stopped:
            return
        changes, self._uncommitted = self._uncommitted, []
        self._uncommitted_bytes = 0
        effects = self.broker.effects
        awaiting, effects.awaiting = effects.awaiting, []
        failure: Exception | None = None
        under_way: Awaitable[None] | None = None
        try:
            under_way = self._store.commit(changes)
        except Exception as error:
            failure = error
        if failure is not None or under_way is not None:
            self._commits_begun += 1
            self._bytes_meanwhile = 0
            self._committing = changes
            self._commit = self._loop.create_task(self._see_through(under_way, failure, awaiting))
            self._ping_timer = self._loop.call_later(self.late_commit_s, self._answer_pings)
        elif awaiting:
            self._tell_committed(awaiting)

    def _tell_committed(self, awaiting: list[AwaitsCommit]) -> None:
        now = self._loop.time()
        for each in awaiting:
            each.on_committed(now)

    async def _see_through(
        self, under_way: Awaitable[None] | None, failure: Exception | None, awaiting: list[AwaitsCommit]
    ) -> None:
        """Await a commit, in as many attempts as it takes; then write what waited for it."""
        changes = self._committing
        attempts = 1
        while True:
            if failure is None:
                try:
                    if under_way is not None:
                        await under_way
                    break
                except Exception as error:  # whatever a store raises, the changes must not be lost
                    failure = error
            if attempts & (attempts - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a disk may be full for hours
                detail = failure if isinstance(failure, OSError) else repr(failure)
                _log.error("commit of %d changes failed (attempt %d), trying again: %s", len(changes), attempts, detail)
            attempts += 1
            await asyncio.sleep(self.retry_commit_s)
            failure = None
            try:
                under_way = self._store.commit(changes)
            except Exception as error:
                failure = error
        if attempts > 1:
            _log.warning("commit of %d changes succeeded at attempt %d", len(changes), attempts)
        self._commit = None
        self._committing = []
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None
        if awaiting:
            self._tell_committed(awaiting)
        self._release()
        self.run()

    def _hold(self, outbox: Outbox, in_time: bool) -> None:
        """Let an outbox wait: for the commit under way if that holds all its changes, else for the next one."""
        if in_time:
            outbox.awaits_commit = False  # until it gets frames with more changes
            self._held.append((outbox, len(outbox.chunks)))
        else:
            self._late.append(outbox)
        if self.is_stalled:
            self._hold_link(outbox)

    def _answer_pings(self) -> None:
        """The commit is late: write each PINGRESP that waits behind something else, now and from time to time."""
        for at, (outbox, frames) in enumerate(self._held):
            self._held[at] = (outbox, frames - self._answer_ping(outbox, frames))
        for outbox in self._late:
            self._answer_ping(outbox, 0)
        self._ping_timer = self._loop.call_later(self.retry_commit_s, self._answer_pings)

    def _answer_ping(self, outbox: Outbox, frames: int) -> int:
        """How many of the first frames of an outbox were PINGRESP, which are written."""
        link = self.links.get(outbox.number)
        if link is None or link.gone or outbox.link_blocked:
            return 0
        found, in_front = outbox.take_out(PINGRESP_FRAME, frames)
        if found:
            link.write(PINGRESP_FRAME * found)
        return in_front

    def _release(self) -> None:
        """A commit is done: write what waited for it; the run that follows sees to the rest."""
        self._committed.extend(self._held)
        self._held.clear()
        self._write_committed()
        self.broker.effects.dirty += self._late
        self._late.clear()
        if self.is_stalled:
            self.is_stalled = False
            released, self._waiting_for_commit = self._waiting_for_commit, []
            for stalled in released:
                stalled.release(HoldReason.COMMIT)

    def _stall(self) -> None:
        """The commit takes long: hold all links that wait for it or for the next one."""
        if not self.is_stalled:
            self.is_stalled = True
            for outbox, _frames in self._held:
                self._hold_link(outbox)
            for outbox in self._late:
                self._hold_link(outbox)

    def _hold_link(self, outbox: Outbox) -> None:
        link = self.links.get(outbox.number)
        if link is not None:
            self.hold_for_commit(link)

    def hold_for_commit(self, link: LinkPort) -> None:
        if not link.gone and not link.connection.hold_reasons & HoldReason.COMMIT:
            link.hold(HoldReason.COMMIT)
            self._waiting_for_commit.append(link)
