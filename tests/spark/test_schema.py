"""The reader's columns are those of the reference page, one by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import StructField, StructType

from spark_analytics.schema import SUPPORTED_VERSIONS, TABLES, TIME_COLUMNS, required

PAGE = (Path(__file__).parents[2] / "docs/reference/telemetry.md").read_text(encoding="utf-8")
SECTIONS = {
    match[1]: match for match in re.finditer(r"^### `(\w+)`, by `(\w+)`\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
}


def documented(table: str) -> list[tuple[str, str]]:
    """(name, type) of each row of the section's first table."""
    text = SECTIONS[table][3].split("| column | type | meaning |", 1)[1]
    rows = []
    for line in text.strip().splitlines()[1:]:
        if not line.startswith("|"):
            break
        name, kind = (cell.strip().strip("`") for cell in line.split("|")[1:3])
        rows.append((name, kind))
    return rows


def spelt(field: StructField) -> str:
    names = {
        "integer": "int",
        "bigint": "long",
        "map<string,bigint>": "map<string,long>",
        "array<int>": "list<int>",
        "array<bigint>": "list<long>",
    }
    kind = field.dataType.simpleString()
    return names.get(kind, kind) + ("?" if field.nullable else "")


def test_the_page_has_the_tables_that_we_read() -> None:
    assert list(SECTIONS) == list(TABLES)
    assert {name: match[2] for name, match in SECTIONS.items()} == TIME_COLUMNS


@pytest.mark.parametrize("table", TABLES)
def test_each_column_is_as_the_page_says(table: str) -> None:
    assert [(field.name, spelt(field)) for field in TABLES[table]] == documented(table)


def test_the_page_has_the_versions_that_we_read() -> None:
    versions = PAGE.split("| version | |", 1)[1].strip().splitlines()[1:]
    assert {int(line.split("|")[1]) for line in versions} == SUPPORTED_VERSIONS


def test_columns_that_came_later_are_last_and_may_be_null() -> None:
    last: StructType = TABLES["sessions"]
    added = ["last_heard_at", "keep_alive_late_s", "node"]
    assert [field.name for field in last.fields[-3:]] == added
    assert not {*added} & set(required(last))
    assert TABLES["events"].fieldNames()[-1] == "node"
    assert "node" not in required(TABLES["events"])
