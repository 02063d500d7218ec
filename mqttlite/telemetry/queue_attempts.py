"""Records the attempts of queues: samples of them and of dead letters, and the attempts of traced messages.

Implements `AttemptTracer`. Invariants: about `samples_per_s` samples a second of each kind are recorded, whatever
queues do; at most `MAX_KEPT` attempts and `MAX_KEPT_BYTES` of traced messages are kept, and the oldest messages are
dropped first.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from mqttlite.core.connect.attempts import Attempt, GivenUp
from mqttlite.telemetry.recorder import Recorder
from mqttlite.telemetry.sampling import Sampler
from mqttlite.telemetry.wall import Wall
from mqttlite.telemetry.why import clock as time_of_day
from mqttlite.telemetry.why import duration

MAX_KEPT: Final = 10_000
MAX_KEPT_BYTES: Final = 8 * 1_048_576
"""Attempts of traced messages, as many as the delivery log has outcomes."""

KEPT_BYTES: Final = 400
"""What one takes in memory beside the names in it."""

MAX_DETAIL: Final = 200
"""Characters of what a consumer said."""


class _Samples:
    """Chooses about this many samples a second."""

    __slots__ = ("_left", "_sampler", "_stopwatch")

    def __init__(self, per_s: float, stopwatch: Callable[[], float], seed: int | None) -> None:
        self._stopwatch: Final = stopwatch
        self._sampler: Final = Sampler(per_s, stopwatch(), seed)
        self._left = self._sampler.begin()

    def take(self) -> int:
        """For how many the one that passes stands; 0: it is not chosen."""
        self._left -= 1
        if self._left > 0:
            return 0
        self._left = self._sampler.next(self._stopwatch())
        return self._sampler.weight()

    def hurry(self) -> None:
        """Adapt to the rate; to be called each second."""
        self._left = self._sampler.hurry(self._left, self._stopwatch())


class _Kept(NamedTuple):
    """An attempt without its message, which may be large."""

    queue: str
    number: int
    consumer: str
    delivered_at: float
    ended_at: float
    outcome: str
    detail: str
    behind: int

    @property
    def size_bytes(self) -> int:
        return KEPT_BYTES + len(self.queue) + len(self.consumer) + len(self.detail)


class QueueAttempts:
    """Without a recorder it is told of traced messages only."""

    def __init__(
        self, wall: Wall, recorder: Recorder | None, stopwatch: Callable[[], float], seed: int | None = None
    ) -> None:
        self._wall: Final = wall
        self._recorder: Final = recorder
        per_s = 0.0 if recorder is None else recorder.samples_per_s
        self._ended: Final = _Samples(per_s, stopwatch, seed)
        self._failed: Final = _Samples(per_s, stopwatch, seed)
        self._given_up: Final = _Samples(per_s, stopwatch, seed)
        self._kept: Final[dict[int, list[_Kept]]] = {}
        self._kept_attempts = 0
        self._kept_bytes = 0

    # ------------------------------------------------------------------ as `AttemptTracer`

    def sample(self, is_failure: bool) -> int:
        return self._failed.take() if is_failure else self._ended.take()

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        if attempt.message.trace:
            self._keep(attempt)
        if one_in and self._recorder is not None:
            self._recorder.on_attempt(attempt, one_in)

    def on_given_up(self, letter: GivenUp) -> None:
        one_in = self._given_up.take()
        if one_in and self._recorder is not None:
            self._recorder.on_given_up(letter, one_in)

    # ------------------------------------------------------------------ time

    def tick(self) -> None:
        """Adapt the sampling; due about every second."""
        for each in (self._ended, self._failed, self._given_up):
            each.hurry()

    # ------------------------------------------------------------------ what is known of traced messages

    def sentences(self, trace: int) -> list[str]:
        """The attempts of a message that are over, oldest first."""
        return [self._sentence(attempt) for attempt in self._kept.get(trace, ())]

    def entries(self, trace: int) -> list[dict[str, object]]:
        """The same as data."""
        return [
            {
                "queue": each.queue,
                "attempt": each.number,
                "consumer": each.consumer or None,
                "delivered_at": self._wall.at(each.delivered_at).isoformat(),
                "ended_at": self._wall.at(each.ended_at).isoformat(),
                "outcome": each.outcome,
                "detail": each.detail or None,
                "behind": each.behind,
            }
            for each in self._kept.get(trace, ())
        ]

    # ------------------------------------------------------------------ inside

    def _sentence(self, attempt: _Kept) -> str:
        at, held_s = self._wall.at(attempt.delivered_at), attempt.ended_at - attempt.delivered_at
        whom = f"to {attempt.consumer}" if attempt.consumer else "to a consumer that gave no name"
        detail = f" ({attempt.detail})" if attempt.detail else ""
        return (
            f"attempt {attempt.number} of queue {attempt.queue}: delivered {whom} at {time_of_day(at)},"
            f" {attempt.outcome} after {duration(held_s)}{detail}"
        )

    def _keep(self, attempt: Attempt) -> None:
        kept = _Kept(
            attempt.queue,
            attempt.number,
            attempt.consumer,
            attempt.delivered_at,
            attempt.ended_at,
            attempt.outcome,
            attempt.detail[:MAX_DETAIL],
            attempt.behind,
        )
        self._kept.setdefault(attempt.message.trace, []).append(kept)
        self._kept_attempts += 1
        self._kept_bytes += kept.size_bytes
        while self._kept_attempts > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_attempts -= len(oldest)
            self._kept_bytes -= sum(each.size_bytes for each in oldest)
