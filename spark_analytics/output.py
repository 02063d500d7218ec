"""The output directory: what is in it, when we may write to it, and the files of a table.

It goes through Hadoop's file systems, so OUT may be a local path or any URI that Spark can write to. Invariant: only
OUT/<table>/parquet, OUT/<table>/csv and OUT/report.html are ever replaced, and those only when asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField

from spark_analytics.errors import InputUnusable, OutputRefused
from spark_analytics.read import first_line

PAGE: Final = "report.html"

# How Spark says that a file cannot be read, which it notices when a table is computed.
_BAD_INPUT: Final = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "parquet.io.ParquetDecodingException")

# How a cell begins that a spreadsheet computes.
_FORMULA: Final = r"^[\s]*[=+\-@]|^[\t\r\n]"

# RFC 4180 quotes, and timestamps that keep their microseconds.
_CSV_OPTIONS: Final = {
    "header": "true",
    "escape": '"',
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}


class Output:
    """One report's directory. The page is removed first and written last: where it is, the tables are complete."""

    def __init__(self, spark: SparkSession, directory: str, *, overwrite: bool) -> None:
        self.directory = directory.rstrip("/") or "/"
        self._spark = spark
        self._mode = "overwrite" if overwrite else "errorifexists"
        try:
            self._check(overwrite)
        except Py4JJavaError as error:
            raise OutputRefused(f"Cannot write to {directory}: {error.java_exception.getMessage()}") from error

    def begin(self) -> None:
        """Remove the page, if there is one: from now on the tables in it are no longer all of one report."""
        try:
            self._files.delete(self._path(PAGE), False)
            self._files.mkdirs(self._path("."))
        except Py4JJavaError as error:
            raise OutputRefused(f"Cannot write to {self.directory}: {error.java_exception.getMessage()}") from error

    def write(self, table: str, frame: DataFrame, order: Sequence[Column], *, one_file: bool) -> DataFrame:
        """Write a table as Parquet and as CSV; return it as it is on disk, so nothing is computed twice."""
        parquet = f"{self.directory}/{table}/parquet"
        arranged = frame.coalesce(1) if one_file else frame
        if order:
            arranged = arranged.sortWithinPartitions(*order)
        try:
            arranged.write.mode(self._mode).parquet(parquet)
            written = self._spark.read.schema(frame.schema).parquet(parquet)
            flat = without_formulas(flatten(written))
            flat.coalesce(1).write.mode(self._mode).options(**_CSV_OPTIONS).csv(f"{self.directory}/{table}/csv")
            self._name_csv(table)
        except (PySparkException, Py4JJavaError) as error:
            if any(sign in str(error) for sign in _BAD_INPUT):
                raise InputUnusable(f"Cannot compute {table}: {first_line(error)}") from error
            raise OutputRefused(f"Cannot write {table} to {self.directory}: {first_line(error)}") from error
        return written

    def _name_csv(self, table: str) -> None:
        """Give the only file of a table's CSV a name that the page can link to: Spark's own is random."""
        folder = self._path(f"{table}/csv")
        for status in self._files.listStatus(folder):
            name = status.getPath().getName()
            if name.startswith("part-") and name.endswith(".csv"):
                self._files.rename(status.getPath(), self._path(f"{table}/csv/{table}.csv"))

    def write_page(self, html: str) -> str:
        """Write the page; return where it is."""
        stream = self._files.create(self._path(PAGE), True)
        try:
            stream.write(html.encode())
        finally:
            stream.close()
        return f"{self.directory}/{PAGE}"

    def _check(self, overwrite: bool) -> None:
        jvm: Any = self._spark.sparkContext._jvm
        root = jvm.org.apache.hadoop.fs.Path(self.directory)
        self._files: Any = root.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
        # Without this a local page has a hidden checksum file beside it.
        self._files.setWriteChecksum(False)
        if self._files.exists(root):
            if not self._files.getFileStatus(root).isDirectory():
                raise OutputRefused(f"{self.directory} is a file; --out takes a directory.")
            if len(self._files.listStatus(root)) and not overwrite:
                raise OutputRefused(
                    f"{self.directory} is not empty. Give another --out, or --overwrite to replace the report in it."
                )

    def _path(self, name: str) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        return jvm.org.apache.hadoop.fs.Path(self.directory, name)


def flatten(frame: DataFrame) -> DataFrame:
    """The same columns, each map as text, `expired=1;queue_full=20`, by key, and each list as `a;b`; an empty one is an
    empty text."""
    return frame.select(*(_flat(field) for field in frame.schema))


def without_formulas(frame: DataFrame) -> DataFrame:
    """The same columns, each text that a spreadsheet takes for a formula behind an apostrophe: clients choose their
    identifiers, users and topics, and people open the files."""
    return frame.select(*(_text_of(field) for field in frame.schema))


def _text_of(field: StructField) -> Column:
    column = F.col(field.name)
    if not isinstance(field.dataType, StringType):
        return column
    return F.when(column.rlike(_FORMULA), F.concat(F.lit("'"), column)).otherwise(column).alias(field.name)


def _flat(field: StructField) -> Column:
    if isinstance(field.dataType, MapType):
        pairs = F.transform(
            F.array_sort(F.map_entries(field.name)),
            lambda pair: F.concat_ws("=", pair["key"], pair["value"].cast("string")),
        )
        return F.concat_ws(";", pairs).alias(field.name)
    if isinstance(field.dataType, ArrayType):
        return F.concat_ws(";", F.col(field.name).cast("array<string>")).alias(field.name)
    return F.col(field.name)
