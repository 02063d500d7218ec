"""The port to a dataset: it keeps what the observer samples.

Invariant: no call waits or raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mqttlite.core.connect.attempts import Attempt, GivenUp
from mqttlite.telemetry.tracing import DeliveryOutcome


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group of a stream as it is now. Counters are since the start of the broker."""

    stream: str
    group: str
    mode: str
    members: int
    lag: int
    appended: int
    under_way: int
    scheduled: int
    redeliveries: int
    moves: int
    dead_letters: int


ReadGroups = Callable[[], list[Callable[[], GroupReading | None]]]
"""Lists the groups of all streams, each with what reads it; None for one that is gone."""


class Recorder(Protocol):
    """Messages, attempts and dead letters are samples. Each stands for some others."""

    @property
    def samples_per_s(self) -> int:
        """About how many of each kind it takes."""
        ...

    def on_stage(self, stage: str, qos: int, topic: bytes, microseconds: int) -> None:
        """A message passed a stage."""
        ...

    def on_sample(self, delivery: DeliveryOutcome) -> None:
        """The delivery of a message is over."""
        ...

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        """The attempt of a queue is over."""
        ...

    def on_given_up(self, letter: GivenUp, one_in: int) -> None:
        """A message became a dead letter."""
        ...

    def tick(self, jumped_s: float) -> None:
        """A second has passed, and the wall's clock jumped by so much."""
        ...
