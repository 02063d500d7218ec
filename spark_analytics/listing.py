"""Which files a dataset has: found, pruned by their folders, told apart from copies and from what is no file of ours.

It goes through Hadoop's file systems, so DIR may be a local path or any URI that Spark can read. Invariant: a file
whose name begins like one of ours is either listed, outside the asked time, or named in `skipped`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_analytics.errors import InputUnusable

_NAME: Final = re.compile(r"part-(?P<broker>[A-Za-z0-9_-]+)-(?P<number>\d+)\.(?P<format>parquet|jsonl)")
_FOLDERS: Final = re.compile(r"/date=(\d{4}-\d{2}-\d{2})/hour=(\d{1,2})/[^/]+$")

SPILLOVER: Final = timedelta(hours=2)
"""Rows may be so much later than their file's folder: a file is named by the hour of its first row and holds what came
until it was rotated, by default a minute later; an hour where files are rotated once an hour, and one in reserve."""


@dataclass
class Files:
    """The files of one table, by format, and those that are left out, each with a sentence."""

    parquet: list[str] = field(default_factory=list)
    jsonl: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    pruned: int = 0
    growing: int = 0
    """Files that a broker is still writing, or left when it died: they are not for readers."""

    def __len__(self) -> int:
        return len(self.parquet) + len(self.jsonl)


def list_files(
    spark: SparkSession, directory: str, table: str, since: datetime | None = None, until: datetime | None = None
) -> Files:
    """List what may hold rows from `since` on and before `until`; raise InputUnusable if it cannot be listed.

    A table that has no folder has no files. The same part twice, as a file and as its copy in another folder or format,
    is listed once: parts are numbered, so the name tells.
    """
    files = Files()
    known: dict[tuple[str, str], str] = {}
    try:
        paths = list(_walk(spark, f"{directory.rstrip('/')}/table={table}"))
    except Py4JJavaError as error:
        raise InputUnusable(f"Cannot read {directory}: {error.java_exception.getMessage()}") from error
    # Parquet comes first, so that a part in both formats is read from the one that is quicker to read.
    for path in sorted(paths, key=lambda path: (not path.endswith(".parquet"), path)):
        name = path.rsplit("/", 1)[-1]
        if name.startswith("."):
            files.growing += name.endswith(".jsonl.open")
            continue
        match = _NAME.fullmatch(name)
        if match is None:
            if name.startswith("part-"):
                files.skipped.append(f"{path}: left out, this is no name of a part")
            continue
        if not _may_hold(path, since, until):
            files.pruned += 1
            continue
        part = (match["broker"], match["number"])
        if part in known:
            files.skipped.append(f"{path}: left out, a copy of {known[part]}")
            continue
        known[part] = path
        (files.parquet if match["format"] == "parquet" else files.jsonl).append(path)
    return files


def _may_hold(path: str, since: datetime | None, until: datetime | None) -> bool:
    folders = _FOLDERS.search(path)
    if folders is None:
        return True
    try:
        hour = datetime.fromisoformat(folders[1]).replace(tzinfo=UTC) + timedelta(hours=int(folders[2]))
    except ValueError:
        return True
    return (since is None or hour + timedelta(hours=1) + SPILLOVER > since) and (until is None or hour < until)


def _walk(spark: SparkSession, folder: str) -> Iterator[str]:
    """The paths of all files below, but for those in folders that are not for readers."""
    jvm: Any = spark.sparkContext._jvm
    root = jvm.org.apache.hadoop.fs.Path(folder)
    system = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(root):
        return
    prefix = system.makeQualified(root).toString()
    found = system.listFiles(root, True)
    while found.hasNext():
        path: str = found.next().getPath().toString()
        if "/." not in path.removeprefix(prefix).rpartition("/")[0]:
            yield path
