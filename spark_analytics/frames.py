"""What reports are given and what they give: frames by table, and findings.

Invariant: a frame has exactly the columns of its table in `schema`, whatever versions and formats its files had; a
table without files is an empty frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_analytics.units import printable


@dataclass(frozen=True)
class Frames:
    """The tables of a dataset, and what else a report may ask for."""

    sessions: DataFrame
    events: DataFrame
    traffic: DataFrame
    activity: DataFrame
    latency: DataFrame
    drops: DataFrame
    stream_groups: DataFrame
    samples: DataFrame
    attempts: DataFrame
    dead_letters: DataFrame
    archived: DataFrame | None = None
    """The messages of all streams (`streams.read_all`); None: no archive was named."""
    since: datetime | None = None
    """The rows before were left out, as was asked."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """What the person who asks says the limits are: of `--limit connections=10000`, connections to 10000."""
    written: Mapping[str, DataFrame] = field(default_factory=dict)
    """The report's own tables that were written before this one, by name, read back from their files: what several
    tables are made of is computed once."""


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """A table without rows, which Spark knows before it starts a job: it leaves out all that is computed of it."""
    return spark.createDataFrame([], schema).where(F.lit(False))


PROBLEM = 2
NOTABLE = 1
INFORMATION = 0
"""How much a finding matters: something is in trouble; somebody should know; good to know."""


@dataclass(frozen=True)
class Finding:
    """One plain sentence for an operator: «14 devices flap; 11 of them on listener tls-8883 with keep-alive 5 s»."""

    weight: int
    sentence: str
    table: str
    """The report's table that shows the evidence."""
    client_id: str | None = None
    """The client that it is about, if it is one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", printable(self.sentence))
