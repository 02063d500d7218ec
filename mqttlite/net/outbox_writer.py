"""Writes dirty outboxes to their links: a bounded number in each iteration of the loop, in order.

The rest follows in later iterations, after the loop has read all links again. Invariant: each dirty outbox is in
exactly one place: `Effects.dirty`, `unwritten`, `committed`, or among those that wait for a commit (`commits`).
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import HoldReason
from mqttlite.net.commits import Commits
from mqttlite.net.link import LinkPort

WRITES_PER_ITERATION: Final = 256
"""How many outboxes one iteration of the loop writes: a write takes about 20 microseconds, most of it in the kernel."""

BYTES_PER_ITERATION: Final = 2 * 1_048_576
"""How many bytes one iteration writes, because the cost of a long write grows with its length: some milliseconds."""

NEW_WRITES: Final = WRITES_PER_ITERATION // 2
NEW_BYTES: Final = BYTES_PER_ITERATION // 2
"""The part of `BYTES_PER_ITERATION` for outboxes that became dirty in this iteration while older ones wait. So a
message for one client passes the copies of a message for thousands, and no copy waits for ever."""


@final
class OutboxWriter:
    """`links` is the loop driver's table, by the number of the connection."""

    def __init__(self, effects: Effects, links: dict[int, LinkPort], commits: Commits) -> None:
        self.on_written: Callable[[int], None] | None = None
        """Called with a connection number after an outbox with traced messages was written to its link. Traced messages
        behind frames that wait for a commit are reported together with those frames."""
        self.unwritten: Final[deque[Outbox]] = deque()
        """Dirty outboxes that an iteration had no room for, in order."""
        self.unwritten_bytes: int = 0
        """About how many bytes `unwritten` holds: the rest of `Effects.pending_bytes` after an iteration."""
        self.committed: Final[deque[tuple[Outbox, int]]] = deque()
        """Outboxes whose commit is done, with the number of frames that waited for it. They wait for an iteration with
        room."""
        self._effects: Final = effects
        self._links: Final = links
        self._commits: Final = commits
        self._writes_left = WRITES_PER_ITERATION
        self._bytes_left = BYTES_PER_ITERATION
        self._written = 0
        """How many outboxes have left `unwritten` so far."""
        self._waiting_links: Final[deque[tuple[LinkPort, int]]] = deque()
        """Links that are held because they published too much, each until `_written` reaches its number: by then all
        outboxes that were in `unwritten` have left it."""

    def begin_iteration(self) -> None:
        self._writes_left = WRITES_PER_ITERATION
        self._bytes_left = BYTES_PER_ITERATION

    def write_dirty(self, in_time: bool) -> None:
        """Write the outboxes that became dirty, as far as this iteration has room; put the others into `unwritten`.

        `in_time` says that the commit under way contains all changes made so far. If older outboxes still wait, they
        stay first in the next iteration.
        """
        effects = self._effects
        links = self._links
        unwritten = self.unwritten
        commits = self._commits
        committing = commits.is_under_way
        before = len(unwritten)
        writes_kept = WRITES_PER_ITERATION - NEW_WRITES if before else 0
        bytes_kept = BYTES_PER_ITERATION - NEW_BYTES if before else 0
        writes_left = self._writes_left
        bytes_left = self._bytes_left
        if before and (writes_left <= writes_kept or bytes_left <= bytes_kept):
            return
        dirty = effects.take_dirty()
        for outbox in dirty:
            if outbox.awaits_commit and committing:
                commits.hold(outbox, in_time)
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
        else:
            effects.pending_bytes = 0

    def write_committed(self) -> None:
        """Write the frames that waited for a commit, as far as this iteration has room; `committed` keeps the
        others."""
        committed = self.committed
        while committed and self._writes_left > 0 and self._bytes_left > 0:
            outbox, frames = committed.popleft()
            link = self._links.get(outbox.number)
            if link is not None and not link.gone:
                data = outbox.take_first(frames)
                self._writes_left -= 1
                self._bytes_left -= len(data)
                link.write(data)
                if outbox.traced:
                    self._tell_written(outbox)
                if outbox.dirty:
                    self._effects.dirty.append(outbox)

    def write_more(self) -> None:
        """Write the outboxes left by earlier iterations, as far as this one has room; then release the links that
        waited for them."""
        effects = self._effects
        unwritten = self.unwritten
        before = len(unwritten)
        while unwritten and self._writes_left > 0 and self._bytes_left > 0:
            outbox = unwritten.popleft()
            self._written += 1
            if outbox.awaits_commit and self._commits.is_under_way:
                self._commits.hold(outbox, False)  # meanwhile it got frames that wait for a commit
                continue
            outbox.awaits_commit = False
            link = self._links.get(outbox.number)
            if link is not None:
                data = outbox.take()
                self._writes_left -= 1
                self._bytes_left -= len(data)
                link.write(data)
                if outbox.traced:
                    self._tell_written(outbox)
        effects.pending_bytes = effects.pending_bytes * len(unwritten) // before
        self.unwritten_bytes = effects.pending_bytes
        while self._waiting_links and self._waiting_links[0][1] <= self._written:
            self._waiting_links.popleft()[0].release(HoldReason.UNWRITTEN)

    def write_last(self, link: LinkPort) -> None:
        """Write the last frames of an ended connection, such as DISCONNECT, after those that its link still holds."""
        outbox = link.connection.outbox
        link.write(outbox.take())
        if outbox.traced:
            self._tell_written(outbox)

    def hold_link(self, link: LinkPort) -> None:
        """Hold a link until all outboxes now in `unwritten` have left it."""
        if not link.gone and not link.connection.hold_reasons & HoldReason.UNWRITTEN:
            link.hold(HoldReason.UNWRITTEN)
            self._waiting_links.append((link, self._written + len(self.unwritten)))

    def _tell_written(self, outbox: Outbox) -> None:
        """Report that traced messages were written."""
        outbox.traced = outbox.dirty  # the remaining frames may contain more
        if self.on_written is not None:
            self.on_written(outbox.number)
