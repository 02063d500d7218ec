"""One run of the report: read, compute, write, sum up. The only place where reading, reports and output meet.

Invariant: of a table only its first `CHART_ROWS` rows reach the driver, and only `PAGE_ROWS` of them the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TextIO

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StructField, TimestampType

from spark_analytics import units
from spark_analytics.frames import NOTABLE, PROBLEM, Finding, Frames
from spark_analytics.output import Output, flatten
from spark_analytics.page.charts import figure
from spark_analytics.page.html import Cell, Section, page
from spark_analytics.progress import Progress
from spark_analytics.read import Dataset, read
from spark_analytics.registry import REPORTS
from spark_analytics.schema import TABLES
from spark_analytics.tables import CHART_ROWS, PAGE_ROWS, Table

AT_ONCE: Final = 4
"""Tables are computed side by side: one is planned while another has tasks, and what the last task of one leaves idle
the next one takes."""

_MARKS: Final = {PROBLEM: "!", NOTABLE: "*"}


@dataclass(frozen=True)
class Summary:
    """What a run tells the person at the terminal."""

    text: str
    warnings: list[str]
    findings: list[Finding]


def run(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    overwrite: bool,
    since: datetime | None = None,
    until: datetime | None = None,
    limits: Mapping[str, int] | None = None,
    progress_to: TextIO,
) -> Summary:
    """Write all tables and the page to `target`; raise AnalyticsError if source or target do not permit it."""
    tables = [table for report in REPORTS for table in report.TABLES]
    progress = Progress(progress_to, len(TABLES) + len(tables) + 1)
    with ThreadPoolExecutor(AT_ONCE) as workers:
        try:
            output = Output(spark, target, overwrite=overwrite)
            dataset = read(spark, source, since=since, until=until, limits=limits, step=progress.step)
            output.begin()
            results: dict[str, Future[_Result]] = {}
            for table in tables:
                # What a table is made of was submitted before it, so that who waits always waits for somebody at work.
                frames = replace(dataset.frames, written=_Written(dict(results)))
                results[table.name] = workers.submit(_compute, table, frames, output, progress)
            written = _Written(results)
            told = [workers.submit(report.findings, written) for report in REPORTS]
            found = sorted((finding for each in told for finding in each.result()), key=lambda one: -one.weight)
            sections = [section for result in results.values() if (section := result.result().section) is not None]
            with progress.step("page"):
                tiles = _tiles(dataset, sections)
                place = output.write_page(page(_period(dataset), found, tiles, dataset.warnings, sections))
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    return Summary(_summary(dataset, found, place), dataset.warnings, found)


@dataclass(frozen=True)
class _Result:
    """A table as it is on disk, and what the page shows of it."""

    frame: DataFrame
    section: Section | None


class _Written(Mapping[str, DataFrame]):
    """The tables by name; who asks for one waits until it is written."""

    def __init__(self, results: Mapping[str, Future[_Result]]) -> None:
        self._results = results

    def __getitem__(self, name: str) -> DataFrame:
        return self._results[name].result().frame

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


def _compute(table: Table, frames: Frames, output: Output, progress: Progress) -> _Result:
    frame = table.report(frames)  # waits for the tables that it is made of, and is no step under way yet
    with progress.step(table.name):
        written = output.write(table.name, frame, table.sorted_by(), one_file=table.one_file)
        return _Result(written, _section(table, written) if table.on_page else None)


def _section(table: Table, frame: DataFrame) -> Section:
    wanted = CHART_ROWS if table.chart else PAGE_ROWS
    ordered = frame.orderBy(*table.sorted_by()) if table.order else frame
    rows = [row.asDict() for row in _formatted(ordered.limit(wanted)).collect()]
    return Section(
        name=table.name,
        title=table.title,
        says=table.says,
        empty=table.empty,
        figure=figure(table.chart, rows) if table.chart and rows else None,
        columns=[(units.heading(field.name), _is_number(field)) for field in frame.schema],
        rows=[[_cell(field, row[field.name]) for field in frame.schema] for row in rows[:PAGE_ROWS]],
        total=len(rows) if len(rows) < wanted else frame.count(),
    )


def _formatted(frame: DataFrame) -> DataFrame:
    """Maps, lists and timestamps as text, by Spark: collected, a timestamp would be in the zone of this process."""
    frame = flatten(frame)
    return frame.select(*(_formatted_column(field) for field in frame.schema))


def _formatted_column(field: StructField) -> Column:
    if isinstance(field.dataType, TimestampType):
        return F.date_format(field.name, "yyyy-MM-dd HH:mm:ss").alias(field.name)
    return F.col(field.name)


def _cell(field: StructField, value: Any) -> Cell:
    if value is None:
        return Cell("")
    if _is_number(field):
        return Cell(units.shown(field.name, value), float(value))
    return Cell(str(value))


def _is_number(field: StructField) -> bool:
    return isinstance(field.dataType, NumericType)


def _tiles(dataset: Dataset, sections: Sequence[Section]) -> list[tuple[str, str]]:
    """The only row of `totals`, and how much was read."""
    totals = next((section for section in sections if section.name == "totals"), None)
    tiles = []
    if totals is not None and totals.rows:
        tiles = [(heading, cell.text) for (heading, _), cell in zip(totals.columns, totals.rows[0], strict=True)]
    return [*tiles, ("files read", units.count(dataset.files))]


def _period(dataset: Dataset) -> str:
    assert dataset.starts_at is not None, "a dataset without rows is refused"
    assert dataset.ends_at is not None, "a dataset without rows is refused"
    return f"{dataset.starts_at:%Y-%m-%d %H:%M:%S} to {dataset.ends_at:%Y-%m-%d %H:%M:%S} UTC"


def _summary(dataset: Dataset, findings: Sequence[Finding], place: str) -> str:
    rows = ", ".join(f"{number:,} {table}" for table, number in dataset.rows.items() if number)
    lines = [_period(dataset), f"{rows} in {units.some(dataset.files, 'file')}", ""]
    lines += [f"{_MARKS.get(finding.weight, ' ')} {finding.sentence}" for finding in findings]
    lines += [*([""] if findings else ["Nothing stands out.", ""]), f"Look at {place}"]
    return "\n".join(lines)
