"""One run of the report: read, compute, write, sum up. The only place where reading, reports and output meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StructField, TimestampType

from spark_analytics import units
from spark_analytics.output import Output, flatten_maps
from spark_analytics.page.html import Cell, Section, page
from spark_analytics.read import Sessions, read_sessions
from spark_analytics.reports.totals import totals
from spark_analytics.tables import TABLES, Table

# Rows of each table on the page; more would make a page that nobody reads to its end.
_PAGE_ROWS: Final = 50
_SUMMARY_ROWS: Final = 6


@dataclass(frozen=True)
class Summary:
    """What a run tells the person at the terminal."""

    text: str
    warnings: list[str]


def run(spark: SparkSession, source: str, target: str, *, overwrite: bool) -> Summary:
    """Write all tables and the page to `target`; raise AnalyticsError if source or target do not permit it."""
    sessions = read_sessions(spark, source)
    output = Output(spark, target, overwrite=overwrite)
    numbers = _formatted(totals(sessions.rows)).first()
    assert numbers is not None, "an aggregate without groups has one row"

    written: dict[str, DataFrame] = {}
    sections = []
    for table in TABLES:
        frame = output.write(table.name, table.report(sessions.rows), table.sorted_by(), one_file=table.one_file)
        written[table.name] = frame
        sections.append(_section(table, frame))
    period = f"{numbers['first_connected_at']} to {numbers['last_ended_at']} UTC"
    place = output.write_page(page(period, _tiles(numbers), sessions.warnings(), sections))
    return Summary(_summary(period, numbers, sessions, written, place), sessions.warnings())


def _section(table: Table, frame: DataFrame) -> Section:
    total = frame.count()
    rows = _formatted(frame.orderBy(*table.sorted_by()).limit(_PAGE_ROWS)).collect()
    return Section(
        title=table.title,
        says=table.says,
        empty=table.empty,
        chart=table.chart(frame) if table.chart and total else "",
        columns=[Cell(_heading(field.name), _is_number(field.dataType)) for field in frame.schema],
        rows=[[_cell(field, row[field.name]) for field in frame.schema] for row in rows],
        total=total,
        files=f"{table.name}/csv and {table.name}/parquet.",
    )


def _formatted(frame: DataFrame) -> DataFrame:
    """Maps and timestamps as text, by Spark: collected, a timestamp would be in the zone of this process."""
    frame = flatten_maps(frame)
    return frame.select(*(_formatted_column(field) for field in frame.schema))


def _formatted_column(field: StructField) -> Column:
    if isinstance(field.dataType, TimestampType):
        return F.date_format(field.name, "yyyy-MM-dd HH:mm:ss").alias(field.name)
    return F.col(field.name)


def _cell(field: StructField, value: Any) -> Cell:
    if value is None:
        return Cell("", _is_number(field.dataType))
    if not _is_number(field.dataType):
        return Cell(str(value))
    return Cell(_number(field.name, value), is_number=True)


def _number(name: str, value: float) -> str:
    """The unit is in the column's name: `…_s` is seconds, `bytes` are bytes, `share` is a part of one."""
    if name == "share":
        return units.share(value)
    if name.endswith("_s"):
        return units.seconds(value)
    if "bytes" in name:
        return units.size(value)
    return units.count(value)


def _heading(name: str) -> str:
    return name.removesuffix("_s").removesuffix("_at").replace("_", " ")


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, NumericType)


def _tiles(numbers: Row) -> list[tuple[str, str]]:
    return [
        ("sessions", units.count(numbers["sessions"])),
        ("clients", units.count(numbers["clients"])),
        ("messages from clients", units.count(numbers["messages_received"])),
        ("messages to clients", units.count(numbers["messages_sent"])),
        ("bytes from clients", units.size(numbers["bytes_received"])),
        ("bytes to clients", units.size(numbers["bytes_sent"])),
        ("messages dropped", units.count(numbers["dropped"])),
        ("keep-alive timeouts", units.count(numbers["keep_alive_timeouts"])),
        ("under back-pressure", units.seconds(numbers["backpressure_s"])),
    ]


def _summary(period: str, numbers: Row, sessions: Sessions, written: Mapping[str, DataFrame], place: str) -> str:
    lines = [period, f"{sessions.lines:,} lines in {sessions.files:,} files", ""]
    lines += [f"{value:>12}  {name}" for name, value in _tiles(numbers)]
    lines += ["", "Sessions ended by"]
    reasons = written["close_reasons"].orderBy(F.desc("sessions"), "close_reason").limit(_SUMMARY_ROWS).collect()
    lines += [
        f"{units.count(row['sessions']):>12}  {row['close_reason']} ({units.share(row['share'])})" for row in reasons
    ]
    lines += ["", f"Look at {place}"]
    return "\n".join(lines)
