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
from spark_analytics.page.html import FOLDED, Cell, Content, Head, Section, page
from spark_analytics.registry import REPORTS
from spark_analytics.sections import SECTIONS
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


def content(*sections: Section, clients: dict[str, Any] | None = None) -> Content:
    return Content({"Traffic": sections}, clients or {})


@pytest.mark.long
def test_text_from_a_client_is_escaped_everywhere() -> None:
    cells = [Cell(HOSTILE * 3, client_id=HOSTILE), Cell("1", 1.0)]
    hostile = section(title=HOSTILE, figure=bars(HOSTILE), rows=[cells])
    finding = Finding(PROBLEM, HOSTILE, "traffic", HOSTILE)
    said = [HOSTILE]
    head = Head(
        HOSTILE, HOSTILE, verdict=said, tiles=[(HOSTILE, HOSTILE)], findings=[finding], notes=said, warnings=said
    )
    html = page(head, content(hostile, clients={HOSTILE: {"trouble": [[[HOSTILE], HOSTILE]]}}))
    scripts = Reader(html).scripts
    data = "application/json"
    assert [attributes.get("type") for attributes, _ in scripts] == [data, data, None, None]
    assert "alert" not in scripts[2][1] + scripts[3][1]
    rest = html
    for _, text in scripts[:3]:
        rest = rest.replace(text, "")
    assert "'1'" not in rest


@pytest.mark.long
def test_only_the_scripts_that_are_ours_may_run() -> None:
    html = page(Head("today"), content(section(figure=bars("a"))))
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
    """Links lead into the page, and to the files of the report beside it."""
    html = page(Head("today", tiles=[("sessions", "1")]), content(section(figure=bars("a"))))
    for tag, attributes in Reader(html).tags:
        assert "src" not in attributes, tag
        assert re.match(r"#|\w+/csv/\w+\.csv$", str(attributes.get("href", "#"))), tag
    assert "Plotly" in html
    assert "@import" not in html[: html.index("</style>")]
    assert "url(" not in html[: html.index("</style>")]


def test_a_page_without_a_chart_does_not_carry_the_chart_library() -> None:
    assert len(page(Head("today"), content(section()))) < 30_000


def test_both_colour_schemes_are_there() -> None:
    assert "prefers-color-scheme: dark" in page(Head("today"), content(section()))


def test_the_verdict_comes_first_then_findings_which_lead_to_their_evidence() -> None:
    findings = [Finding(PROBLEM, "14 devices flap.", "traffic"), Finding(INFORMATION, "All is well.", "not_shown")]
    head = Head("today", verdict=["All is lost."], tiles=[("sessions", "1")], findings=findings)
    html = page(head, content(section()))
    places = [html.index(text) for text in ("All is lost.", "14 devices flap.", "One row per client.")]
    assert places == sorted(places)
    assert html.count(">evidence<") == 1
    assert '<a href="#traffic">evidence<' in html
    assert '<section id="traffic">' in html
    assert "Nothing stands out." in page(Head("today"), content(section()))


@pytest.mark.long
def test_a_client_with_a_view_is_linked_and_others_are_not() -> None:
    rows = [[Cell("a/b", client_id="a/b"), Cell("1", 1.0)], [Cell("c", client_id="c"), Cell("1", 1.0)]]
    findings = [Finding(PROBLEM, "It is slow.", "traffic", "a/b"), Finding(PROBLEM, "It too.", "traffic", "c")]
    html = page(Head("today", findings=findings), content(section(rows=rows, total=2), clients={"a/b": {}}))
    assert html.count('href="#client=a%2Fb"') == 2
    assert 'href="#client=c"' not in html
    assert '<option value="a/b">' in html


def test_a_table_is_folded_and_says_how_much_of_it_is_shown() -> None:
    def shown(rows: int, total: int) -> str:
        cells = [[Cell(f"c{number}"), Cell("1", 1.0)] for number in range(rows)]
        return page(Head(""), content(section(rows=cells, total=total)))

    assert '1 row. All of them: <a href="traffic/csv/traffic.csv">' in shown(1, 1)
    assert "The first 200 of 1,234 rows." in shown(200, 1234)
    assert "class=folded" not in shown(FOLDED, FOLDED)
    assert '<button type="button" aria-expanded' not in shown(FOLDED, FOLDED)
    assert shown(FOLDED + 3, FOLDED + 3).count("class=folded") == 3
    assert "Show 13 rows" in shown(FOLDED + 3, FOLDED + 3)


def test_a_number_sorts_by_its_value_and_not_by_its_text() -> None:
    rows = [[Cell("a"), Cell("1.5 kB", 1500.0)], [Cell("b"), Cell("")]]
    html = page(Head(""), content(section(rows=rows)))
    assert '<td class="number" data-v="1500">1.5 kB</td>' in html
    assert '<td class="number"></td>' in html


def test_an_empty_table_is_a_sentence() -> None:
    html = page(Head(""), content(section(rows=[], total=0)))
    assert "Nobody came." in html
    assert "<table" not in html


def test_each_table_is_in_one_section_or_one_that_others_are_made_of() -> None:
    made_of = {"totals", "device_hours", "churn_per_minute", "client_activity"}
    tables = [table.name for report in REPORTS for table in report.TABLES]
    shown = [name for names in SECTIONS.values() for name in names]
    assert sorted(shown) == sorted(set(tables) - made_of)
    assert shown[-1] == "sessions", "the widest comes last"


# ── charts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bars_show_the_first_rows_and_stack_their_columns() -> None:
    rows = [{"client_id": f"c{n}", "in": n, "out": None} for n in range(RANKED + 9)]
    drawn = figure(Chart("bars", "client_id", ("in", "out"), title="Bytes"), rows)
    inward, outward = drawn["data"]
    assert inward["x"] == [float(n) for n in range(RANKED)]
    assert outward["x"] == [None] * RANKED
    assert drawn["layout"]["yaxis"]["ticktext"] == [f"c{n}" for n in range(RANKED)]
    assert drawn["title"] == "Bytes"


def test_an_axis_of_several_columns_has_the_name_of_none_of_them() -> None:
    rows = [{"queue": "jobs", "cause": "nacked", "failed": 2, "acknowledged": 5}]
    drawn = figure(Chart("bars", "queue", ("failed", "acknowledged"), beside="cause"), rows)
    assert drawn["layout"]["xaxis"]["title"]["text"] == ""
    assert drawn["layout"]["yaxis"]["ticktext"] == ["jobs, nacked"]
    assert drawn["data"][0]["hovertext"] == ["jobs, nacked: failed 2"]
    alone = figure(Chart("bars", "queue", ("failed",)), rows)
    assert alone["layout"]["xaxis"]["title"]["text"] == "failed"


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


def test_a_single_point_stands_in_minutes_and_not_in_milliseconds() -> None:
    rows = [{"at": "2026-11-21 11:00:00", "by": name, "open": 1} for name in "ab"]
    across = figure(Chart("lines", "at", ("open",), by="by"), rows)["layout"]["xaxis"]
    assert across["range"] == ["2026-11-21 10:55:00", "2026-11-21 11:05:00"]
    rows.append({"at": "2026-11-21 11:01:00", "by": "a", "open": 1})
    assert "range" not in figure(Chart("lines", "at", ("open",), by="by"), rows)["layout"]["xaxis"]


@pytest.mark.parametrize(
    ("column", "values", "drawn", "named"),
    [
        ("backpressure_s", [0, 9720], [0, 2.7], "hours"),
        ("backpressure_s", [90, 300], [1.5, 5], "minutes"),
        ("duration_s", [0.25, 0.5], [250, 500], "ms"),
        ("p99_us", [250, 1500], [250, 1500], "µs"),
        ("p99_us", [0, 250_000], [0, 250], "ms"),
        ("bytes_sent", [2_500_000], [2.5], "MB"),
        ("bytes_sent_per_s", [1500, 3000], [1.5, 3], "kB a second"),
        ("share", [0.5], [50], "%"),
        ("messages", [5, 12_000], [5, 12_000], "messages"),
        ("backpressure_s", [0, None], [0, None], "µs"),
    ],
)
def test_axes_have_units_that_people_read(
    column: str, values: list[float | None], drawn: list[float | None], named: str
) -> None:
    rows = [{"at": f"2026-11-21 11:0{n}:00", column: value} for n, value in enumerate(values)]
    shape = figure(Chart("lines", "at", (column,)), rows)
    assert shape["data"][0]["y"] == pytest.approx(drawn)
    assert shape["layout"]["yaxis"]["title"]["text"] == named


def test_a_logarithmic_axis_reads_in_units_and_has_no_spike_where_there_is_nothing() -> None:
    rows = [{"at": f"2026-11-21 11:0{n}:00", "p99_us": value} for n, value in enumerate([0, 250, 96_000_000])]
    shape = figure(Chart("lines", "at", ("p99_us",), log=True), rows)
    assert shape["data"][0]["y"] == [None, 250, 96_000_000]
    axis = shape["layout"]["yaxis"]
    assert axis["ticktext"] == ["100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min"]
    assert axis["tickvals"][:2] == [100, 1000]
    assert "rangemode" not in axis


@pytest.mark.parametrize(
    ("kind", "smallest", "largest", "marks"),
    [
        ("bytes", 2e3, 3e6, ["1.0 kB", "10.0 kB", "100.0 kB", "1.0 MB", "10.0 MB"]),
        ("messages", 5, 40, ["1", "10", "100"]),
        ("seconds", 1e-9, 1e-9, ["1 µs"]),
    ],
)
def test_marks_of_a_logarithmic_axis(kind: str, smallest: float, largest: float, marks: list[str]) -> None:
    assert [text for _, text in units.ticks(kind, smallest, largest)] == marks


def test_numbers_that_are_none_are_no_json_that_a_browser_refuses() -> None:
    rows = [{"lasted": "< 1 s", "n": float("nan")}, {"lasted": "≥ 7 d", "n": float("inf")}]
    drawn = figure(Chart("columns", "lasted", ("n",), log=True), rows)
    assert json.loads(json.dumps(drawn, allow_nan=False))["data"][0]["y"] == [None, None]
    assert drawn["layout"]["yaxis"]["type"] == "log"


def test_a_long_client_id_is_cut_in_the_middle_and_whole_in_the_hint() -> None:
    client_id = "backend-consumer-with-a-very-long-name-17"
    drawn = bars(client_id)
    assert drawn["layout"]["yaxis"]["ticktext"] == ["backend-consumer…ery-long-name-17"]
    assert drawn["data"][0]["hovertext"] == [f"{client_id}: bytes 1 B"]
    assert drawn["title"] == "Bytes by client id"


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


@pytest.mark.long
def test_importing_the_package_and_its_command_line_imports_neither_pyspark_nor_the_broker() -> None:
    program = (
        "import sys, spark_analytics, spark_analytics.__main__;"
        "print(' '.join(name for name in sys.modules if name.split('.')[0] in ('pyspark', 'mqttlite')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
