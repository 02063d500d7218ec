"""One run of the report: read, compute, write, sum up. The only place where reading, reports and output meet.

Invariant: of a table only its first `CHART_ROWS` rows reach the driver, and only its `page_rows` the page; beside
them the rows of a few clients, see `reports/clients`.
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

from spark_analytics import streams, units
from spark_analytics.frames import NOTABLE, PROBLEM, Finding, Frames
from spark_analytics.output import Output, flatten
from spark_analytics.page.charts import figure
from spark_analytics.page.html import Cell, Content, Head, Section, page
from spark_analytics.progress import Progress
from spark_analytics.read import Dataset, read
from spark_analytics.registry import REPORTS
from spark_analytics.reports.clients import views
from spark_analytics.schema import TABLES
from spark_analytics.sections import SECTIONS
from spark_analytics.tables import CHART_ROWS, ReportModule, Table
from spark_analytics.verdict import verdict

AT_ONCE: Final = 4
"""Tables are computed side by side: one is planned while another has tasks, and what the last task of one leaves idle
the next one takes."""

_ON_PAGE: Final = frozenset(name for names in SECTIONS.values() for name in names)

_CLIENTS: Final = frozenset({"client_id", "slowest_client"})
"""Columns that name a client."""

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
    archive: str | None = None,
    progress_to: TextIO,
) -> Summary:
    """Write all tables and the page to `target`; raise AnalyticsError if source or target do not permit it. `archive`
    is the directory of an archive of streams."""
    progress = Progress(progress_to, len(TABLES) + sum(len(report.TABLES) for report in REPORTS) + 1)
    with ThreadPoolExecutor(AT_ONCE) as workers:
        try:
            output = Output(spark, target, overwrite=overwrite)
            dataset = read(spark, source, since=since, until=until, limits=limits, step=progress.step)
            given = dataset.frames
            if archive is not None:
                given = replace(given, archived=streams.read_all(spark, archive, since=since, until=until))
            output.begin()
            results: dict[str, Future[_Result]] = {}
            told = []
            for report in REPORTS:
                for table in report.TABLES:
                    # What it is made of was submitted before it, so that who waits always waits for somebody at work.
                    frames = replace(given, written=_Written(dict(results)))
                    results[table.name] = workers.submit(_compute, table, frames, output, progress)
                told.append(workers.submit(_find, report, _Written(dict(results)), progress))
            found = sorted((finding for each in told for finding in each.result()), key=lambda one: -one.weight)
            written = _Written(results)
            with progress.step("page"):
                said = verdict(written)
                head = _head(dataset, said, found, written["totals"])
                content = Content(_chapters(results), views(written))
                place = output.write_page(page(head, content))
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    return Summary(_summary(dataset, said, found, place), dataset.warnings, found)


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


def _find(report: ReportModule, written: _Written, progress: Progress) -> list[Finding]:
    """What a report finds; problems are told at once, for the other reports take a while."""
    found = report.findings(written)
    for finding in found:
        if finding.weight == PROBLEM:
            progress.tell(f"{_MARKS[PROBLEM]} {finding.sentence}")
    return found


def _compute(table: Table, frames: Frames, output: Output, progress: Progress) -> _Result:
    frame = table.report(frames)  # waits for the tables that it is made of, and is no step under way yet
    with progress.step(table.name):
        written = output.write(table.name, frame, table.sorted_by(), one_file=table.one_file)
        return _Result(written, _section(table, written) if table.name in _ON_PAGE else None)


def _chapters(results: Mapping[str, Future[_Result]]) -> dict[str, list[Section]]:
    """By their title, the tables of each section that the page has."""
    return {
        title: [section for name in names if (section := results[name].result().section) is not None]
        for title, names in SECTIONS.items()
    }


def _section(table: Table, frame: DataFrame) -> Section:
    wanted = CHART_ROWS if table.chart else table.page_rows
    ordered = frame.orderBy(*table.sorted_by()) if table.order else frame
    rows = [row.asDict() for row in _formatted(ordered.limit(wanted)).collect()]
    return Section(
        name=table.name,
        title=table.title,
        says=table.says,
        empty=table.empty,
        figure=figure(table.chart, rows) if table.chart and rows else None,
        columns=[(units.heading(field.name), _is_number(field)) for field in frame.schema],
        rows=[[_cell(field, row[field.name]) for field in frame.schema] for row in rows[: table.page_rows]],
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
    return Cell(str(value), client_id=str(value) if field.name in _CLIENTS else None)


def _is_number(field: StructField) -> bool:
    return isinstance(field.dataType, NumericType)


def _head(dataset: Dataset, said: Sequence[str], found: Sequence[Finding], totals: DataFrame) -> Head:
    assert dataset.ends_at is not None, "a dataset without rows is refused"
    (row,) = totals.collect()
    tiles = [(units.heading(name), units.shown(name, value)) for name, value in row.asDict().items()]
    return Head(
        period=_period(dataset),
        until=f"{dataset.ends_at:%Y-%m-%d %H:%M:%S}",
        verdict=said,
        tiles=[*tiles, ("files read", units.count(dataset.files))],
        findings=found,
        notes=_notes(dataset),
        warnings=dataset.warnings,
    )


def _notes(dataset: Dataset) -> list[str]:
    if not dataset.growing:
        return []
    files = units.some(dataset.growing, "file is", "files are")
    return [
        f"{files} not complete yet: what a broker that runs did in about the last minute is not in this report, nor"
        " what one that was killed did before it died, until a broker is started on the directory again."
    ]


def _period(dataset: Dataset) -> str:
    assert dataset.starts_at is not None, "a dataset without rows is refused"
    assert dataset.ends_at is not None, "a dataset without rows is refused"
    return f"{dataset.starts_at:%Y-%m-%d %H:%M:%S} to {dataset.ends_at:%Y-%m-%d %H:%M:%S} UTC"


def _summary(dataset: Dataset, said: Sequence[str], findings: Sequence[Finding], place: str) -> str:
    rows = ", ".join(f"{number:,} {table}" for table, number in dataset.rows.items() if number)
    lines = [_period(dataset), f"{rows} in {units.some(dataset.files, 'file')}", *_notes(dataset)]
    lines += ["", *said, ""]
    lines += [f"{_MARKS.get(finding.weight, ' ')} {finding.sentence}" for finding in findings]
    lines += [*([""] if findings else ["Nothing stands out.", ""]), f"Look at {place}"]
    return "\n".join(lines)
