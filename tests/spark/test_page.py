"""The page without Spark: what is shown, how numbers read, and that nothing a client says becomes markup."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from spark_analytics import units
from spark_analytics.page.charts import PALETTE, Series, bars, columns, top_and_rest
from spark_analytics.page.html import Cell, Section, page

HOSTILE = """<script>alert('1')</script>"&\u202e"""


def section(**changes: object) -> Section:
    fields: dict[str, object] = {
        "title": "Traffic",
        "says": "One row per client.",
        "empty": "Nobody came.",
        "chart": "",
        "columns": [Cell("client id"), Cell("bytes", is_number=True)],
        "rows": [[Cell("a"), Cell("5 B", is_number=True)]],
        "total": 1,
        "files": "traffic/csv",
    }
    return Section(**(fields | changes))  # type: ignore[arg-type]


def test_client_ids_are_escaped_wherever_they_stand() -> None:
    chart = bars("a", [HOSTILE], [Series(HOSTILE, [1]), Series("b", [2])], units.count)
    chart += columns("a", [HOSTILE], [Series(HOSTILE, [1]), Series("b", [2])], units.count)
    html = page(
        HOSTILE,
        [(HOSTILE, HOSTILE)],
        [HOSTILE],
        [section(chart=chart, rows=[[Cell(HOSTILE * 3), Cell("1", is_number=True)]], files=HOSTILE)],
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 10
    assert "'1'" not in html


def test_the_page_refers_to_nothing_outside_itself() -> None:
    html = page("today", [("sessions", "1")], [], [section(chart=bars("a", ["b"], [Series("c", [1])], units.count))])
    assert not re.findall(r"(?:src|href)=|url\(|@import", html)
    assert "default-src 'none'" in html


def test_a_table_says_how_much_of_it_is_shown() -> None:
    assert "1 row. All of them: traffic/csv" in page("", [], [], [section()])
    assert "The first 1 of 1,234 rows." in page("", [], [], [section(total=1234)])


def test_an_empty_table_is_a_sentence() -> None:
    html = page("", [], [], [section(rows=[], total=0)])
    assert "Nobody came." in html
    assert "<table" not in html


@pytest.mark.parametrize("chart", [bars, columns])
@pytest.mark.parametrize("values", [[], [0.0], [1.0, 0.0, 3.0], [1e12, 1e-3]])
def test_a_chart_is_well_formed_for_any_numbers(chart: type, values: list[float]) -> None:
    labels = [f"client-{number}" for number in range(len(values))]
    svg = ElementTree.fromstring(chart("a chart", labels, [Series("one", values), Series("two", values)], units.count))
    drawn = [rect for rect in svg.iter("rect") if float(rect.get("width", 0)) > 900]
    assert not drawn


def test_the_longest_bar_fills_its_room_and_the_others_are_in_proportion() -> None:
    svg = ElementTree.fromstring(bars("a", ["x", "y"], [Series("s", [10, 5])], units.count))
    long, short = (float(rect.get("width", 0)) for rect in svg.iter("rect"))
    assert long == pytest.approx(2 * short)
    assert long > 300


def test_a_long_client_id_is_cut_in_the_middle_and_whole_in_the_hint() -> None:
    client_id = "backend-consumer-with-a-very-long-name-17"
    svg = bars("a", [client_id], [Series("s", [1])], units.count)
    assert "backend-consum…y-long-name-17" in svg
    assert f"<title>{client_id}</title>" in svg


def test_more_series_than_colours_are_summed_up() -> None:
    series = top_and_rest({f"reason {number}": [float(number), 1.0] for number in range(9)})
    assert len(series) == len(PALETTE)
    assert series[0] == Series("reason 8", [8.0, 1.0])
    assert series[-1] == Series("4 others", [6.0, 4.0])


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.count(1234567), "1,234,567"),
        (units.seconds(0), "0.0 s"),
        (units.seconds(0.25), "250 ms"),
        (units.seconds(59.94), "59.9 s"),
        (units.seconds(60), "1.0 min"),
        (units.seconds(5400), "1.5 h"),
        (units.seconds(86400 * 400), "400.0 d"),
        (units.size(999), "999 B"),
        (units.size(1500), "1.5 kB"),
        (units.size(2e9), "2.0 GB"),
        (units.size(3e18), "3,000.0 PB"),
        (units.share(0.125), "12.5 %"),
    ],
)
def test_numbers_read_well(shown: str, text: str) -> None:
    assert shown == text


def test_importing_the_package_and_its_command_line_imports_neither_pyspark_nor_the_broker() -> None:
    program = (
        "import sys, spark_analytics, spark_analytics.__main__;"
        "print(' '.join(name for name in sys.modules if name.split('.')[0] in ('pyspark', 'mqttlite')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
