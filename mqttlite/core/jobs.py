"""Work that may be large, in parts: a fan-out, many due messages, a packet with many filters, the end of a big session.

The core charges what it does to `Effects.work`, about in microseconds of the pure build. A job stops when an iteration
of the loop has used up `ITERATION_WORK`, and continues in the next one, after the loop has read every link.
Invariant: jobs run in the order in which they came, one step each, so that no job waits for another to end.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_BYTES, ITERATION_WORK
from mqttlite.core.permissions import Permissions


class Job:
    """A piece of work that can be interrupted."""

    __slots__ = ()

    def step(self) -> bool:
        """Do a part, until the work budget is used up; whether all is done.

        A step does something, unless it waits until fewer bytes wait to be written.
        """
        raise NotImplementedError

    def on_new_rules(self, permissions: Permissions) -> None:
        """The rules have changed: ask again what was asked before, in the steps that follow."""


@final
class Jobs:
    """The jobs that have not ended."""

    __slots__ = ("_effects", "_running", "_waiting")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self._waiting: Final[deque[Job]] = deque()
        self._running: Job | None = None

    def __len__(self) -> int:
        """How many jobs have not ended, with the one that `run` is at."""
        return len(self._waiting) + (self._running is not None)

    def start(self, job: Job) -> bool:
        """Do what the budget allows of a job now, and the rest later; whether it is done."""
        if job.step():
            return True
        self._waiting.append(job)
        return False

    def queue(self, job: Job) -> None:
        """Do a job behind those that wait, not now."""
        self._waiting.append(job)

    def on_new_rules(self, permissions: Permissions) -> None:
        """Tell all jobs that the rules have changed."""
        for job in self._waiting:
            job.on_new_rules(permissions)

    def run(self) -> None:
        """Continue the jobs, one step each, until the budget of this iteration is used up."""
        effects = self._effects
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
        """Do all jobs to their end, whatever they cost: the broker stops, and no iteration follows."""
        effects = self._effects
        while self._waiting:
            effects.work = effects.pending_bytes = 0
            self.run()


def has_budget(effects: Effects) -> bool:
    """Whether this iteration has room for more work and for more bytes to write: for jobs that write many."""
    return effects.work < ITERATION_WORK and effects.pending_bytes < ITERATION_BYTES
