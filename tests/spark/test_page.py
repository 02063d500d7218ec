"""The page without Spark: what is shown, how numbers read, and that nothing a client says becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from spark_analytics import units
from spark_analytics.frames import INFORMATION, PROBLEM, Finding
from spark_analytics.page.charts import RANKED, SERIES, figure
from spark_analytics.page.html import Cell, Section, page
from spark_analytics.tables import Chart

HOSTILE = """</script><script>alert('1')</script>"&\u202e"""


class Reader(HTMLParser):
    """The page as a browser takes it: tags with their attributes, and what the scripts are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.scripts and not self.scripts[-1][1]:
            self.scripts[-1] = (self.scripts[-1][0], data)


def section(**changes: object) -> Section:
    fields: dict[str, object] = {
        "name": "traffic",
        "title": "Traffic",
        "says": "One row per client.",
        "empty": "Nobody came.",
        "figure": None,
        "columns": [("client id", False), ("bytes", True)],
        "rows": [[Cell("a"), Cell("5 B", 5.0)]],
        "total": 1,
    }
    return Section(**(fields | changes))  # type: ignore[arg-type]


def bars(*labels: str, values: tuple[float, ...] = ()) -> dict[str, Any]:
    rows = [
        {"client_id": label, "bytes": value}
        for label, value in zip(labels, values or (1.0,) * len(labels), strict=True)
    ]
    return figure(Chart("bars", "client_id", ("bytes",)), rows)


def test_what_a_client_says_is_text_wherever_it_stands() -> None:
    html = page(
        HOSTILE,
        [Finding(PROBLEM, HOSTILE, "traffic")],
        [(HOSTILE, HOSTILE)],
        [HOSTILE],
        [section(title=HOSTILE, figure=bars(HOSTILE), rows=[[Cell(HOSTILE * 3), Cell("1", 1.0)]])],
    )
    scripts = Reader(html).scripts
    assert [attributes.get("type") for attributes, _ in scripts] == ["application/json", None, None]
    assert "alert" not in scripts[1][1] + scripts[2][1]
    assert "'1'" not in html.replace(scripts[0][1], "").replace(scripts[1][1], "")


def test_only_the_scripts_that_are_ours_may_run() -> None:
    html = page("today", [], [], [], [section(figure=bars("a"))])
    reader = Reader(html)
    (policy,) = (
        a["content"] for tag, a in reader.tags if tag == "meta" and "content" in a and "src" in str(a["content"])
    )
    running = [text for attributes, text in reader.scripts if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running]
    assert "default-src 'none'" in str(policy)
    assert re.findall(r"'sha256-([^']+)'", str(policy)) == hashes
    assert "unsafe-eval" not in str(policy)


def test_the_page_needs_no_network() -> None:
    html = page("today", [], [("sessions", "1")], [], [section(figure=bars("a"))])
    for tag, attributes in Reader(html).tags:
        assert "src" not in attributes, tag
        assert str(attributes.get("href", "#")).startswith("#"), tag
    assert "Plotly" in html
    assert "@import" not in html[: html.index("</style>")]
    assert "url(" not in html[: html.index("</style>")]


def test_a_page_without_a_chart_does_not_carry_the_chart_library() -> None:
    assert len(page("today", [], [], [], [section()])) < 20_000


def test_both_colour_schemes_are_there() -> None:
    assert "prefers-color-scheme: dark" in page("today", [], [], [], [section()])


def test_findings_come_first_and_lead_to_their_evidence() -> None:
    findings = [Finding(PROBLEM, "14 devices flap.", "traffic"), Finding(INFORMATION, "All is well.", "not_shown")]
    html = page("today", findings, [("sessions", "1")], [], [section()])
    assert html.index("14 devices flap.") < html.index("sessions") < html.index("One row per client.")
    assert html.count("evidence") == 1
    assert '<a href="#traffic">evidence</a>' in html
    assert '<section id="traffic">' in html
    assert "Nothing stands out." in page("today", [], [], [], [section()])


def test_a_table_says_how_much_of_it_is_shown() -> None:
    assert "1 row. All of them: traffic/csv" in page("", [], [], [], [section()])
    assert "The first 1 of 1,234 rows." in page("", [], [], [], [section(total=1234)])


def test_a_number_sorts_by_its_value_and_not_by_its_text() -> None:
    html = page("", [], [], [], [section(rows=[[Cell("a"), Cell("1.5 kB", 1500.0)], [Cell("b"), Cell("")]])])
    assert '<td class="number" data-v="1500">1.5 kB</td>' in html
    assert '<td class="number"></td>' in html


def test_an_empty_table_is_a_sentence() -> None:
    html = page("", [], [], [], [section(rows=[], total=0)])
    assert "Nobody came." in html
    assert "<table" not in html


# ── charts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bars_show_the_first_rows_and_stack_their_columns() -> None:
    rows = [{"client_id": f"c{n}", "in": n, "out": None} for n in range(RANKED + 9)]
    drawn = figure(Chart("bars", "client_id", ("in", "out"), title="Bytes"), rows)
    inward, outward = drawn["data"]
    assert inward["x"] == [float(n) for n in range(RANKED)]
    assert outward["x"] == [None] * RANKED
    assert drawn["layout"]["yaxis"]["ticktext"] == [f"c{n}" for n in range(RANKED)]
    assert drawn["title"] == "Bytes"


def test_columns_of_several_series_stand_in_the_order_of_the_rows() -> None:
    ranges = [("< 10 s", "tls"), ("< 10 min", "tcp"), ("< 10 min", "tls"), ("< 1 d", "tcp")]
    rows = [{"lasted": lasted, "listener": listener, "sessions": 1} for lasted, listener in ranges]
    across = figure(Chart("columns", "lasted", ("sessions",), by="listener"), rows)["layout"]["xaxis"]
    assert (across["categoryorder"], across["categoryarray"]) == ("array", ["&lt; 10 s", "&lt; 10 min", "&lt; 1 d"])


def test_lines_are_drawn_for_the_largest_values_of_a_column() -> None:
    rows = [{"at": "2026-11-21 11:00:00", "listener": f"l{n}", "open": n} for n in range(SERIES + 3)]
    drawn = figure(Chart("lines", "at", ("open",), by="listener"), rows)
    assert [line["name"] for line in drawn["data"]] == [f"l{n}" for n in range(SERIES + 2, 2, -1)]
    assert drawn["data"][0]["x"] == ["2026-11-21 11:00:00"]


def test_a_heat_map_has_a_cell_for_each_pair_and_a_hole_where_there_is_none() -> None:
    rows = [{"hour": 1, "stage": "queue", "us": 5}, {"hour": 2, "stage": "write", "us": 7}]
    (data,) = figure(Chart("heat", "hour", ("us",), by="stage"), rows)["data"]
    assert (data["x"], data["y"], data["z"]) == (["1", "2"], ["queue", "write"], [[5.0, None], [None, 7.0]])


def test_numbers_that_are_none_are_no_json_that_a_browser_refuses() -> None:
    rows = [{"lasted": "< 1 s", "n": float("nan")}, {"lasted": "≥ 7 d", "n": float("inf")}]
    drawn = figure(Chart("columns", "lasted", ("n",), log=True), rows)
    assert json.loads(json.dumps(drawn, allow_nan=False))["data"][0]["y"] == [None, None]
    assert drawn["layout"]["yaxis"]["type"] == "log"


def test_a_long_client_id_is_cut_in_the_middle_and_whole_in_the_hint() -> None:
    client_id = "backend-consumer-with-a-very-long-name-17"
    drawn = bars(client_id)
    assert drawn["layout"]["yaxis"]["ticktext"] == ["backend-consumer…ery-long-name-17"]
    assert drawn["data"][0]["hovertext"] == [f"{client_id}: bytes"]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.count(1234567), "1,234,567"),
        (units.number(3), "3"),
        (units.number(0.12345), "0.123"),
        (units.seconds(0), "0.0 s"),
        (units.seconds(0.25), "250 ms"),
        (units.seconds(0.00025), "250 µs"),
        (units.seconds(59.94), "59.9 s"),
        (units.seconds(60), "1.0 min"),
        (units.seconds(-5400), "-1.5 h"),
        (units.seconds(86400 * 400), "400.0 d"),
        (units.size(999), "999 B"),
        (units.size(1500), "1.5 kB"),
        (units.size(2e9), "2.0 GB"),
        (units.size(3e18), "3,000.0 PB"),
        (units.share(0.125), "12.5 %"),
        (units.shown("gap_s", 90), "1.5 min"),
        (units.shown("total_p99_us", 1500), "2 ms"),
        (units.shown("payload_bytes", 1500), "1.5 kB"),
        (units.shown("peak_per_s", 2.5), "2.5/s"),
        (units.shown("bytes_per_s", 2500), "2.5 kB/s"),
        (units.shown("share", 0.5), "50.0 %"),
        (units.shown("sessions", 1234), "1,234"),
        (units.heading("last_ended_at"), "last ended"),
        (units.heading("peak_per_s"), "peak per s"),
        (units.heading("median_session_s"), "median session"),
        (units.some(1, "device"), "1 device"),
        (units.some(2000, "device"), "2,000 devices"),
        (units.listed(["a", "b"], 2), "a and b"),
        (units.listed(["a", "b"], 7), "a, b and 5 more"),
        (units.listed(["a"], 1), "a"),
    ],
)
def test_numbers_and_names_read_well(shown: str, text: str) -> None:
    assert shown == text


def test_importing_the_package_and_its_command_line_imports_neither_pyspark_nor_the_broker() -> None:
    program = (
        "import sys, spark_analytics, spark_analytics.__main__;"
        "print(' '.join(name for name in sys.modules if name.split('.')[0] in ('pyspark', 'mqttlite')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
