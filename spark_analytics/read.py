"""Files to rows: reads what a broker dumped, and says what it could not read.

Here does not live what the rows mean (`reports/`). Invariant: every line under the directory is either a row, counted
in `broken_lines` under its file's name, or the reason for an `InputUnusable`; none disappears.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from spark_analytics.errors import InputUnusable
from spark_analytics.schema import KEY, REQUIRED, SESSIONS, SUPPORTED_VERSIONS

_CORRUPT = "_corrupt"


@dataclass(frozen=True)
class Sessions:
    """The rows, kept by Spark for several reports, and what was left out."""

    rows: DataFrame
    lines: int
    files: int
    broken_lines: Mapping[str, int]

    def warnings(self) -> list[str]:
        """One sentence for each file with lines that were left out."""
        return [
            f"{file}: {count:,} broken {'line' if count == 1 else 'lines'} left out"
            for file, count in self.broken_lines.items()
        ]


def read_sessions(spark: SparkSession, directory: str) -> Sessions:
    """Read `DIR/table=sessions`; raise InputUnusable if there is nothing to report or a version we do not know."""
    lines = _lines(spark, directory).persist()
    broken, total, files = _inspect(lines, directory)
    good = lines.where(~F.col("broken")).select(*SESSIONS.fieldNames())
    if total == sum(broken.values()):
        raise InputUnusable(f"All {total:,} lines under {directory} are broken, the first in {min(broken)}.")
    # A file that was copied or restored beside itself brings its rows twice.
    return Sessions(good.dropDuplicates(list(KEY)), lines=total, files=files, broken_lines=broken)


def _lines(spark: SparkSession, directory: str) -> DataFrame:
    """One row per line: its file, whether it is broken, and its columns as far as they could be read."""
    schema = StructType([*SESSIONS.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    try:
        text = (
            spark.read.option("pathGlobFilter", "part-*.jsonl")
            .option("recursiveFileLookup", "true")
            .text(f"{directory.rstrip('/')}/table=sessions")
        )
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise InputUnusable(
                f"There is no table=sessions under {directory}: --input takes the directory the broker dumps its"
                " sessions to."
            ) from error
        raise InputUnusable(f"Cannot read {directory}: {_first_line(error)}") from error
    return text.select(
        F.col("_metadata.file_path").alias("file"), F.from_json("value", schema, options).alias("row")
    ).select("file", _is_broken().alias("broken"), *(f"row.{name}" for name in SESSIONS.fieldNames()))


def _is_broken() -> Column:
    """Not JSON, a value of another type, or a column missing that every row has."""
    missing = reduce(Column.__or__, (F.col(f"row.{name}").isNull() for name in REQUIRED))
    return F.col(f"row.{_CORRUPT}").isNotNull() | missing


def _inspect(lines: DataFrame, directory: str) -> tuple[dict[str, int], int, int]:
    """Count the broken lines by file, all lines, and the files; one pass, which also fills Spark's cache."""
    by_file = lines.groupBy("file", "schema_version").agg(
        F.count("*").alias("lines"), F.count_if("broken").alias("broken")
    )
    try:
        found = by_file.orderBy("file", "schema_version").collect()
    except (PySparkException, Py4JJavaError) as error:
        raise InputUnusable(f"Cannot read {directory}: {_first_line(error)}") from error
    if not found:
        raise InputUnusable(
            f"There are no session rows under {directory}/table=sessions yet: a broker completes a file a minute after"
            " its first row, or when it stops."
        )
    broken: dict[str, int] = {}
    for row in found:
        version = row["schema_version"]
        if version is not None and version not in SUPPORTED_VERSIONS:
            known = ", ".join(str(known) for known in sorted(SUPPORTED_VERSIONS))
            raise InputUnusable(
                f"{row['file']} has rows of schema version {version}; this program reads version {known}."
                " Use the spark_analytics that came with the broker which wrote them."
            )
        if row["broken"]:
            broken[row["file"]] = broken.get(row["file"], 0) + row["broken"]
    return broken, sum(row["lines"] for row in found), len({row["file"] for row in found})


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
