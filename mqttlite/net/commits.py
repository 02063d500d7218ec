"""Makes the changes of the core durable: one commit at a time, retried until it succeeds.

It also holds the outboxes whose frames wait for a commit. Invariants: at most one commit is under way, and changes that
arrive meanwhile go into the next one; an outbox in `held` waits for the commit under way, one in `late` for the next.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.changes import Change
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.ports import Store, UnderWay
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import LinkDriver, LinkPort
from mqttlite.wire.encode import PINGRESP_FRAME

RETRY_COMMIT_S: Final = 0.25
"""How long to wait before a failed commit is retried: the delay until work resumes after the disk recovers."""

STALL_BYTES: Final = 16 * 1_048_576
STALL_CHANGES: Final = 10_000
"""How many bytes may be written, or changes arrive, during one commit. Beyond it, links that wait for a commit or make
more changes are held. Bounds the memory cost of a slow or full disk; a healthy disk commits this much in some tens of
milliseconds."""

CHANGE_BYTES: Final = 400
"""About how much memory a change takes that waits, besides its message: the change, and what is to be told of it."""

LATE_COMMIT_S: Final = 2.0
"""When a commit takes longer, PINGRESP overtakes the frames that wait for it: a client without an answer would
reconnect and send its messages again. Before that, PINGRESP stays behind earlier frames."""

_log = logging.getLogger("mqttlite.store")


@final
class Commits:
    """`on_done` is called after each commit that did not complete at once, when `held` and `late` may be written."""

    def __init__(self, store: Store, effects: Effects, driver: LinkDriver, on_done: Callable[[], None]) -> None:
        self.retry_commit_s: float = RETRY_COMMIT_S
        self.late_commit_s: float = LATE_COMMIT_S
        self.stall_bytes: int = STALL_BYTES
        self.stall_changes: int = STALL_CHANGES
        self.is_under_way: bool = False
        """Whether a commit is under way. Stays true after `stop`, so that frames that wait for a commit are never
        written."""
        self.begun: int = 0
        """How many commits were begun that did not complete at once."""
        self.uncommitted: list[Change] = []
        """The changes for the next commit."""
        self.held: list[tuple[Outbox, int]] = []
        """Outboxes, and how many of their frames wait for the commit under way; later frames wait for the next one."""
        self.late: list[Outbox] = []
        """Outboxes that wait for the next commit."""
        self._store: Final = store
        self._effects: Final = effects
        self._driver: Final = driver
        self._on_done: Final = on_done
        self._loop: Final = asyncio.get_running_loop()
        self._stopped = False
        self._uncommitted_bytes = 0
        self._charged_bytes = 0
        """How much of the broker's memory is charged for `uncommitted`, while links are held for a commit."""
        self._bytes_meanwhile = 0
        """How many bytes were written during the commit under way."""
        self._committing: list[Change] = []
        self._awaiting: list[AwaitsCommit] = []
        """Told when the commit under way is done."""
        self._attempts = 0
        """How often the commit under way was tried."""
        self._under_way: UnderWay | None = None
        """The latest attempt, until it ends."""
        self._retry_timer: asyncio.TimerHandle | None = None
        self._settling: list[asyncio.Future[None]] = []
        """Those of `settled`, until the commit under way is done."""
        self._began_at = 0.0
        self._ping_timer: asyncio.TimerHandle | None = None
        """Fires when clients that wait for a late commit must get their PINGRESP. It is not cancelled when a commit is
        done, because a timer for each commit would cost more than one that fires for nothing."""
        self._waiting_links: list[LinkPort] = []
        """Links that are held because a commit takes too long."""

    def go_on(self, new_bytes: int) -> None:
        """Collect the changes of the effects, and commit them unless a commit is under way. `new_bytes` is how many
        bytes were added to outboxes since the last call."""
        effects = self._effects
        if effects.changes:
            self.uncommitted += effects.changes
            effects.changes.clear()
            self._uncommitted_bytes += effects.changed_bytes
            effects.changed_bytes = 0
        if self.is_under_way:
            self._bytes_meanwhile += new_bytes
        elif self.uncommitted:
            self._begin()

    def probe(self) -> None:
        """Commit nothing, so that a store that cannot be written is noticed before a client waits for it."""
        self.go_on(0)
        if not self.is_under_way:
            self._begin()

    def _begin(self) -> None:
        """Commit the collected changes."""
        self._committing, self.uncommitted = self.uncommitted, []
        self._uncommitted_bytes = 0
        self._awaiting = self._effects.take_awaiting()
        self._attempts = 0
        if self._try():
            self._finish()
            return
        self.begun += 1
        self._bytes_meanwhile = 0
        self.is_under_way = True
        self._began_at = self._loop.time()
        if self._ping_timer is None:
            self._ping_timer = self._loop.call_later(self.late_commit_s, self._answer_pings)

    def _try(self) -> bool:
        """Commit the changes. Return whether they are durable already."""
        self._attempts += 1
        try:
            under_way = self._store.commit(self._committing)
        except Exception as error:  # whatever a store raises, the changes must not be lost
            self._fail(error)
            return False
        if under_way is None:
            return True
        self._under_way = under_way
        under_way.add_done_callback(self._on_end)
        return False

    def _try_again(self) -> None:
        self._retry_timer = None
        if self._try():
            self._end()

    def _on_end(self, under_way: UnderWay) -> None:
        """An attempt is done, failed, or was given up because the broker stops."""
        self._under_way = None
        if under_way.cancelled():
            self._settle()
            return
        error = under_way.exception()
        if self._stopped:
            if error is None:
                self._committing = []
            self._settle()
        elif error is None:
            self._end()
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Log that an attempt failed, and try again a little later."""
        attempts = self._attempts
        if attempts & (attempts - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a disk may be full for hours
            detail = error if isinstance(error, OSError) else repr(error)
            _log.error(
                "commit of %d changes failed (attempt %d), trying again: %s", len(self._committing), attempts, detail
            )
        self._retry_timer = self._loop.call_later(self.retry_commit_s, self._try_again)

    def _end(self) -> None:
        """The commit under way is done: let the driver write the frames that waited for it."""
        if self._attempts > 1:
            _log.warning("commit of %d changes succeeded at attempt %d", len(self._committing), self._attempts)
        self.is_under_way = False
        try:
            self._finish()
        finally:  # whatever a listener raises, frames and links must not wait for ever
            self._settle()
            self._on_done()

    def _finish(self) -> None:
        """Tell those who wait that the commit is done."""
        self._committing = []
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, []
            now = self._loop.time()
            for each in awaiting:
                each.on_committed(now)

    def _settle(self) -> None:
        settling, self._settling = self._settling, []
        for each in settling:
            if not each.done():
                each.set_result(None)

    async def settled(self) -> None:
        """Wait until all changes made so far are committed, or the broker stops."""
        last = self.begun + bool(self.uncommitted)
        while self.is_under_way and self.begun <= last and not self._stopped:
            done: asyncio.Future[None] = self._loop.create_future()
            self._settling.append(done)
            await done

    async def stop(self) -> None:
        """Stop committing: cancel a commit under way, and log how many changes are lost."""
        is_under_way = self.is_under_way
        self._stopped = True
        self.is_under_way = True
        for timer in (self._ping_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if is_under_way:
            if self._under_way is not None:
                self._under_way.cancel()
                given_up: asyncio.Future[None] = self._loop.create_future()
                self._settling.append(given_up)
                await given_up
            lost = len(self._committing) + len(self.uncommitted)
            if lost:
                _log.error("%d changes were not committed; none of them was acknowledged", lost)
        self._settle()

    # ------------------------------------------------------------------ outboxes that wait

    def hold(self, outbox: Outbox, in_time: bool) -> None:
        """Make an outbox wait: for the commit under way if that contains all its changes (`in_time`), else for the next
        one."""
        if in_time:
            outbox.awaits_commit = False  # set again by frames with more changes
            self.held.append((outbox, len(outbox.chunks)))
        else:
            self.late.append(outbox)
        if self._driver.is_stalled:
            self._hold_link_of(outbox)

    def _answer_pings(self) -> None:
        """If the commit under way is late, write each PINGRESP that waits behind other frames, now and at each
        retry."""
        self._ping_timer = None
        if not self.is_under_way:
            return
        early_s = self._began_at + self.late_commit_s - self._loop.time()
        if early_s > 0:  # it was set for an earlier commit
            self._ping_timer = self._loop.call_later(early_s, self._answer_pings)
            return
        for at, (outbox, frames) in enumerate(self.held):
            self.held[at] = (outbox, frames - self._answer_ping(outbox, frames))
        for outbox in self.late:
            self._answer_ping(outbox, 0)
        self._ping_timer = self._loop.call_later(self.retry_commit_s, self._answer_pings)

    def _answer_ping(self, outbox: Outbox, frames: int) -> int:
        """Write each PINGRESP of an outbox. Return how many of its first `frames` frames these were."""
        link = self._driver.links.get(outbox.number)
        if link is None or link.gone or outbox.link_blocked:
            return 0
        found, in_front = outbox.take_out(PINGRESP_FRAME, frames)
        if found:
            link.write(PINGRESP_FRAME * found)
        return in_front

    # ------------------------------------------------------------------ links that wait

    def stall_if_long(self) -> None:
        """Hold all links that wait for a commit, if too much arrived during the one under way. New clients add more:
        what waits from then on is charged to the broker's memory, so that it refuses them before it has none left."""
        if not self._driver.is_stalled and (
            self._bytes_meanwhile > self.stall_bytes
            or self._uncommitted_bytes > self.stall_bytes
            or len(self.uncommitted) > self.stall_changes
        ):
            self._driver.is_stalled = True
            for outbox, _frames in self.held:
                self._hold_link_of(outbox)
            for outbox in self.late:
                self._hold_link_of(outbox)
        if self._driver.is_stalled:
            self._charge(CHANGE_BYTES * len(self.uncommitted) + self._uncommitted_bytes)

    def _charge(self, waiting_bytes: int) -> None:
        self._effects.memory.used += waiting_bytes - self._charged_bytes
        self._charged_bytes = waiting_bytes

    def end_stall(self) -> None:
        """Release the links that were held for a commit."""
        if self._driver.is_stalled:
            self._driver.is_stalled = False
            self._charge(0)
            released, self._waiting_links = self._waiting_links, []
            for link in released:
                link.release(HoldReason.COMMIT)

    def _hold_link_of(self, outbox: Outbox) -> None:
        link = self._driver.links.get(outbox.number)
        if link is not None:
            self.hold_link(link)

    def hold_link(self, link: LinkPort) -> None:
        """Hold a link until the commit under way is done."""
        if not link.gone and not link.connection.hold_reasons & HoldReason.COMMIT:
            link.hold(HoldReason.COMMIT)
            self._waiting_links.append(link)
