"""Carries out what the core wants done, once for each pass of the loop: commit, write, ask, close.

True on disk before true on the wire: an outbox that says so waits for the commit of the changes that came before it;
the others do not. Invariants: one commit is under way at most, and what gathers meanwhile is the next; each outbox is
in one place, `Effects.dirty`, `_held` or `_late`; a closed connection's link is closed after its last write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.effects import Effects, Outbox
from mqttlite.core.limits import ITERATION_WORK
from mqttlite.core.ports import Store
from mqttlite.core.question import Question
from mqttlite.net.link import Link, LinkDriver, about

RETRY_COMMIT_S: Final = 1.0
"""How long to wait before a failed commit is tried again: long enough not to hammer a full disk."""

STALL_BYTES: Final = 16 * 1_048_576
STALL_CHANGES: Final = 10_000
"""What may pass through, or gather, during one commit before those who wait for it, and those who make more changes,
are no longer read nor written to. Bounds what a slow or full disk costs in memory; a healthy one commits that much in
some tens of milliseconds."""

LATE_S: Final = 0.05
"""A timer that rings so late shows that the loop, or the whole process, was held up."""

CATCH_UP_S: Final = 0.001
"""How long a late timer waits then: the loop reads every socket before it rings again."""

_log = logging.getLogger("mqttlite.store")


@final
class LoopDriver(LinkDriver):
    """One for each broker."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        *,
        on_connected: Callable[[Link], None],
        on_closed: Callable[[Link], None],
        on_question: Callable[[Question], None],
    ) -> None:
        super().__init__()
        self.broker: Final = broker
        self.on_written: Callable[[int], None] | None = None
        """Told the number of a connection whose outbox was handed to its socket with messages in it that are followed.
        What waits for a commit behind others is among them once these are."""
        self.retry_commit_s = RETRY_COMMIT_S
        self.stall_bytes = STALL_BYTES
        self.stall_changes = STALL_CHANGES
        self._store: Final = store
        self._on_connected: Final = on_connected
        self._on_closed: Final = on_closed
        self._on_question: Final = on_question
        self._loop: Final = asyncio.get_running_loop()
        self._woken = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._catching_up = False
        self._uncommitted: list[Change] = []
        self._committing: list[Change] = []
        self._commit: asyncio.Task[None] | None = None
        self._commits_begun = 0
        self._held: list[tuple[Outbox, int]] = []
        """Wait for the commit under way, with so many of their frames; those behind them came too late for it."""
        self._late: list[Outbox] = []
        """Wait for the next commit."""
        self._deferred: dict[int, Link] = {}
        """Links of which more came than was looked at, by number."""
        self._bytes_meanwhile = 0
        self._stalled: dict[Link, None] = {}
        """Links that are held up because a commit takes too long."""
        self._closing: list[int] = []

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        self._woken = False
        effects = self.broker.effects
        begun = self._commits_begun
        if effects.changes:
            self._uncommitted += effects.changes
            effects.changes.clear()
        if self._commit is None:
            if self._uncommitted:
                self._begin_commit()
        else:
            self._bytes_meanwhile += effects.pending_bytes
        effects.pending_bytes = 0
        effects.work = 0
        dirty, effects.dirty = effects.dirty, []
        committing = self._commit is not None or self._stopped
        in_time = self._commits_begun > begun
        links = self.links
        for outbox in dirty:
            if outbox.awaits_commit and committing:
                self._hold(outbox, in_time)
                continue
            outbox.awaits_commit = False
            link = links.get(outbox.number)
            if link is not None:
                link.write(outbox.take())
                if outbox.traced:
                    self._tell_written(outbox)
        gathered = len(self._uncommitted)
        if committing and (self._bytes_meanwhile > self.stall_bytes or gathered > self.stall_changes):
            self._stall()
        if effects.deferred:
            self._defer_links(effects)
        if effects.connected:
            connected, effects.connected = effects.connected, []
            for number in connected:
                self._tell(self._on_connected, links[number])
        if effects.questions:
            questions, effects.questions = effects.questions, []
            for question in questions:
                self._on_question(question)
        if effects.closed:
            self._closing += effects.closed
            effects.closed.clear()
        if self._closing:
            self._close_links()
        self._arm()

    def _defer_links(self, effects: Effects) -> None:
        """Go on with those of whom more came than one chunk may cost when the loop has read all others."""
        if not self._deferred:
            self._loop.call_soon(self._go_on)
        for number in effects.deferred:
            link = self.links.get(number)
            if link is not None:
                link.rest()
                self._deferred[number] = link
        effects.deferred.clear()

    def _go_on(self) -> None:
        deferred, self._deferred = self._deferred, {}
        effects = self.broker.effects
        while deferred and effects.work < ITERATION_WORK:
            link = deferred.pop(next(iter(deferred)))
            if link in self._stalled:
                continue  # it goes on when it is
            try:
                link.go_on()
            except Exception:  # whatever is wrong with this one, the others are to go on
                _log.exception("%s: what it sent could not be looked at", link.address, extra=about(link))
                self.broker.close(link.connection, self._loop.time(), "what it sent could not be looked at")
                link.abort()
                if link.gone:
                    link.go_on()  # which is its end
            if not link.connection.deferred and link not in self._stalled:
                link.resume_reading()
        if deferred:  # they are the first next time
            if not self._deferred:
                self._loop.call_soon(self._go_on)
            self._deferred = {**deferred, **self._deferred}

    def hold_up(self, link: Link) -> None:
        if not link.gone and link not in self._stalled:
            link.hold()
            self._stalled[link] = None

    async def settled(self) -> None:
        """Wait until everything up to now is committed, and handed to the links."""
        self.run()
        last = self._commits_begun + bool(self._uncommitted)
        while self._commit is not None and self._commits_begun <= last and not self._stopped:
            await asyncio.wait([self._commit])

    async def stop(self) -> None:
        """No timer rings any more, and nothing more is committed."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._commit is not None:
            self._commit.cancel()
            await asyncio.wait([self._commit])
            lost = len(self._committing) + len(self._uncommitted)
            _log.error("%d changes were not committed; none of them was acknowledged", lost)

    # ------------------------------------------------------------------ closing

    def _close_links(self) -> None:
        """Close the links whose connections ended, but for those with a last word that waits for a commit."""
        numbers, self._closing = self._closing, []
        for number in numbers:
            link = self.links[number]
            outbox = link.connection.outbox
            if outbox.dirty and not link.gone:
                self._closing.append(number)
                continue
            del self.links[number]
            if outbox.chunks and not link.gone:  # blocked until now: the last word follows what the link still holds
                link.write(outbox.take())
                if outbox.traced:
                    self._tell_written(outbox)
            link.finish()
            self._tell(self._on_closed, link)

    def _tell_written(self, outbox: Outbox) -> None:
        """Messages were written that are followed."""
        outbox.traced = outbox.dirty  # there may be others in what is left
        if self.on_written is not None:
            self.on_written(outbox.number)

    def _tell(self, callback: Callable[[Link], None], link: Link) -> None:
        try:
            callback(link)
        except Exception:  # a log line or a telemetry row may be lost for it, but nobody's messages
            _log.exception("%s: what is told of its connection failed", link.address, extra=about(link))

    # ------------------------------------------------------------------ time

    def _on_timer(self) -> None:
        if self._loop.time() - self._timer_at > LATE_S and not self._catching_up:
            # Clients are not silent that nobody listened to: what they sent meanwhile is yet to be read.
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
        """Let the one timer ring when the core has something due."""
        at = self.broker.due_at()
        if at is not None and not self._stopped and (self._timer is None or at < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._on_timer)
            self._timer_at = at

    # ------------------------------------------------------------------ commits

    def _begin_commit(self) -> None:
        """Commit what has gathered. A store that is done at once costs no task."""
        if self._stopped:
            return
        changes, self._uncommitted = self._uncommitted, []
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
            self._commit = self._loop.create_task(self._see_through(under_way, failure))

    async def _see_through(self, under_way: Awaitable[None] | None, failure: Exception | None) -> None:
        """Await a commit, for as many attempts as it takes; then let go what waited for it."""
        changes = self._committing
        attempts = 1
        while True:
            if failure is None:
                try:
                    if under_way is not None:
                        await under_way
                    break
                except Exception as error:  # whatever a store raises: the changes are still ours to keep
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
        self._release()
        self.run()

    def _hold(self, outbox: Outbox, in_time: bool) -> None:
        """Let an outbox wait: for the commit under way if that holds all its changes, else for the next."""
        if in_time:
            outbox.awaits_commit = False  # unless more changes come
            self._held.append((outbox, len(outbox.chunks)))
        else:
            self._late.append(outbox)
        if self.is_stalled:
            self._hold_up(outbox)

    def _release(self) -> None:
        """A commit is done: write what waited for it; the rest is for the run that follows."""
        held, self._held = self._held, []
        late, self._late = self._late, []
        dirty = self.broker.effects.dirty
        for outbox, frames in held:
            link = self.links.get(outbox.number)
            if link is not None and not link.gone:
                link.write(outbox.take_first(frames))
                if outbox.traced:
                    self._tell_written(outbox)
                if outbox.dirty:
                    dirty.append(outbox)
        dirty += late
        if self.is_stalled:
            self.is_stalled = False
            stalled, self._stalled = self._stalled, {}
            for link in stalled:
                link.release()

    def _stall(self) -> None:
        """The commit takes long: hold up everyone who waits for it, and who will."""
        if not self.is_stalled:
            self.is_stalled = True
            for outbox, _frames in self._held:
                self._hold_up(outbox)
            for outbox in self._late:
                self._hold_up(outbox)

    def _hold_up(self, outbox: Outbox) -> None:
        link = self.links.get(outbox.number)
        if link is not None:
            self.hold_up(link)
