"""The page as a person uses it, in a browser: drawn, folded, searched, printed, and judged by axe-core.

No Spark: the page is made of a few rows here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding
from spark_analytics.page.charts import figure
from spark_analytics.page.html import FOLDED, Cell, Content, Head, Section, page
from spark_analytics.tables import Chart
from tests.support.axe import axe_core, violations
from tests.support.browser import Browser, Page

pytestmark = pytest.mark.slow

HOSTILE: Final = "</script><b>x</b>/#client=%"

ROWS: Final = 25


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_core()


def times(number: int) -> str:
    return f"2026-11-21 11:{number:02}:00"


def table(name: str, chart: Chart, rows: int = ROWS) -> Section:
    values = [
        {
            "client_id": f"client-{n:02}",
            "at": times(n),
            "kind": f"< {n} s",
            "p99_us": 10.0 ** (n % 8),
            "lost": n,
            "by": n % 3,
        }
        for n in range(rows)
    ]
    columns = [("client id", False), ("lost", True)]
    cells = [
        [Cell(row["client_id"], client_id=row["client_id"]), Cell(str(row["lost"]), row["lost"])] for row in values
    ]
    return Section(name, f"Table {name}", "One row each.", "None.", figure(chart, values), columns, cells, rows)


def view(*neighbours: str) -> dict[str, Any]:
    ends = ["connection_lost", "client_disconnected", None]
    return {
        "sessions": [
            [times(5 * n), times(5 * n + 3) if end else None, end, "10.0.0.1:5", 5, 6, 7] for n, end in enumerate(ends)
        ],
        "activity": [[times(n), n, 2 * n, 0, 3, 0.5] for n in range(20)],
        "drops": [["queue_full", 7, times(1), times(9)]],
        "latency": [[12, 90, 250_000, 96_000_000, 5, None]],
        "traffic": [[3, 15, 18, 2_500_000, 512, 0.25]],
        "trouble": [[["slow", "drops"], "reads too slowly"]],
        "neighbours": [[name, ["slow"]] for name in neighbours],
    }


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    findings = [
        Finding(PROBLEM, "client-01: reads too slowly.", "bars", "client-01"),
        Finding(NOTABLE, "Two topics are read by nobody.", "lines"),
        Finding(INFORMATION, "All else is well.", "columns"),
    ]
    head = Head(
        "2026-11-21",
        times(59),
        ["One of two is in trouble."],
        [("messages", "12")],
        findings,
        ["A note."],
        ["A warning."],
    )
    chapters = {
        "Overview": [table("lines", Chart("lines", "at", ("p99_us",), by="by", log=True))],
        "Devices in trouble": [
            table("bars", Chart("bars", "client_id", ("lost",))),
            table("columns", Chart("columns", "kind", ("lost",), by="by"), rows=FOLDED),
        ],
    }
    clients = {"client-01": view("client-02", HOSTILE), "client-02": view("client-01"), HOSTILE: view(), "quiet": {}}
    place = tmp_path_factory.mktemp("page") / "report.html"
    place.write_text(page(head, Content(chapters, clients)), encoding="utf-8")
    return place


async def settled(shown: Page, script: str = "0") -> None:
    """Do something, and wait until it is drawn."""
    await shown.find(f"({script}, new Promise(done => setTimeout(done, 300)))")


async def test_the_page_is_accessible_in_both_of_its_views(report: Path, axe: str, browser: Browser) -> None:
    async with browser.showing(report.as_uri()) as shown:
        await shown.find(f"{axe};0")
        whole = await violations(shown)
        await settled(shown, "location.hash = 'client=client-01'")
        one = await violations(shown)
    assert (whole, one) == ([], [])
    assert shown.errors == []
    assert shown.requests == [report.as_uri()]


async def test_tables_are_folded_searched_and_sorted(report: Path, browser: Browser) -> None:
    rows = (
        "[...document.querySelectorAll('#bars tbody tr')].filter(row => row.offsetParent)"
        ".map(row => row.cells[0].innerText)"
    )
    async with browser.showing(report.as_uri()) as shown:
        folded = await shown.find(rows)
        await shown.find("document.querySelector('#bars .tools button').click()")
        opened = await shown.find(rows)
        await shown.find("document.querySelector('#bars .tools button').click()")
        # The number descends first, and the rows beyond the fold are among those that are sorted.
        await shown.find("document.querySelectorAll('#bars th button')[1].click()")
        largest = await shown.find(rows)
        await shown.find(
            "(field => { field.value = 'T-03'; field.dispatchEvent(new Event('input')); })"
            "(document.querySelector('#bars .tools input'))"
        )
        searched = await shown.find(rows)
        assert await shown.find("document.querySelector('#columns .tools')") is None
    assert folded == [f"client-{n:02}" for n in range(FOLDED)]
    assert len(opened) == ROWS
    assert largest == [f"client-{ROWS - 1 - n:02}" for n in range(FOLDED)]
    assert searched == ["client-03"]


async def test_a_client_has_a_view_of_its_own_and_leads_to_its_neighbours(report: Path, browser: Browser) -> None:
    text = "document.getElementById('client').innerText"
    async with browser.showing(report.as_uri()) as shown:
        await settled(shown, "document.querySelector('#findings a').click()")
        first = await shown.find(text)
        hidden = await shown.find("document.getElementById('report').hidden")
        bars = await shown.find("[...document.querySelectorAll('.lives span')].map(bar => bar.className)")
        drawn = await shown.find("document.querySelectorAll('#client .chart .trace path').length")
        await settled(shown, "[...document.querySelectorAll('#client td a')].at(-1).click()")
        second = await shown.find("document.querySelector('#client h1').innerText")
        markup = await shown.find("document.querySelectorAll('#client h1 b').length")
        await settled(shown, "location.hash = 'client=quiet'")
        quiet = await shown.find(text)
        await settled(shown, "document.querySelector('#client .back').click()")
        back = await shown.find("[document.getElementById('client').hidden, document.getElementById('report').hidden]")
        await settled(
            shown,
            "(field => { field.value = 'client-02'; field.dispatchEvent(new Event('change')); })"
            "(document.getElementById('find-client'))",
        )
        looked_up = await shown.find("document.querySelector('#client h1').innerText")
    assert hidden
    for said in (
        "client-01",
        "reads too slowly",
        "15 from it (2.5 MB)",
        "18 to it (512 B), 25.0 %",
        "queue_full",
        "1.6 min",
    ):
        assert said in first
    assert bars == ["lost", "", ""]
    assert drawn >= 5
    assert (second, markup) == (HOSTILE, 0)
    assert "No report names this client" in quiet
    assert back == [True, False]
    assert looked_up == "client-02"
    assert shown.errors == []


async def test_charts_fit_the_paper_and_stand_below_their_titles(report: Path, browser: Browser) -> None:
    boxes = """[...document.querySelectorAll('figure')].map(figure => {
        const box = part => figure.querySelector(part)?.getBoundingClientRect();
        return {title: box('figcaption').bottom, chart: box('.chart').top, plot: box('.cartesianlayer').bottom,
                legend: box('.legend')?.top ?? 9999, width: box('.main-svg').width,
                drawn: box('.svg-container').bottom, end: box('.chart').bottom};
    })"""
    async with browser.showing(report.as_uri()) as shown:
        on_screen = await shown.find(boxes)
        await settled(shown, "window.dispatchEvent(new Event('beforeprint'))")
        printed = await shown.find(boxes)
        await settled(shown, "window.dispatchEvent(new Event('afterprint'))")
        after = await shown.find(boxes)
    assert len(on_screen) == 3
    for box in on_screen:
        assert box["title"] <= box["chart"] + 1
        assert box["plot"] <= box["legend"] + 1
        assert box["drawn"] <= box["end"] + 1
    assert {box["width"] for box in printed} == {680}
    assert [box["width"] for box in after] == [box["width"] for box in on_screen]


async def test_nothing_is_wider_than_a_small_window(report: Path, browser: Browser) -> None:
    async with browser.showing(report.as_uri()) as shown:
        await shown.resize(800, 1000)
        await asyncio.sleep(0.5)
        width = await shown.find("document.documentElement.scrollWidth")
    assert width <= 800, json.dumps(width)
