"""Running a handler on the messages of a queue, some at a time.

Invariant: a message for which a handler was started is acknowledged, refused or given back before `run` returns.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias, final

from mqttlite.client.queue_message import QueueMessage

EXTEND_BY_S: Final = 10.0
"""The shortest deadline that queues have without `allow_short_deadlines`: who dies has its messages no longer."""

MAX_EXTENSION_S: Final = 3_600.0
"""A handler that hangs keeps its message no longer than this."""

STOP_TIMEOUT_S: Final = 30.0
"""As long as most service managers wait before they kill."""

MAX_CONCURRENCY: Final = 10_000

Handler: TypeAlias = Callable[[QueueMessage], Any]
"""Takes a message; what it returns is not used. A coroutine function, or one that may block, which runs in a thread."""

_log: Final = logging.getLogger("mqttlite.client")


class Source(Protocol):
    """The queue."""

    @property
    def name(self) -> str: ...
    async def __anext__(self) -> QueueMessage: ...
    async def ended(self) -> None: ...
    def stop(self) -> None: ...
    def give_back(self, messages: list[QueueMessage], /) -> None: ...
    def extend_all(self, seconds: float, arrived_after: float, /) -> None: ...


@final
class Handlers:
    """The handlers of one `run`."""

    def __init__(self, queue: Source, handler: Handler, concurrency: int, nack_delay: float | None) -> None:
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency is {concurrency}: it may be 1 to {MAX_CONCURRENCY}")
        if nack_delay is not None and not 0 <= nack_delay < float("inf"):
            raise ValueError(f"nack_delay is {nack_delay}: it is a number of seconds from 0")
        self._queue: Final = queue
        self._handler: Final = handler
        self._concurrency: Final = concurrency
        self._nack_delay: Final = nack_delay
        self._running: Final[dict[asyncio.Task[None], QueueMessage]] = {}
        self._threads: Final = None if is_async(handler) else ThreadPoolExecutor(concurrency, f"queue-{queue.name}")

    async def run(self, extend_by: float, max_extension: float, stop_timeout: float) -> None:
        """As `Queue.run`."""
        if not 0 < extend_by < float("inf"):
            raise ValueError(f"extend_by is {extend_by}: it is a number of seconds above 0")
        taking = asyncio.create_task(self._take())
        ended = asyncio.create_task(self._queue.ended())
        extending = asyncio.create_task(self._extend(extend_by, max_extension))
        grace_s = 0.0
        try:
            await asyncio.wait((taking, ended), return_when=asyncio.FIRST_COMPLETED)
            grace_s = stop_timeout
        finally:
            taking.cancel()
            ended.cancel()
            self._queue.stop()
            try:
                await self._finish(grace_s)
            finally:
                extending.cancel()
                if self._threads is not None:
                    self._threads.shutdown(wait=False, cancel_futures=True)
        if not ended.cancelled():
            ended.result()  # raises why the client ended

    async def _take(self) -> None:
        """Start a handler for each message, as long as messages come."""
        room = asyncio.Semaphore(self._concurrency)
        while True:
            await room.acquire()
            try:
                message = await self._queue.__anext__()
            except StopAsyncIteration:
                return
            task = asyncio.create_task(self._handle(message))
            self._running[task] = message
            task.add_done_callback(self._running.pop)
            task.add_done_callback(lambda _task: room.release())

    async def _finish(self, grace_s: float) -> None:
        """Wait for the handlers that run, and cancel those that take too long."""
        running = dict(self._running)
        if running and grace_s:
            await asyncio.wait(running, timeout=grace_s)
        for task in running:
            task.cancel()
        try:
            await asyncio.gather(*running, return_exceptions=True)
        finally:
            self._queue.give_back(list(running.values()))

    async def _handle(self, message: QueueMessage) -> None:
        try:
            if self._threads is None:
                await self._handler(message)
            else:
                result = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, message)
                if inspect.isawaitable(result):  # of a function that only returns a coroutine
                    await result
        except Exception:
            _log.exception("A message of the queue %s was not handled (attempt %d)", self._queue.name, message.attempt)
            message.nack(self._nack_delay)
        else:
            message.ack()

    async def _extend(self, extend_by: float, max_extension: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(extend_by / 3)
            self._queue.extend_all(extend_by, loop.time() - max_extension)


def is_async(handler: Callable[..., object]) -> bool:
    """Whether to call it gives a coroutine; an object with such a `__call__` counts."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
