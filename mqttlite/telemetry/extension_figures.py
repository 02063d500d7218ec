"""The figures of extensions: each shows its own when it starts.

Invariant: nothing is counted until somebody asks, and `$SYS` asks only for figures that have a topic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mqttlite.telemetry.figures import Figure, Values, total


class _Shown(NamedTuple):
    figures: Sequence[Figure]
    values: Callable[[], Mapping[str, Values]]
    sys_values: Callable[[], Iterable[tuple[str, str]]]


class ExtensionFigures:
    """Those of one broker."""

    def __init__(self) -> None:
        self._shown: Final[list[_Shown]] = []

    def show(
        self,
        figures: Sequence[Figure],
        values: Callable[[], Mapping[str, Values]],
        sys_values: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        """Show figures from now on. `values` gives their values by name, and `sys_values` further names below
        `$SYS/broker/` with their texts."""
        self._shown.append(_Shown(figures, values, sys_values))

    def values(self) -> Iterator[tuple[Figure, Values]]:
        """All figures with their values."""
        for shown in self._shown:
            found = shown.values()
            yield from ((each, found[each.name]) for each in shown.figures)

    def sys_values(self) -> Iterator[tuple[str, str]]:
        """What is published below `$SYS/broker/`: names and texts."""
        for shown in self._shown:
            published = [each for each in shown.figures if each.sys_topic]
            found = shown.values() if published else {}
            yield from ((each.sys_topic, str(total(found[each.name]))) for each in published)
            yield from shown.sys_values()
