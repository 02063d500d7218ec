"""Topics by their hierarchy: each topic counts under every prefix of its levels.

Invariant: a filter that stands for many topics, such as `plant/#`, counts under `plant` and above, never below.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

LEVELS: Final = 6
"""How deep prefixes go: deeper levels name single values, and each level more multiplies the rows."""

EVERYTHING: Final = "#"
"""The one prefix of level 0. The topics that a row `#` stands for are known by nothing else."""


def prefixes(topic: Column, levels: int = LEVELS) -> Column:
    """All prefixes of a topic as an array of (`level`, `prefix`), from (0, `#`) to as many levels as it has."""
    parts = F.split(topic, "/")
    # Spark's sequence(1, 0) counts downwards; from 0 on there is nothing to guard.
    depth = F.size(parts) - stands_for_many(topic).cast("int")
    return F.transform(
        F.sequence(F.lit(0), F.least(depth, F.lit(levels))),
        lambda level: F.struct(
            level.alias("level"),
            F.when(level == 0, EVERYTHING).otherwise(F.array_join(F.slice(parts, 1, level), "/")).alias("prefix"),
        ),
    )


def parent(level: Column, prefix: Column) -> Column:
    """The prefix one level above; that of level 1 is `#`."""
    return F.when(level <= 1, EVERYTHING).otherwise(F.regexp_replace(prefix, "/[^/]*$", ""))


def stands_for_many(topic: Column) -> Column:
    """Whether a row's topic is a filter: no topic that is published to has a `#`."""
    return F.substring_index(topic, "/", -1) == EVERYTHING
