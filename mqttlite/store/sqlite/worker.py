"""The thread on which a store works, so that the event loop never waits for a disk.

Jobs are done one after the other in the order in which they were given. Invariant: every job's future gets a result or
an exception, unless its loop is closed.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


IDLE_S: Final = 0.02
"""How long no job comes before what can wait is done."""

MESSAGES_BETWEEN_RESTS: Final = 256
"""What a job does before it calls `rest`: some tenths of a millisecond."""


def rest() -> None:
    """Let another thread have Python's lock: compiled code does not give it away by itself."""
    time.sleep(0)


class Worker:
    """`after` is called behind each job, `idle` when none comes for a while, and again while it returns true."""

    def __init__(self, name: str, after: Callable[[], None], idle: Callable[[], bool]) -> None:
        self._jobs: Final[queue.SimpleQueue[_Job | None]] = queue.SimpleQueue()
        """The loop driver has one commit under way; pages are bounded by `MAX_PAGES_AT_ONCE` of the core."""
        self._after: Final = after
        self._idle: Final = idle
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Have a job done; on the running loop."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return future

    def close(self, within_s: float) -> bool:
        """Do the jobs that wait, and end; whether that is done by then. Else the thread ends with the process."""
        self._jobs.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        has_more = False  # before the first job the database is loaded on another thread
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S if has_more else None)
            except queue.Empty:
                has_more = self._idle()
                continue
            if job is None:
                return
            _do(*job)
            self._after()
            has_more = True


def _do(job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
    error: BaseException | None = None
    result = None
    try:
        result = job()
    except BaseException as raised:
        error = raised
    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():  # nobody waits any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
