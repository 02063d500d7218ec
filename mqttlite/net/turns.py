"""Carries out what the core wants done, once for each pass of the loop: commit, write, ask, close.

True on disk before true on the wire: an outbox that says so waits for the commit of the changes that came before it;
the others do not. Invariants: one commit is under way at most; a closed connection's link is closed after its last
write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.ports import Store
from mqttlite.core.turn import Authenticate, Outbox
from mqttlite.net.link import Link

_RETRY_COMMIT_S: Final = 1.0
"""How long to wait before a failed commit is tried again: long enough not to hammer a full disk."""

_log = logging.getLogger("mqttlite.store")


class Turns:
    """One for each broker. `links` maps the numbers of connections to the links that carry them."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        *,
        on_connected: Callable[[Link], None],
        on_closed: Callable[[Link], None],
        on_question: Callable[[Link, Authenticate], None],
    ) -> None:
        self.broker: Final = broker
        self.links: Final[dict[int, Link]] = {}
        self._store: Final = store
        self._on_connected: Final = on_connected
        self._on_closed: Final = on_closed
        self._on_question: Final = on_question
        self._loop: Final = asyncio.get_running_loop()
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._uncommitted: list[Change] = []
        self._commit: asyncio.Task[None] | None = None
        self._waiting: list[Outbox] = []
        self._closing: list[int] = []

    def wake(self) -> None:
        """Something came in: run once when this pass of the loop is over."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Do everything in the turn."""
        self._woken = False
        turn = self.broker.turn
        if turn.changes:
            self._uncommitted += turn.changes
            turn.changes.clear()
            if self._commit is None:
                self._begin_commit()
        dirty, turn.dirty = turn.dirty, []
        turn.pending_bytes = 0
        committed = self._commit is None
        links = self.links
        for outbox in dirty:
            if outbox.awaits_commit and not committed:
                self._waiting.append(outbox)
            else:
                outbox.awaits_commit = False
                links[outbox.number].write(outbox.take())
        if turn.connected:
            connected, turn.connected = turn.connected, []
            for number in connected:
                self._on_connected(links[number])
        if turn.questions:
            questions, turn.questions = turn.questions, []
            for question in questions:
                self._on_question(links[question.number], question)
        if turn.closed:
            self._closing += turn.closed
            turn.closed.clear()
        if self._closing and (committed or not self._waiting):
            self._close_links()
        if turn.hungry:
            self._loop.call_soon(self._tick)
        self._arm()

    async def settled(self) -> None:
        """Wait until nothing is left to commit or to write to a link."""
        self.run()
        while self._commit is not None:
            await asyncio.wait([self._commit])

    def stop(self) -> None:
        """No timer rings any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_links(self) -> None:
        numbers, self._closing = self._closing, []
        for number in numbers:
            link = self.links.pop(number)
            outbox = link.connection.outbox
            if outbox.chunks:  # blocked until now: the last word follows what the link still holds
                link.write(outbox.take())
            link.finish()
            self._on_closed(link)

    def _tick(self) -> None:
        self._timer = None
        self.broker.tick(self._loop.time())
        self.run()

    def _arm(self) -> None:
        """Let the one timer ring when the core has something due."""
        at = self.broker.due_at()
        if at is not None and (self._timer is None or at < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._tick)
            self._timer_at = at

    def _begin_commit(self) -> None:
        changes, self._uncommitted = self._uncommitted, []
        under_way = self._store.commit(changes)
        if under_way is not None:
            self._commit = self._loop.create_task(self._finish_commit(under_way, changes))

    async def _finish_commit(self, under_way: Awaitable[None], changes: list[Change]) -> None:
        """Await a commit, for as many attempts as it takes; then those that gathered meanwhile."""
        pending: Awaitable[None] | None = under_way
        while True:
            try:
                if pending is not None:
                    await pending
            except OSError as error:
                _log.error("commit of %d changes failed, trying again: %s", len(changes), error)
                await asyncio.sleep(_RETRY_COMMIT_S)
            else:
                if not self._uncommitted:
                    break
                changes, self._uncommitted = self._uncommitted, []
            pending = self._store.commit(changes)
        self._commit = None
        waiting, self._waiting = self._waiting, []
        self.broker.turn.dirty += waiting
        self.run()
