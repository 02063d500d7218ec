"""A dataset of a few rows, made of what a test wants to say about them, and a comparison that names its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import pyarrow
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import MapType, StructType, TimestampType
from pyspark.testing import assertDataFrameEqual
from pyspark.testing.utils import assertSchemaEqual

from spark_analytics.frames import Frames, empty
from spark_analytics.schema import TABLES
from spark_analytics.tables import Table

DAY: Final = "2026-11-21"

_TEXTS: Final = {
    "client_id": "thermometer",
    "listener": "local",
    "transport": "tcp",
    "peer": "127.0.0.1:50000",
    "protocol_version": "5.0",
    "close_reason": "client_disconnected",
    "topic": "plant/line1/temp",
    "stage": "total",
    "broker_id": "b1",
}
_ONES: Final = frozenset({"schema_version", "connection_id", "topics", "one_in"})


def at(text: str) -> datetime:
    """`11:00:10` of the day, or `2026-11-22 11:00:10`, in UTC."""
    return datetime.fromisoformat(text if "-" in text else f"{DAY} {text}").replace(tzinfo=UTC)


def make(spark: SparkSession, *, limits: Mapping[str, int] | None = None, **rows: list[dict[str, Any]]) -> Frames:
    """`make(spark, traffic=[{"topic": "a"}])`: other columns are 0, empty, null or one of the texts above.

    Times are given as in `at`; where no time is given it is 11:00:00, and intervals are of 10 s. Rows are of schema
    version 2, connections are numbered.
    """
    assert rows.keys() <= TABLES.keys(), rows.keys()
    tables = nothing(spark) | {name: frame(spark, name, *given) for name, given in rows.items()}
    return Frames(**tables, limits=limits or {})


@cache
def nothing(spark: SparkSession) -> dict[str, DataFrame]:
    """All tables without rows, made once: that takes Spark half a second."""
    return {name: empty(spark, schema) for name, schema in TABLES.items()}


def frame(spark: SparkSession, table: str, *changes: dict[str, Any]) -> DataFrame:
    """One table."""
    schema = TABLES[table]
    for change in changes:
        assert change.keys() <= set(schema.fieldNames()), change
    rows = []
    for number, change in enumerate(changes, 1):
        row = {field.name: _default(field.name, field.dataType.typeName()) for field in schema if not field.nullable}
        row |= {"schema_version": 2, "connection_id": number, "interval_s": 10.0} | change
        rows.append(tuple(_given(field.dataType, row.get(field.name)) for field in schema))
    return frame_of(spark, schema, rows)


def frame_of(spark: SparkSession, schema: StructType | str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """These rows. Spark keeps in its plan what comes as an Arrow table. It would send a list through processes of
    Python, anew for each query of it, which took half of the time of the tests."""
    schema = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not rows:
        return empty(spark, schema)
    columns = [
        [value and list(value.items()) for value in column] if isinstance(field.dataType, MapType) else column
        for field, column in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [pyarrow.array(column, of.type) for column, of in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=arrow), schema)


def written(spark: SparkSession, frames: Frames, tables: Sequence[Table]) -> dict[str, DataFrame]:
    """A report's tables, each computed once, as a run of the report does it."""
    done = dict(frames.written)
    for table in tables:
        found = table.report(replace(frames, written=done))
        done[table.name] = frame_of(spark, found.schema, found.collect())
    return done


def expect(spark: SparkSession, found: DataFrame, columns: str, *rows: tuple[Any, ...]) -> None:
    """These columns, in the order of `columns`, have these rows, in any order; times are given as in `at`."""
    schema = StructType.fromDDL(columns)
    given = [tuple(map(_collected, (field.dataType for field in schema), row)) for row in rows]
    named = found.select(*schema.fieldNames())
    assertSchemaEqual(named.schema, schema)
    assertDataFrameEqual(named.collect(), [Row(**dict(zip(schema.fieldNames(), row, strict=True))) for row in given])


def _default(name: str, kind: str) -> Any:
    if kind == "timestamp":
        return "11:00:00"
    if kind == "string":
        return _TEXTS.get(name, "")
    empty: dict[str, Any] = {"boolean": False, "double": 0.0, "map": {}, "array": []}
    return empty.get(kind, 1 if name in _ONES else 0)


def _given(kind: Any, value: Any) -> Any:
    return at(value) if isinstance(kind, TimestampType) and isinstance(value, str) else value


def _collected(kind: Any, value: Any) -> Any:
    """As Spark returns it: a time in the zone of this process, without its name."""
    given = _given(kind, value)
    return given.astimezone().replace(tzinfo=None) if isinstance(given, datetime) else given
