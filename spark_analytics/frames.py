"""What reports are given and what they give: frames by table, and findings.

Invariant: a frame has exactly the columns of its table in `schema`, whatever versions and formats its files had; a
table without files is an empty frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Frames:
    """The tables of a dataset."""

    sessions: DataFrame
    events: DataFrame
    traffic: DataFrame
    activity: DataFrame
    latency: DataFrame
    drops: DataFrame
    samples: DataFrame


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
