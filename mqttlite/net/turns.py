"""Carries out what the core wants done, once for each pass of the loop: commit, write, ask, close.

True on disk before true on the wire: an outbox that says so waits for the commit of the changes that came before it;
the others do not. Invariants: one commit is under way at most, and what gathers meanwhile is the next; each outbox is
in one place, `Turn.dirty`, `_held` or `_late`; a closed connection's link is closed after its last write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.forwards import Interest, Move, Outcome, Outgoing
from mqttlite.core.limits import MAX_LEAVING, MAX_POSTPONED
from mqttlite.core.ports import Fabric, Store
from mqttlite.core.turn import Authenticate, Outbox, Turn
from mqttlite.net.link import Link, Passes, about
from mqttlite.net.pauses import Pauses

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
class Turns(Passes):
    """One for each broker."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        *,
        on_connected: Callable[[Link], None],
        on_closed: Callable[[Link], None],
        on_question: Callable[[Link, Authenticate], None],
        on_moved: Callable[[Link, Move], None],
        pauses: Pauses | None = None,
    ) -> None:
        super().__init__()
        self.broker: Final = broker
        self.fabric: Fabric | None = None
        """The way to other workers; None where there are none. Set before the first input."""
        self.on_written: Callable[[int], None] | None = None
        """Told the number of a connection whose outbox was handed to its socket with messages in it that are followed.
        What waits for a commit behind others is among them once these are."""
        self._on_moved: Final = on_moved
        self.retry_commit_s = RETRY_COMMIT_S
        self.stall_bytes = STALL_BYTES
        self.stall_changes = STALL_CHANGES
        self.max_leaving = MAX_LEAVING
        self._store: Final = store
        self._on_connected: Final = on_connected
        self._on_closed: Final = on_closed
        self._on_question: Final = on_question
        self._loop: Final = asyncio.get_running_loop()
        self.pauses: Final = pauses
        """What to do between two passes; None on a loop that others use."""
        self._woken = False
        self._is_running = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._catching_up = False
        self._uncommitted: list[Change] = []
        self._untold: list[Interest] = []
        self._committing: list[Change] = []
        self._commit: asyncio.Task[None] | None = None
        self._commits_begun = 0
        self._held: list[tuple[Outbox, int]] = []
        """Wait for the commit under way, with so many of their frames; those behind them came too late for it."""
        self._late: list[Outbox] = []
        """Wait for the next commit."""
        self._untold_outcomes: list[tuple[int, Outcome]] = []
        """What other workers are told once the commit of that number is done."""
        self._jammed: dict[Link, None] = {}
        """Links that are held up because other workers are slow."""
        self._leaving: Final[dict[int, Link]] = {}
        """Links that are not read until another worker has said whether they may come, by number."""
        self._resting: dict[int, Link] = {}
        """Links of which more came than was looked at, by number."""
        self._bytes_meanwhile = 0
        self._stalled: dict[Link, None] = {}
        """Links that are held up because a commit takes too long."""
        self._closing: list[int] = []

    def wake(self) -> None:
        if self.broker.turn.moved and not self._is_running:
            self.run()  # what those connections send from now on must not be read here
        elif not self._woken:
            self._woken = True
            self._loop.call_soon(self._end_pass)

    def _end_pass(self) -> None:
        """Do everything in the turn; then pause in a way that lets more come in, where the loop is ours alone."""
        pauses = self.pauses
        if pauses is None:
            self.run()
            return
        turn = self.broker.turn
        writes = len(turn.dirty)
        if turn.outgoing and not self.broker.postponed:  # to other workers, and nobody waits for their answer
            writes += 1
        reads = self.reads
        size = turn.pending_bytes
        self.run()
        talker = 0
        if reads == 1:
            link = self.links.get(self.talker)
            if link is not None and link.connection.framer.kept_bytes == 0:  # else it is in the middle of a word
                talker = self.talker
        pauses.after(reads, writes, size, talker, self.fabric is not None)

    def run(self) -> None:
        self._is_running = True
        try:
            self._run()
        finally:
            self._is_running = False

    def _run(self) -> None:
        self._woken = False
        self.reads = 0
        turn = self.broker.turn
        begun = self._commits_begun
        if turn.changes:
            self._uncommitted += turn.changes
            turn.changes.clear()
        if turn.interests:
            self._untold += turn.interests
            turn.interests.clear()
        if self._commit is None:
            if self._uncommitted or self._untold:
                self._begin_commit()
        else:
            self._bytes_meanwhile += turn.pending_bytes
        turn.pending_bytes = 0
        dirty, turn.dirty = turn.dirty, []
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
                if outbox.followed:
                    self._tell_written(outbox)
        gathered = len(self._uncommitted) + len(self._untold)
        if committing and (self._bytes_meanwhile > self.stall_bytes or gathered > self.stall_changes):
            self._stall()
        if turn.resting:
            self._let_rest(turn)
        if turn.leaving or turn.welcome:
            self._see_off(turn)
        if turn.outgoing or turn.moved:
            self._send(turn, committing, in_time)
        if self._jammed and self.fabric is not None and not self.fabric.is_jammed:
            self._release_jammed()
        if turn.connected:
            connected, turn.connected = turn.connected, []
            for number in connected:
                self._tell(self._on_connected, links[number])
        if turn.questions:
            questions, turn.questions = turn.questions, []
            for question in questions:
                self._on_question(links[question.number], question)
        if turn.closed:
            self._closing += turn.closed
            turn.closed.clear()
        if self._closing:
            self._close_links()
        self._arm()

    def _let_rest(self, turn: Turn) -> None:
        """Go on with those of whom more came than one chunk may cost when the loop has read all others."""
        if not self._resting:
            self._loop.call_soon(self._go_on)
        for number in turn.resting:
            link = self.links.get(number)
            if link is not None:
                link.rest()
                self._resting[number] = link
        turn.resting.clear()

    def _go_on(self) -> None:
        resting, self._resting = self._resting, {}
        for link in resting.values():
            if not self._is_free(link):
                continue  # it goes on when it is
            try:
                link.go_on()
            except Exception:  # whatever is wrong with this one, the others are to go on
                _log.exception("%s: what it sent could not be looked at", link.address, extra=about(link))
                self.broker.close(link.connection, self._loop.time(), "what it sent could not be looked at")
                link.abort()
                if link.gone:
                    link.go_on()  # which is its end
            if not link.connection.resting and self._is_free(link):
                link.resume_reading()

    def hold_up(self, link: Link) -> None:
        if not link.gone and link not in self._stalled:
            link.hold()
            self._stalled[link] = None

    def hold_up_if_jammed(self, link: Link) -> None:
        fabric = self.fabric
        if fabric is not None and (fabric.is_jammed or _waits_for_many(link)) and not link.gone:
            link.pause_reading()
            self._jammed[link] = None

    async def settled(self) -> None:
        """Wait until everything up to now is committed, and handed to the links."""
        self.run()
        last = self._commits_begun + bool(self._uncommitted or self._untold)
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
                if outbox.followed:
                    self._tell_written(outbox)
            link.finish()
            self._tell(self._on_closed, link)

    def _tell_written(self, outbox: Outbox) -> None:
        """Messages were written that are followed."""
        outbox.followed = outbox.dirty  # there may be others in what is left
        if self.on_written is not None:
            self.on_written(outbox.number)

    def _tell(self, callback: Callable[[Link], None], link: Link) -> None:
        try:
            callback(link)
        except Exception:  # a log line or a telemetry row may be lost for it, but nobody's messages
            _log.exception("%s: what is told of its connection failed", link.address, extra=about(link))

    # ------------------------------------------------------------------ other workers

    def _send(self, turn: Turn, committing: bool, in_time: bool) -> None:
        """Hand over what is for other workers, and the connections that move there."""
        moved, turn.moved = turn.moved, []
        for move in moved:
            link = self.links.pop(move.number)
            if move.traveller is not None or not link.is_lost:  # else its client did not wait to be let in
                self._on_moved(link, move)
        outgoing = turn.take_outgoing()
        if committing:
            number = self._commits_begun if in_time else self._commits_begun + 1
            at_once: list[Outgoing] = []
            for each in outgoing:
                if isinstance(each, Outcome) and each.awaits_commit:
                    self._untold_outcomes.append((number, each))
                else:
                    at_once.append(each)
            outgoing = at_once
        if outgoing and self.fabric is not None:
            self.fabric.send(outgoing)

    def _see_off(self, turn: Turn) -> None:
        """Let those go that were answered, and ask for those that would."""
        now = self._loop.time()
        welcome, turn.welcome = turn.welcome, []
        for number in welcome:
            link = self._leaving.pop(number)
            may_go = not link.gone and link.is_drained and self._is_free(link)
            if may_go and self.broker.depart(link.connection, now):
                continue
            if self._is_free(link):
                link.resume_reading()
        leaving, turn.leaving = turn.leaving, []
        for number in leaving:
            link = self.links[number]
            if (
                len(self._leaving) < self.max_leaving
                and link.is_plain
                and not link.gone
                and self._is_free(link)
                and self.broker.ask(link.connection, now)
            ):
                link.pause_reading()
                self._leaving[number] = link

    def _is_free(self, link: Link) -> bool:
        """Whether a link is held up by nothing else."""
        return link not in self._jammed and link not in self._stalled and link.connection.number not in self._leaving

    def _release_outcomes(self, done: int) -> None:
        """The commit of that number is done: tell the outcomes of what is in it."""
        due: list[Outgoing] = [outcome for number, outcome in self._untold_outcomes if number <= done]
        self._untold_outcomes = [entry for entry in self._untold_outcomes if entry[0] > done]
        if due and self.fabric is not None:
            self.fabric.send(due)

    def _release_jammed(self) -> None:
        jammed, self._jammed = self._jammed, {}
        for link in jammed:
            if _waits_for_many(link) and not link.gone:
                self._jammed[link] = None
            elif link not in self._stalled and link.connection.number not in self._leaving:
                link.resume_reading()

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
        untold, self._untold = self._untold, []
        told = self.fabric.tell(untold) if untold and self.fabric is not None else None
        failure: Exception | None = None
        under_way: Awaitable[None] | None = None
        try:
            under_way = self._store.commit(changes)
        except Exception as error:
            failure = error
        if failure is not None or under_way is not None or told is not None:
            self._commits_begun += 1
            self._bytes_meanwhile = 0
            self._committing = changes
            self._commit = self._loop.create_task(self._see_through(under_way, failure, told))

    async def _see_through(
        self, under_way: Awaitable[None] | None, failure: Exception | None, told: Awaitable[None] | None
    ) -> None:
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
        if told is not None:
            await told
        if attempts > 1:
            _log.warning("commit of %d changes succeeded at attempt %d", len(changes), attempts)
        self._commit = None
        self._committing = []
        done = self._commits_begun
        self._release()
        if self._untold_outcomes:
            self._release_outcomes(done)
        self.run()
        if self._untold_outcomes and self._commit is None and not self._stopped:  # what came meanwhile took no time
            self._release_outcomes(self._commits_begun + 1)

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
        dirty = self.broker.turn.dirty
        for outbox, frames in held:
            link = self.links.get(outbox.number)
            if link is not None and not link.gone:
                link.write(outbox.take_first(frames))
                if outbox.followed:
                    self._tell_written(outbox)
                if outbox.dirty:
                    dirty.append(outbox)
        dirty += late
        if self.is_stalled:
            self.is_stalled = False
            stalled, self._stalled = self._stalled, {}
            for link in stalled:
                link.release()
                if link in self._jammed or link.connection.number in self._leaving:
                    link.pause_reading()

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


def _waits_for_many(link: Link) -> bool:
    return len(link.connection.postponed) > MAX_POSTPONED
