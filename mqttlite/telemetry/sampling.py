"""Selects the messages to trace for the dataset: all while there are few, one in N when there are more.

The core counts down the messages to the next sample, and then asks for the next distance. Distances are random, so that
periodic traffic is sampled fairly. Invariants: in the long run about `per_s` messages are traced each second; their
weights add up to the number of all messages.
"""

import random
from collections import deque
from typing import Final

from mqttlite.core.tracer import NO_SAMPLES

PER_S: Final = 200
"""Messages to trace each second unless the configuration says otherwise: some milliseconds of work."""

RECEIVERS: Final = 10
"""A message for more receivers counts as several messages, one for each this many receivers."""

_WINDOW_S: Final = 0.95
"""How often the rate of messages is measured anew: a call each second finds a window over."""

_GRACE: Final = 1.25
"""How many times its share a window may take before the distances double: chance alone is no burst."""

_STEP: Final = 0.05
"""What of a window's share may be taken at each doubled distance, so that a burst is traced a little all along."""


class Sampler:
    """`seed` is for tests; `now` is in seconds of any clock that only goes forward. With `per_s` 0 none is traced."""

    def __init__(self, per_s: float, now: float, seed: int | None = None) -> None:
        self._per_s: Final = per_s
        self._random: Final = random.Random(seed)
        self._began = now
        self._distance = 0
        self._unweighed = 0
        self._weights: Final[deque[int]] = deque()
        self._chosen_distance = 1
        self._chosen_passed = 0
        self._passed = 0
        self._traced = 0
        self._cost = 0.0
        self._allowed = per_s * _GRACE
        self.mean: float = 1.0
        """One message in this many is traced now."""

    @property
    def is_off(self) -> bool:
        """Whether none is traced by chance."""
        return self._per_s == 0

    def begin(self) -> int:
        """How many messages to let pass until the first is traced, itself among them."""
        self._distance = self._draw()
        return self._distance

    def next(self, now: float) -> int:
        """One is to be traced: how many to let pass until the next."""
        self._pass(self._distance)
        self._weights.append(self._unweighed)
        self._unweighed = 0
        self._note_traced(now)
        self._distance = self._draw()
        return self._distance

    def weight(self) -> int:
        """How many messages the next one stands for of those that `next` was called for; 0 where there is none left."""
        return self._weights.popleft() if self._weights else 0

    def choose(self, now: float) -> int:
        """A message passes that the configuration chose: how many messages it stands for in the dataset, or 0."""
        self._passed += 1
        self._chosen_passed += 1
        if self._per_s == 0 or self._chosen_passed < self._chosen_distance:
            return 0
        self._note_traced(now)
        weight, self._chosen_passed = self._chosen_passed, 0
        self._chosen_distance = self._draw()
        return weight

    def spend(self, receivers: int) -> None:
        """Count a traced message by its receivers."""
        if receivers > RECEIVERS:
            self._cost += receivers / RECEIVERS - 1.0

    def hurry(self, left: int, now: float) -> int:
        """To be called now and then, with what is `left` of the latest distance; returns how many to let pass instead.

        Without it a distance that was right for a flood would be long after that.
        """
        self._pass(self._distance - left)
        self._distance = left
        self._consider(now)
        if self._per_s:
            if left > 2.0 * self.mean:
                self._distance = self._draw()
            if self._chosen_distance > 2.0 * self.mean:
                self._chosen_distance = self._draw()
        return self._distance

    def _pass(self, messages: int) -> None:
        self._passed += messages
        self._unweighed += messages

    def _note_traced(self, now: float) -> None:
        self._traced += 1
        self._cost += 1.0
        self._consider(now)

    def _consider(self, now: float) -> None:
        elapsed_s = now - self._began
        if elapsed_s >= _WINDOW_S:
            each = self._cost / self._traced if self._traced else 1.0
            self.mean = max(1.0, self._passed * each / (max(1.0, self._per_s) * elapsed_s))
            self._began, self._passed, self._traced, self._cost = now, 0, 0, 0.0
            self._allowed = self._per_s * _GRACE
        elif self._cost > self._allowed:
            self.mean *= 2.0
            self._allowed += self._per_s * _STEP

    def _draw(self) -> int:
        """1 where all are traced, else anything from 1 to nearly twice the mean."""
        if self._per_s == 0:
            return NO_SAMPLES
        if self.mean <= 1.0:
            return 1
        return 1 + int(self._random.random() * 2.0 * (self.mean - 1.0) + self._random.random())
