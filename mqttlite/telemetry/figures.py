"""A figure: its name and meaning as data, apart from its values.

The metrics port, `$SYS` and `/status` show what the figures of the broker (`broker_figures`) and of extensions name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from mqttlite.telemetry.histograms import Histogram

MAX_REPORTED: Final = 1_000
"""Queues, or streams, the first by name, that metrics tell of: each is a dozen lines of a report."""

Labelled: TypeAlias = "Sequence[tuple[Mapping[str, str], float]]"
"""A value for each set of labels."""

Values: TypeAlias = "float | Labelled | Histogram | Sequence[tuple[Mapping[str, str], Histogram]]"
"""One value, a value for each set of labels, or durations."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of the broker or of one feature."""

    kind: Literal["gauge", "counter", "histogram"]
    name: str
    """Behind `mqttlite_`."""
    documentation: str
    sys_topic: str = ""
    """Its topic below `$SYS/broker/`, if it has one; the value there is the sum of those of all labels."""
    is_held: bool = False
    """Whether `/status` has it in `held`."""


def total(values: Values) -> float:
    """The sum of the values of all labels."""
    if isinstance(values, int | float):
        return values
    assert isinstance(values, Sequence), "durations have no sum"
    return sum(value for _, value in values if isinstance(value, int | float))
