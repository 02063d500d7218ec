"""The page that is kept: its tables, its charts, and what it says of noise and losses."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import chart, page
from bench.cases import CASES, Case
from bench.growth import Growth, fitted, measure, verdict
from bench.machine import Machine
from bench.measure import Result

HERE = Machine("2025-01-01", "Acme 1", 2, "Linux 6", "CPython 3.11", "0.21", 0.5, {"mqttlite": "0.1 (compiled)"})


def result(broker: str, case: str = "pingpong", number: int = 0, **figures: float) -> Result:
    return Result(broker, case, number, "2025-01-01 00:00:00", f"--mode {case}", figures)


def table(text: str, title: str) -> list[list[str]]:
    part = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize(
    ("figure", "value", "text"),
    [
        ("recv_per_s", 12_345_678, "12.3 M/s"),
        ("recv_per_s", 123_456, "123 k/s"),
        ("connects_per_s", 5_693, "5693/s"),
        ("p50_us", 25.51, "25.5 µs"),
        ("p99_us", 1_234, "1.23 ms"),
        ("last_p50_us", 2_500_000, "2.5 s"),
        ("rss_per_conn_bytes", 3_600, "3.52 KiB"),
        ("reader_ratio", 0.964, "96 %"),
    ],
)
def test_a_quantity_has_its_unit(figure: str, value: float, text: str) -> None:
    assert page.quantity(figure, value) == text


def test_a_table_has_ours_first_and_medians_with_their_spread() -> None:
    measured = [result("raw", p50_us=10)]
    measured += [result("mosquitto", number=n, p50_us=us) for n, us in enumerate((40, 44, 90))]
    measured += [result("mqttlite", number=n, p50_us=us) for n, us in enumerate((22, 20, 30))]
    text = page.page([HERE], measured, [], "charts")
    title, _rule, row, _p99 = table(text, "Wildcards, round trip, slow reader")
    assert title == ["", "mqttlite", "mosquitto", "raw"]
    assert row[1:] == ["22 µs (20 µs – 30 µs)", "44 µs (40 µs – 90 µs)", "10 µs"]
    assert "there were 3 rounds" in text
    assert "Acme 1" in text


def test_a_loss_stands_beside_the_figure_in_table_and_chart(tmp_path: Path) -> None:
    measured = [result("mosquitto", "fanout-100", recv_per_s=1e5, lost=50, received=50)]
    page.write([HERE], measured, [], tmp_path / "page.md")
    assert table((tmp_path / "page.md").read_text(), "Fan-out")[2][1] == "100 k/s, **50.0 % lost**"
    assert "100 k/s, 50.0 % lost" in (tmp_path / "page" / "fan-out.svg").read_text()


def test_a_failed_or_unmeasured_broker_has_no_figure() -> None:
    broken = Result("b", "pingpong", 0, "2025-01-01", "", {}, "limit", "connect: refused")
    text = page.page([HERE], [broken, result("c", "fanout-100", recv_per_s=1.0)], [], "charts")
    assert table(text, "Wildcards, round trip, slow reader")[2][1:] == ["failed", "–"]


def test_other_figures_of_a_case_have_rows_of_their_own() -> None:
    measured = [result("b", "connect-5000", connects_per_s=2e4, failed=3, rss_per_conn_bytes=2048)]
    text = page.page([HERE], measured, [], "charts")
    assert table(text, "Connections")[2:] == [
        ["5000 clients connect", "20 k/s"],
        ["– refused or failed", "3"],
        ["– memory of each", "2 KiB"],
    ]


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.compared], ids=lambda case: case.name)
def test_every_case_that_is_compared_can_be_told(case: Case) -> None:
    measured = [result("b", case.name, **dict.fromkeys((case.figure, *case.also), 1.0))]
    assert case.title in page.page([HERE], measured, [], "charts")


def test_costs_are_cpu_for_a_million_deliveries_and_peak_memory() -> None:
    measured = [result("b", "fanout-100", recv_per_s=1e6, received=2_000_000, broker_cpu_s=0.5, rss_peak_kb=10_240)]
    assert table(page.page([HERE], measured, [], "charts"), "What it cost")[2][1] == "0.25 s, 10 MB"


def test_too_few_ticks_of_the_clock_make_no_figure() -> None:
    measured = [result("b", "fanout-100", recv_per_s=1e6, received=2_000, broker_cpu_s=0.04, rss_peak_kb=10_240)]
    assert table(page.page([HERE], measured, [], "charts"), "What it cost")[2][1] == "10 MB"


def test_noise_is_admitted() -> None:
    quiet = [result("b", p50_us=1.0, other_cpu=0.1), result("b", "fanout-100", recv_per_s=1.0, other_cpu=0.2)]
    assert "not quiet" not in page.page([HERE], quiet, [], "charts")
    noisy = [quiet[0], result("b", "fanout-100", recv_per_s=1.0, other_cpu=0.9)]
    assert "not quiet: during `fanout-100`, other" in page.page([HERE], noisy, [], "charts")


def test_charts_of_an_older_page_are_removed(tmp_path: Path) -> None:
    page.write([HERE], [result("b", p50_us=1.0)], [], tmp_path / "page.md")
    page.write([HERE], [result("b", "fanout-100", recv_per_s=1.0)], [], tmp_path / "page.md")
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["fan-out.svg"]


def test_a_chart_is_xml_for_light_and_dark_whose_longest_bar_is_the_best() -> None:
    bars = (chart.Bar("a<b", "ours", 50.0, "50 & more"), chart.Bar("c", "theirs", 100.0, "100"))
    text = chart.svg([chart.Group("title", "note", (*bars, chart.Bar("d", "raw", None, "failed")))], "chart")
    root = ElementTree.fromstring(text)
    widths = [float(rect.attrib["width"]) for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == [chart.BARS / 2, chart.BARS]
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("costs", "exponent", "words"),
    [
        ([5, 5, 5], 0.0, "flat"),
        ([1, 1.6, 2.5], 0.2, "nearly flat"),
        ([1, 3.162, 10], 0.5, "less than linear"),
        ([1, 10, 100], 1.0, "linear"),
        ([1, 100, 10_000], 2.0, "more than linear"),
    ],
)
def test_growth_is_an_exponent_and_a_word(costs: list[float], exponent: float, words: str) -> None:
    growth = Growth("match", "subscriptions", [10, 100, 1_000], costs)
    assert growth.exponent == pytest.approx(exponent, abs=0.01)
    assert verdict(fitted(growth.sizes, costs)) == words
    assert table("## x\n" + page.growth_table([growth]), "x")[2][-1] == words


@pytest.mark.slow
def test_all_growths_can_be_measured() -> None:
    for growth in measure(most=10_000):
        assert all(cost > 0 for cost in growth.costs_us)
        assert len(growth.sizes) == len(growth.costs_us) >= 2
