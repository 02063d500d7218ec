"""Pushes the messages of one queue to its endpoint, one request for each message, as many as the window allows.

It takes a message, waits until the attempt is committed, and sends it; the result of the request decides on the
message. Invariants: no message is sent before its attempt is on disk; only a 2xx acknowledges it; when the pusher ends,
its messages go back to the queue.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from mqttlite.extensions.push.envelope import JSON, content_type, wrapped
from mqttlite.extensions.push.results import DENIED, GONE, NOT_REACHED, RESULTS, TIMED_OUT, Result
from mqttlite.extensions.push.signature import ID, SIGNATURE, TIMESTAMP, keys_of, signatures, webhook_id
from mqttlite.extensions.push.window import Window
from mqttlite.extensions.queues.entry import Entry
from mqttlite.extensions.queues.feed import Feed
from mqttlite.extensions.queues.outcomes import DEADLINE, DISCONNECTED, NACKED
from mqttlite.extensions.queues.push_target import PushTarget

RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 60.0
"""How long to wait after `NotReady`: at first, and at most."""

MARGIN_S: Final = 5.0
"""How much longer the lease is than the request: time for the commit before it, and the response's body."""

MAX_TAKEN: Final = 100
"""Messages taken at a time, before other work gets its turn."""

LARGE_BYTES: Final = 1_048_576
"""For payloads from this size on, the request is built in a thread, because that takes milliseconds."""

LOG_S: Final = 60.0
"""The least interval between log lines about a failing endpoint of a queue."""

_CAUSES: Final = {TIMED_OUT: DEADLINE, NOT_REACHED: DISCONNECTED, DENIED: DISCONNECTED}

_log = logging.getLogger("mqttlite.push")


class NotReady(Exception):
    """No connection can be made now, for a reason on this machine such as a file that cannot be read."""


class Sender(Protocol):
    """The interface of `Endpoint`."""

    async def post(self, body: bytes, headers: dict[str, str], within_s: float) -> Result: ...

    async def close(self) -> None: ...


class Latency(Protocol):
    """A histogram."""

    def note(self, microseconds: int) -> None: ...


class Pusher:
    """`subscription` is the queue's name in bodies. `connect` creates the connections to the endpoint and may
    raise `NotReady`, and `committed` waits until all changes are committed. `deadline_s` is the time limit of a
    request. `on_gone` is called when the push cannot go on, because the endpoint answers that it is gone or for a fault
    here, and `on_trouble` when `trouble` changes."""

    def __init__(
        self,
        *,
        queue: str,
        subscription: str,
        target: PushTarget,
        feed: Feed,
        connect: Callable[[], Awaitable[Sender]],
        committed: Callable[[], Awaitable[None]],
        deadline_s: float,
        latency: Latency,
        clock: Callable[[], float],
        wall: Callable[[], float],
        on_gone: Callable[[str], None],
        on_trouble: Callable[[], None],
    ) -> None:
        self.queue: Final = queue
        self._subscription: Final = subscription
        self.target: Final = target
        self._origin: Final = target.target.origin
        self._keys: Final = keys_of(target)
        self._feed: Final = feed
        self._connect: Final = connect
        self._committed: Final = committed
        self.deadline_s: float = deadline_s
        self._latency: Final = latency
        self._clock: Final = clock
        self._wall: Final = wall
        self._on_gone: Final = on_gone
        self._on_trouble: Final = on_trouble
        self.trouble: str = ""
        """Why no connection can be made; empty if it can. It is tried again."""
        self.window: Final = Window(target.max_requests, random.random)
        self.results: Final[dict[str, int]] = dict.fromkeys(RESULTS, 0)
        self.latest_failure: str = ""
        """The error of the latest failed request; empty after a success."""
        self._open: Final[dict[asyncio.Task[None], tuple[Entry, int]]] = {}
        """The open requests with their messages and attempts."""
        self._ready: Final = asyncio.Event()
        self._is_over = False
        self._is_gone = False
        self._logged_at = float("-inf")
        self._unlogged = 0
        self._is_warned = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._task: Final = self._loop.create_task(self._run())

    # ------------------------------------------------------------------ figures

    @property
    def open(self) -> int:
        """The number of open requests."""
        return len(self._open)

    @property
    def held_s(self) -> float:
        """For how many more seconds no requests are sent, after failures."""
        return max(0.0, self.window.held_until - self._clock())

    # ------------------------------------------------------------------ life

    def begin(self) -> None:
        """Push from now on."""
        self._feed.on_ready(self._ready.set)
        self._ready.set()

    def retry(self) -> None:
        """Try now what failed with `NotReady`."""
        self._ready.set()

    def retire(self) -> None:
        """Take no more messages. Open requests continue."""
        if not self._is_over:
            self._is_over = True
            self._feed.on_ready(None)
            self._ready.set()

    async def finished(self) -> None:
        """After `retire`: wait until no request is open."""
        await asyncio.wait([self._task])

    async def abort(self) -> None:
        """Cancel open requests. Their messages go back to the queue."""
        self.retire()
        for task in list(self._open):
            task.cancel()
        await self.finished()

    async def end_stale(self, within_s: float) -> None:
        """Wait until no request is open whose attempt has ended, for example by a seek. Cancel those that take
        longer."""
        stale = [task for task, (entry, attempt) in self._open.items() if not self._feed.left_s(entry, attempt)]
        if not stale:
            return
        _, late = await asyncio.wait(stale, timeout=within_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    # ------------------------------------------------------------------ push

    async def _run(self) -> None:
        sender: Sender | None = None
        try:
            sender = await self._connected()
            while sender is not None and not self._is_over:
                await self._ready.wait()
                self._ready.clear()
                while entries := self._take():
                    await self._committed()
                    for entry in entries:
                        self._begin_request(sender, entry)
        except Exception as error:
            _log.exception("queue %s is not pushed any more: this is a fault of the broker", self.queue)
            self.retire()
            self._on_gone(f"a fault of the broker: {error}")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            while self._open:
                await asyncio.wait(list(self._open))
            if sender is not None:
                await sender.close()

    async def _connected(self) -> Sender | None:
        """Connections to the endpoint, as soon as they can be made; None if the push is over before."""
        wait_s = RETRY_S
        while not self._is_over:
            try:
                sender = await self._connect()
            except NotReady as error:
                if self.trouble != str(error):
                    _log.error("queue %s is not pushed: %s; the broker tries again", self.queue, error)
                self.trouble = str(error)
                self._on_trouble()
                self._ready.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ready.wait(), wait_s)
                wait_s = min(2 * wait_s, MAX_RETRY_S)
                continue
            if self.trouble:
                _log.info("queue %s: the push can begin now", self.queue)
                self.trouble = ""
                self._on_trouble()
            self._ready.set()
            return sender
        return None

    def _take(self) -> list[Entry]:
        """The next messages to send."""
        if self._is_over:
            return []
        held_s = self.held_s
        if held_s > 0:
            if self._timer is None:
                self._timer = self._loop.call_later(held_s, self._on_hold_over)
            return []
        free = min(self.window.size - len(self._open), MAX_TAKEN)
        return self._feed.take(free, self.deadline_s + MARGIN_S) if free > 0 else []

    def _on_hold_over(self) -> None:
        self._timer = None
        self._ready.set()

    def _begin_request(self, sender: Sender, entry: Entry) -> None:
        attempt = entry.attempts
        within_s = min(self.deadline_s, self._feed.left_s(entry, attempt))
        if self._is_over:
            self._feed.fail(entry, attempt, "the push ended before the request", DISCONNECTED, 0.0)
        elif within_s > 0:  # otherwise the attempt ended meanwhile, for example by a seek
            task = self._loop.create_task(self._push(sender, entry, attempt, within_s))
            self._open[task] = (entry, attempt)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._ready.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("queue %s: a push failed by a fault of the broker", self.queue, exc_info=error)

    async def _push(self, sender: Sender, entry: Entry, attempt: int, within_s: float) -> None:
        began_in = self.window.round
        began_at = self._clock()
        try:
            if len(entry.message.payload) < LARGE_BYTES:
                request = self._request(entry, attempt)
            else:
                request = await asyncio.to_thread(self._request, entry, attempt)
            result = await sender.post(*request, within_s)
        except BaseException:
            self._feed.fail(entry, attempt, "the request was cut off", DISCONNECTED, 0.0)
            raise
        now = self._clock()
        self._latency.note(int((now - began_at) * 1e6))
        self.results[result.kind] += 1
        if result.is_success:
            self._feed.acknowledge(entry)
            self._on_success()
            return
        self._feed.fail(entry, attempt, f"{result.detail} of {self._origin}", _CAUSES.get(result.kind, NACKED))
        self.window.on_failure(began_in, now)
        if result.retry_after_s:
            self.window.hold(now + result.retry_after_s)
        self._note_failure(result, now)
        if result.status == GONE and not self._is_gone:
            self._is_gone = True
            self.retire()
            self._on_gone(f"{self._origin} answered {GONE} (Gone)")

    def _request(self, entry: Entry, attempt: int) -> tuple[bytes, dict[str, str]]:
        message = entry.message
        if self.target.wrapper:
            body = wrapped(message, self._subscription, attempt)
            headers = {"Content-Type": JSON}
        else:
            body = message.payload
            headers = {"Content-Type": content_type(message)}
        message_id, timestamp = webhook_id(self.queue, message.number), int(self._wall())
        headers[ID] = message_id
        headers[TIMESTAMP] = str(timestamp)
        if self._keys:
            headers[SIGNATURE] = signatures(self._keys, message_id, timestamp, body)
        return body, headers

    # ------------------------------------------------------------------ success and failure

    def _on_success(self) -> None:
        self.window.on_success(len(self._open))
        if self.latest_failure:
            self.latest_failure = ""
            if self._is_warned:
                self._is_warned = False
                _log.info("queue %s: %s takes messages again", self.queue, self._origin)

    def _note_failure(self, result: Result, now: float) -> None:
        self.latest_failure = result.detail
        self._unlogged += 1
        if now >= self._logged_at + LOG_S:
            _log.warning(
                "queue %s: %s does not take messages: %s (failed requests: %d)",
                self.queue,
                self._origin,
                result.detail,
                self._unlogged,
            )
            self._logged_at = now
            self._unlogged = 0
            self._is_warned = True
