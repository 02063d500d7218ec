"""The tables in the code are those in the reference, column by column."""

import re
from pathlib import Path

import pytest

from mqttlite.extensions.dataset.tables import SCHEMA_VERSION, TABLES, TIME_COLUMNS, columns_of

REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "telemetry.md"


def chapters() -> dict[str, str]:
    """The chapters about tables, by their titles."""
    text = REFERENCE.read_text(encoding="utf-8")
    return {found[1]: found[0] for found in re.findall(r"^(### `(\w+)`.*?)(?=^##)", text, flags=re.M | re.S)}


def test_the_reference_has_every_table() -> None:
    assert list(chapters()) == list(TABLES) == list(TIME_COLUMNS)


@pytest.mark.parametrize("table", TABLES)
def test_the_reference_has_every_column_with_its_type(table: str) -> None:
    chapter = chapters()[table]
    rows = chapter[chapter.index("| column | type |") :].partition("\n\n")[0]
    written = re.findall(r"^\| `(\w+)` \| ([a-z<>,]+)(\??) \|", rows, flags=re.M)
    assert [(name, kind, optional == "?") for name, kind, optional in written] == list(columns_of(table))
    assert chapter.startswith(f"### `{table}`, by `{TIME_COLUMNS[table]}`")
    assert columns_of(table)[0] == ("schema_version", "int", False)
    assert f"| `schema_version` | int | {SCHEMA_VERSION} |" in chapter
