"""The speeds that README.md names are those of the page that the benchmark wrote."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.documents import ROOT

MEASURED = ROOT / "docs" / "reference" / "performance.md"


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of each row of each table."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_speeds_in_the_readme_are_those_that_were_measured() -> None:
    measured: dict[str, list[str]] = {}
    builds: list[str] = []
    for name, *cells in rows(MEASURED):
        if name == "" and "mqttlite" in cells:
            builds = cells
        elif builds and name not in measured:
            medians = dict(zip(builds, (cell.partition(" (")[0] for cell in cells), strict=False))
            measured[name] = [medians.get(build, "") for build in ("mqttlite", "mqttlite-pure", "mosquitto")]
    quoted = {name: cells for name, *cells in rows(ROOT / "README.md") if name in measured}
    assert len(quoted) >= 4
    assert quoted == {name: measured[name] for name in quoted}
