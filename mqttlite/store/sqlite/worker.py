"""The thread of a store, so that the event loop never waits for a disk.

Jobs run one after the other, in order, but reads wait for all others: clients wait for a commit, and each read takes
milliseconds. Invariant: every job's future gets a result or an exception, unless its loop is closed.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", bool]
"""What to do, for whom, and whether it is a read."""


IDLE_S: Final = 0.02
"""How long without a job before `idle` is called."""


class Worker:
    """`after` is called after each job, `idle` when no job comes for a while, and again after as many seconds as it
    returns, if there is no job."""

    def __init__(self, name: str, after: Callable[[], None], idle: Callable[[], float | None]) -> None:
        self._jobs: Final[queue.SimpleQueue[_Job | None]] = queue.SimpleQueue()
        """The loop driver has one commit under way, and some reads (`READS_AT_ONCE`)."""
        self._reads: Final[deque[_Job]] = deque()
        """Those that wait for commits."""
        self._after: Final = after
        self._idle: Final = idle
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a job. The future belongs to the running loop."""
        return self._put(job, is_read=False)

    def submit_read(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a job that changes nothing, and that later jobs may overtake."""
        return self._put(job, is_read=True)

    def _put(self, job: Callable[[], T], *, is_read: bool) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future, is_read))
        return future

    def close(self, within_s: float) -> bool:
        """Finish the waiting jobs and end. Return whether that worked in time; if not, the thread ends with the
        process."""
        self._jobs.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        patience: float | None = None  # before the first job another thread loads the database
        while True:
            try:
                job = self._next(patience)
            except queue.Empty:
                patience = self._idle()
                continue
            if job is None:
                return
            _do(*job)
            self._after()
            patience = IDLE_S

    def _next(self, patience: float | None) -> _Job | None:
        """The next job; None at the end. Raises `queue.Empty` if none comes for so long."""
        reads = self._reads
        while True:
            try:
                job = self._jobs.get_nowait() if reads else self._jobs.get(timeout=patience)
            except queue.Empty:
                if reads:
                    return reads.popleft()
                raise
            if job is None and reads:  # they come before the end
                self._jobs.put(None)
                return reads.popleft()
            if job is None or not job[2]:
                return job
            reads.append(job)


def _do(job: Callable[[], Any], future: "asyncio.Future[Any]", _: bool) -> None:
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
    if future.done():  # the caller was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
