"""Files to frames: reads what brokers wrote, in either format, and says what it could not read.

Here does not live what the rows mean (`reports/`), nor which files there are (`listing`). Invariant: every part under
the directory and every line in it is either read, outside the asked time, or named in `warnings`, or it is the reason
for an `InputUnusable`; none disappears.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, LongType, MapType, StringType, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from spark_analytics.errors import InputUnusable
from spark_analytics.frames import Frames, empty
from spark_analytics.listing import Files, list_files
from spark_analytics.schema import KEY, SUPPORTED_VERSIONS, TABLES, TIME_COLUMNS, required

_CORRUPT: Final = "_corrupt"

# Of a Parquet schema as text, which is one question to the JVM; its own answer for each column would be one per column.
_COLUMN: Final = re.compile(r"^  (required|optional|repeated) (\S+) (\w+) ?(.*?) *[;{]$", re.MULTILINE)

_STORED: Final = {
    "int": re.compile(r"int32 (\(INTEGER\((8|16|32),true\)\))?"),
    "bigint": re.compile(r"int(32|64) (\(INTEGER\(\d+,true\)\))?"),
    "double": re.compile(r"(double|float) "),
    "boolean": re.compile(r"boolean "),
    "string": re.compile(r"binary (\((STRING|UTF8)\))?"),
    "timestamp": re.compile(r"int64 \(TIMESTAMP\((MICROS|MILLIS),true\)\)|int96 "),
    "map": re.compile(r"group \(MAP\)"),
    "array": re.compile(r"group \(LIST\)"),
}
"""How Parquet may store a column: another type ends Spark's job, whatever else is in the dataset."""

_MOST: Final = 1 << 53
"""No number of a broker is larger; numbers of messages count microseconds since 1970."""

_LONGEST: Final = 1 << 17
"""No text of a broker has more characters: a topic of MQTT has 65,535 at most, and its mount point is shorter."""

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""A broker whose clock is wrong may write other times, but none outside of these."""

FOOTERS_AT_ONCE: Final = 8
"""Footers of Parquet files are read side by side: on a remote file system each is a round trip."""

TABLES_AT_ONCE: Final = 4
"""Most of what a small table takes is planning, which is done by one thread each."""

Step = Callable[[str], AbstractContextManager[None]]
"""Is told the name of what is done inside it."""


@dataclass
class Dataset:
    """The frames of a directory, and what was found in its files."""

    frames: Frames
    files: int
    rows: dict[str, int]
    starts_at: datetime | None
    ends_at: datetime | None
    """Between the first and the last of the time columns, in UTC."""
    warnings: list[str]
    """A sentence for each file that was left out, or from which lines were."""
    growing: int = 0
    """Files that are not complete yet."""


@dataclass
class _Part:
    """What one table has."""

    frame: DataFrame
    files: int
    pruned: int
    growing: int
    warnings: list[str]
    rows: int = 0
    starts_at: datetime | None = None
    ends_at: datetime | None = None


def read(
    spark: SparkSession,
    directory: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limits: Mapping[str, int] | None = None,
    step: Step = lambda _: nullcontext(),
) -> Dataset:
    """Read all tables of a dataset, the rows from `since` on and before `until`.

    Raises InputUnusable if there is nothing to report, a file of a version we do not know, or no way to read them.
    """

    def read_table(table: str) -> _Part:
        with step(f"reading {table}"):
            files = list_files(spark, directory, table, since, until)
            return _read_table(spark, directory, table, files, since, until)

    with ThreadPoolExecutor(TABLES_AT_ONCE) as readers:
        parts = dict(zip(TABLES, readers.map(read_table, TABLES), strict=True))
    frames = {table: part.frame for table, part in parts.items()}
    begins = [part.starts_at for part in parts.values() if part.starts_at is not None]
    ends = [part.ends_at for part in parts.values() if part.ends_at is not None]
    dataset = Dataset(
        frames=Frames(**frames, since=since, limits=limits or {}),  # type: ignore[arg-type]
        files=sum(part.files for part in parts.values()),
        rows={table: part.rows for table, part in parts.items()},
        starts_at=min(begins, default=None),
        ends_at=max(ends, default=None),
        warnings=[warning for part in parts.values() for warning in part.warnings],
        growing=sum(part.growing for part in parts.values()),
    )
    if not any(dataset.rows.values()):
        pruned = sum(part.pruned for part in parts.values())
        raise InputUnusable(_nothing(directory, dataset, pruned, asked=since is not None or until is not None))
    return dataset


def _read_table(
    spark: SparkSession, directory: str, table: str, files: Files, since: datetime | None, until: datetime | None
) -> _Part:
    schema = TABLES[table]
    time = TIME_COLUMNS[table]
    frames = []
    part = _Part(empty(spark, schema), len(files), files.pruned, files.growing, list(files.skipped))
    try:
        whole, torn = _whole(spark, files.parquet, schema)
        part.warnings += torn
        part.files -= len(torn)
        if whole:
            file = F.col("_metadata.file_path").alias("file")
            packed = spark.read.schema(schema).parquet(*whole).select("*", file, _broken(schema).alias("broken"))
            left_out = _inspect(packed, "row")
            part.warnings += left_out
            frames.append((packed.where(~F.col("broken")) if left_out else packed).drop("broken"))
        if files.jsonl:
            # Text is parsed once and kept, packed and by column; Parquet is as quick to read again as to keep.
            lines = _lines(spark, files.jsonl, schema).persist(StorageLevel.MEMORY_AND_DISK)
            part.warnings += _inspect(lines, "line")
            frames.append(lines.where(~F.col("broken")).select(*schema.fieldNames(), "file"))
        if not frames:
            return part
        with_file = _within(reduce(DataFrame.unionByName, frames), time, since, until)
        part.frame = with_file.select(*schema.fieldNames())
        if table == "sessions":
            part.frame = _once(part.frame)
        found = part.frame.agg(F.count("*"), _text(F.min(time)), _text(F.max(time))).first()
        assert found is not None, "an aggregate without groups has one row"
    except (PySparkException, Py4JJavaError) as error:
        raise InputUnusable(f"Cannot read {table} in {directory}: {first_line(error)}") from error
    part.rows = found[0]
    if part.rows:
        part.starts_at, part.ends_at = datetime.fromisoformat(found[1]), datetime.fromisoformat(found[2])
    return part


def _text(time: Column) -> Column:
    """As text by Spark: collected, a timestamp would be in the zone of this process."""
    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")


def _within(rows: DataFrame, time: str, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        rows = rows.where(F.col(time) >= _instant(since))
    if until is not None:
        rows = rows.where(F.col(time) < _instant(until))
    return rows


def _instant(moment: datetime) -> Column:
    return F.lit(moment.isoformat()).cast(TimestampType())


# ---------------------------------------------------------------------------------------------------------- Parquet


def _whole(spark: SparkSession, paths: list[str], schema: StructType) -> tuple[list[str], list[str]]:
    """The files that have a footer with the columns every row has, all of the right type, and a sentence for each of
    the others."""
    jvm: Any = spark.sparkContext._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    footer_only = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
    needed = required(schema)

    def fault(path: str) -> str | None:
        try:
            footer = jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter(
                hadoop, jvm.org.apache.hadoop.fs.Path(path), footer_only
            )
        except Py4JJavaError as error:
            return f"{path}: left out, no whole Parquet file ({_brief(error, path)})"
        stored = {
            name: "" if repetition == "repeated" else f"{kind} {annotation}"
            for repetition, kind, name, annotation in _COLUMN.findall(footer.getFileMetaData().getSchema().toString())
        }
        for field in schema:
            if field.name not in stored:
                if field.name in needed:
                    return f"{path}: left out, it has no column {field.name}"
            elif not _STORED[field.dataType.simpleString().partition("<")[0]].fullmatch(stored[field.name]):
                return f"{path}: left out, its column {field.name} has another type"
        return None

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as readers:
        faults = list(readers.map(fault, paths))
    whole = [path for path, wrong in zip(paths, faults, strict=True) if wrong is None]
    return whole, [wrong for wrong in faults if wrong is not None]


def _brief(error: Py4JJavaError, path: str) -> str:
    said = str(error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName())
    return said.splitlines()[0].replace(path, "it").replace(path.removeprefix("file:"), "it")[:160]


# ------------------------------------------------------------------------------------------------------- JSON Lines


def _lines(spark: SparkSession, paths: list[str], schema: StructType) -> DataFrame:
    """One row per line: its file, whether it is broken, and its columns as far as they could be read."""
    with_corrupt = StructType([*schema.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return (
        spark.read.text(paths)
        .select(F.col("_metadata.file_path").alias("file"), F.from_json("value", with_corrupt, options).alias("row"))
        .select(
            "file",
            (F.col(f"row.{_CORRUPT}").isNotNull() | _broken(schema, "row.")).alias("broken"),
            *(f"row.{name}" for name in schema.fieldNames()),
        )
    )


# ------------------------------------------------------------------------------------------------------------- both


def _broken(schema: StructType, of: str = "") -> Column:
    """Whether a row lacks a value that every row has, or has one that no broker writes. `of` is put before the names of
    the columns."""
    missing = (F.col(f"{of}{name}").isNull() for name in required(schema))
    impossible = (F.coalesce(each, F.lit(False)) for each in _impossible(schema, of))
    return reduce(Column.__or__, (*missing, *impossible))


def _impossible(schema: StructType, of: str) -> Iterator[Column]:
    """Whether a value is none that a broker has: sums of such numbers overflow, and end the whole report."""

    def fits(number: Column) -> Column:
        return F.coalesce(number.between(-_MOST, _MOST), F.lit(False))

    for field in schema:
        column = F.col(f"{of}{field.name}")
        if isinstance(field.dataType, (LongType, DoubleType)):
            yield ~column.between(-_MOST, _MOST)  # NaN is above all numbers
        elif isinstance(field.dataType, StringType):
            yield F.length(column) > _LONGEST
        elif isinstance(field.dataType, TimestampType):
            yield ~column.between(_instant(_EARLIEST), _instant(_LATEST))
        elif isinstance(field.dataType, MapType):
            yield ~F.forall(F.map_values(column), fits)
        elif isinstance(field.dataType, ArrayType):
            yield ~F.forall(column, fits)


def _inspect(rows: DataFrame, what: str) -> list[str]:
    """A sentence for each file with broken rows, in one pass. For lines it also fills Spark's cache.

    A row of a version that we do not know may look broken, so versions are checked here.
    """
    counts = F.count_if("broken").alias("broken"), F.collect_set("schema_version").alias("versions")
    by_file = rows.groupBy("file").agg(*counts).orderBy("file").collect()
    _check_versions({version for row in by_file for version in row["versions"]}, rows)
    return [
        f"{row['file']}: {row['broken']:,} broken {what if row['broken'] == 1 else f'{what}s'} left out"
        for row in by_file
        if row["broken"]
    ]


def _check_versions(versions: Iterable[int], rows: DataFrame) -> None:
    """Raise InputUnusable that names a file with a version we do not know, if there is one."""
    for version in sorted(set(versions) - SUPPORTED_VERSIONS):
        found = rows.where(F.col("schema_version") == version).select(F.min("file")).first()
        known = " and ".join(str(known) for known in sorted(SUPPORTED_VERSIONS))
        raise InputUnusable(
            f"{found and found[0]} has rows of schema version {version}; this program reads versions {known}."
            " Use the spark_analytics that came with the broker which wrote them."
        )


def _once(sessions: DataFrame) -> DataFrame:
    """Each session once, also where rows were copied into another file.

    Only sessions have a key, and telling their rows apart takes a shuffle of the keys alone; that of whole rows is paid
    only where there is a copy. Other tables rely on the names of parts, see `list_files`.
    """
    copied = sessions.groupBy(*KEY).count().where("count > 1").limit(1).count()
    return sessions.dropDuplicates(list(KEY)) if copied else sessions


def _nothing(directory: str, dataset: Dataset, pruned: int, *, asked: bool) -> str:
    if asked and (pruned or dataset.files):
        return f"There are no rows in {directory} in the time that was asked for. Leave out --since and --until."
    if dataset.warnings:
        return f"Nothing in {directory} can be read. The first of {len(dataset.warnings)}: {dataset.warnings[0]}."
    if dataset.files:
        return f"The files in {directory} have no rows."
    return (
        f"There are no files of a dataset in {directory}: --input takes the directory that the broker's [telemetry]"
        " names. A broker completes its first files a minute after their first row, or when it stops."
    )


def first_line(error: Exception) -> str:
    """What Spark says, without its stack trace."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.getClass().getName()).strip().splitlines()[0]
    return str(error).strip().splitlines()[0]
