"""Work that may be large, in parts: a fan-out, many wills, a packet with many filters, the end of a big session.

The core charges what it does to `Effects.work`, about in microseconds of the pure build. A job stops when an iteration
of the loop has used up `ITERATION_WORK`, and goes on in the next one, after every link had its turn to be read.
Invariant: jobs take turns in the order in which they came, so that none waits for another to end.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import ITERATION_WORK


class Job:
    """A piece of work that can be interrupted."""

    __slots__ = ()

    def step(self) -> bool:
        """Do a part, until the work budget is used up; whether all is done."""
        raise NotImplementedError


@final
class Jobs:
    """The jobs that are under way."""

    __slots__ = ("_effects", "_waiting")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self._waiting: Final[deque[Job]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, job: Job) -> bool:
        """Do what the budget allows of a job now, and the rest later; whether it is done."""
        if job.step():
            return True
        self._waiting.append(job)
        return False

    def run(self) -> None:
        """Go on with the jobs, each in its turn, as far as the budget of this iteration goes."""
        effects = self._effects
        for _ in range(len(self._waiting)):
            if effects.work >= ITERATION_WORK:
                return
            job = self._waiting.popleft()
            if not job.step():
                self._waiting.append(job)
