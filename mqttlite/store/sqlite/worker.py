"""The thread of a store, so that the event loop never waits for a disk.

Jobs run one after the other. Clients wait for a commit, and each read takes milliseconds, so commits go before reads,
and reads take turns with them. Invariant: every job's future gets a result or an exception, unless its loop is closed.
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

COMMITS_BETWEEN_READS: Final = 1
"""How many commits go before a read that waits. The next commit often waits before the thread is free: maintenance
comes after each, and the loop may be faster than the disk. With one, a commit still waits for one read at most, because
commits come one at a time."""


class Turns:
    """The jobs that wait, and which one is next. Jobs of one kind keep their order."""

    def __init__(self) -> None:
        self._commits: Final[deque[_Job]] = deque()
        """The loop driver has one under way."""
        self._reads: Final[deque[_Job]] = deque()
        """Some (`READS_AT_ONCE`)."""
        self._overtaken = 0
        """How many commits went before the first of the reads."""

    def __bool__(self) -> bool:
        return bool(self._commits) or bool(self._reads)

    def add(self, job: _Job) -> None:
        (self._reads if job[2] else self._commits).append(job)

    def take(self) -> _Job:
        """Raises `IndexError` if there is none."""
        if self._reads and (not self._commits or self._overtaken >= COMMITS_BETWEEN_READS):
            self._overtaken = 0
            return self._reads.popleft()
        self._overtaken += bool(self._reads)
        return self._commits.popleft()


class Worker:
    """`after` is called after each job, `idle` when no job comes for a while, and again after as many seconds as it
    returns, if there is no job."""

    def __init__(self, name: str, after: Callable[[], None], idle: Callable[[], float | None]) -> None:
        self._jobs: Final[queue.SimpleQueue[_Job | None]] = queue.SimpleQueue()
        """Those that the thread has not seen yet; None at the end."""
        self._turns: Final = Turns()
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
        turns = self._turns
        while not turns or not self._jobs.empty():
            job = self._jobs.get(timeout=patience)
            if job is not None:
                turns.add(job)
            elif turns:  # they come before the end
                self._jobs.put(None)
                break
            else:
                return None
        return turns.take()


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
