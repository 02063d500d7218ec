"""What people open with a spreadsheet computes nothing that a client wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

CELLS = {
    '=HYPERLINK("http://evil.example","pump")': True,
    "+1": True,
    "-2+3": True,
    "@SUM(A1)": True,
    "  =1": True,
    "\t=1": True,
    "\rx": True,
    "\n=1": True,
    "pump-7": False,
    "a=b": False,
    "": False,
    "'=1": False,
}


def test_no_cell_begins_a_formula(spark: SparkSession) -> None:
    from spark_analytics.output import flatten, without_formulas

    rows = [(text, -1, {text: 1}, [text]) for text in CELLS] + [(None, None, None, None)]
    frame = spark.createDataFrame(rows, "text string, number int, map map<string,int>, list array<string>")
    found = without_formulas(flatten(frame)).collect()
    for (text, is_formula), row in zip(CELLS.items(), found, strict=False):
        quoted = f"'{text}" if is_formula else text
        assert (row["text"], row["number"], row["list"]) == (quoted, -1, quoted)
        assert row["map"] == f"{quoted}=1" or (not text and row["map"] == "'=1")
    assert (found[-1]["text"], found[-1]["number"]) == (None, None)
