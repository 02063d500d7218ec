"""Splits large work into parts: a fan-out, many due messages, a packet with many filters, the end of a big session.

The core charges its work to `Effects.work`, in about microseconds of the pure build. A job stops when an iteration of
the loop has used up `ITERATION_WORK`, and continues in the next one, after the loop has read every link. Invariant:
jobs run in order of arrival, one step each, so that no job waits for the end of another.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_BYTES, ITERATION_WORK
from mqttlite.core.route.permissions import Permissions


class Job:
    """A piece of work that can be interrupted."""

    __slots__ = ()

    def step(self) -> bool:
        """Do a part, until the work budget is used up. Return whether all is done.

        A step always makes progress, unless too many bytes wait to be written.
        """
        raise NotImplementedError

    def on_new_rules(self, permissions: Permissions) -> None:
        """The rules have changed: the next steps must check permissions again."""


@final
class Jobs:
    """The unfinished jobs."""

    __slots__ = ("_effects", "_running", "_waiting")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self._waiting: Final[deque[Job]] = deque()
        self._running: Job | None = None

    def __len__(self) -> int:
        """How many jobs are unfinished, including the one that is running."""
        return len(self._waiting) + (self._running is not None)

    def start(self, job: Job) -> bool:
        """Do as much of a job as the budget allows now, and the rest later. Return whether it is done."""
        if job.step():
            return True
        self._waiting.append(job)
        return False

    def queue(self, job: Job) -> None:
        """Put a job at the end of the queue."""
        self._waiting.append(job)
        self._effects.has_jobs = True

    def on_new_rules(self, permissions: Permissions) -> None:
        """Notify all jobs that the rules have changed."""
        for job in self._waiting:
            job.on_new_rules(permissions)

    def run(self) -> None:
        """Continue the jobs, one step each, until the budget of this iteration is used up."""
        effects = self._effects
        effects.has_jobs = False
        for _ in range(len(self._waiting)):
            if effects.work >= ITERATION_WORK:
                return
            job = self._running = self._waiting.popleft()
            try:
                is_done = job.step()
            finally:
                self._running = None
            if not is_done:
                self._waiting.append(job)

    def finish(self) -> None:
        """Finish all jobs regardless of the budget, because the broker stops and no iteration follows."""
        effects = self._effects
        while self._waiting:
            effects.work = effects.pending_bytes = 0
            self.run()


def has_budget(effects: Effects) -> bool:
    """Whether this iteration has room for more work and for more bytes to write. For jobs that write many bytes."""
    return effects.work < ITERATION_WORK and effects.pending_bytes < ITERATION_BYTES
