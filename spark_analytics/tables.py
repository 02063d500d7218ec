"""What a report's table is: the function that computes it, and how it is ordered, explained and drawn.

A module in `reports/` has `TABLES`, a tuple of `Table`, and `findings(tables)`, which reads the finished tables by
their names; `registry.py` names the modules. Invariant: a table's name is its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics.frames import Finding, Frames

PAGE_ROWS: Final = 200
"""Rows of a table on the page, first in its order: more would make a page that nobody reads to its end."""

CHART_ROWS: Final = 5_000
"""Rows that reach a chart over time: a day of minutes is 1,440, and a browser draws so many without a pause."""

Tables = Mapping[str, DataFrame]
"""The report's finished tables by name, as they are on disk: cheap to query, each as large as the fleet makes it."""


@dataclass(frozen=True)
class Chart:
    """How a table is drawn, from its first rows in the table's order.

    `bars` ranks: a bar for each of the first rows, `x` its label, the columns `y` stacked in it. `columns` is the same
    upright, for all rows, such as a histogram. `lines` is over `x`, a time: a line for each column in `y`, or with `by`
    for each value of that column, then with one `y`.
    """

    kind: Literal["bars", "columns", "lines"]
    x: str
    y: Sequence[str]
    by: str | None = None
    title: str = ""
    log: bool = False
    """The axis of the numbers is logarithmic."""
    beside: str | None = None
    """A second column that a label of `bars` has, where the first alone is of several rows."""


@dataclass(frozen=True)
class Table:
    """One table of the report. `order` names columns, those with a minus descending.

    `says` tells a stranger what a row is, what the columns are measured in, and what to look for. The unit of a column
    follows its name: `…_s` seconds, `…_us` microseconds, `…bytes…` bytes, `share` a part of one, `…per_s` per second.
    """

    name: str
    title: str
    says: str
    report: Callable[[Frames], DataFrame]
    order: Sequence[str]
    chart: Chart | None = None
    empty: str = "Nothing to show."
    one_file: bool = True
    """A table with a row per session or per device and hour stays in as many files as Spark likes."""
    page_rows: int = PAGE_ROWS

    def sorted_by(self) -> list[Column]:
        return [F.desc(name[1:]) if name.startswith("-") else F.asc(name) for name in self.order]


class ReportModule(Protocol):
    """What `registry.py` expects of a module in `reports/`."""

    @property
    def TABLES(self) -> Sequence[Table]: ...  # noqa: N802

    def findings(self, tables: Tables) -> list[Finding]: ...
