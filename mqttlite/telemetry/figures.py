"""A figure of a feature: its name and meaning as data, apart from its values.

The metrics port, `$SYS` and `/status` show what the features' figures name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from mqttlite.telemetry.histograms import Histogram

Values: TypeAlias = "float | Sequence[tuple[Mapping[str, str], float]] | Histogram"
"""One value, a value for each set of labels, or durations."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one feature."""

    kind: Literal["gauge", "counter", "histogram"]
    name: str
    """Behind `mqttlite_`."""
    documentation: str
    sys_topic: str = ""
    """Its topic below `$SYS/broker/`, if it has one."""
    is_held: bool = False
    """Whether `/status` has it in `held`."""
