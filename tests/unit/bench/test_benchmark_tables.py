"""Tables say what was measured: medians, how far they spread, what was lost, who failed."""

import pytest

from bench import report
from bench.machine import Machine
from bench.measure import Result


def result(broker: str, case: str = "pingpong", number: int = 0, drained: str = "all", **figures: float) -> Result:
    return Result(broker, case, number, "2025-01-01 00:00:00", f"--mode {case}", figures, drained)


def failed(broker: str, error: str, case: str = "pingpong") -> Result:
    return Result(broker, case, 0, "2025-01-01 00:00:00", f"--mode {case}", {}, "limit", error)


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.123456, "0.123"),
        (12.34, "12.3"),
        (100.4, "100"),
        (9999, "9999"),
        (10_000, "10.0k"),
        (123_456, "123.5k"),
        (1_000_000, "1.00M"),
        (-20_000, "-20.0k"),
    ],
)
def test_a_number_is_short(value: float | None, text: str) -> None:
    assert report.short(value) == text


def test_a_case_shows_median_spread_and_ratio_with_the_best_first() -> None:
    measured = [result("mosquitto", number=n, p50_us=us) for n, us in enumerate((40.0, 44.0, 90.0))]
    measured += [result("mqttlite", number=n, p50_us=us) for n, us in enumerate((22.0, 20.0, 30.0))]
    title, _rule, first, second = rows(report.details(measured, "mosquitto"))
    assert title[:4] == ["broker", "p50_us", "lowest – highest", "÷ mosquitto"]
    assert first[:4] == ["mqttlite", "22", "20 – 30", "0.50"]
    assert second[:4] == ["mosquitto", "44", "40 – 90", "1.00"]


def test_the_best_is_the_highest_where_higher_is_better() -> None:
    measured = [result("slower", "fanout-100", recv_per_s=1e5), result("faster", "fanout-100", recv_per_s=2e5)]
    assert [row[0] for row in rows(report.details(measured, "slower"))[2:]] == ["faster", "slower"]


def test_a_reference_that_was_not_measured_has_no_column() -> None:
    (title, *_) = rows(report.details([result("mqttlite", p50_us=20.0)], "mosquitto"))
    assert not any(cell.startswith("÷") for cell in title)


def test_a_ratio_to_raw_is_shown_when_raw_was_measured() -> None:
    measured = [result("raw", p50_us=10.0), result("mqttlite", p50_us=25.0)]
    title, _rule, _raw, ours = rows(report.details(measured, "mosquitto"))
    assert ours[title.index("÷ raw")] == "2.50"


def test_cpu_is_cores_over_the_whole_phase() -> None:
    measured = [result("b", p50_us=1.0, phase_s=2.0, elapsed_s=0.5, broker_cpu_s=1.5, loadgen_cpu_s=0.5)]
    title, _rule, row = rows(report.details(measured, "b"))
    assert (row[title.index("broker CPU")], row[title.index("loadgen CPU")]) == ("0.75", "0.25")


def test_memory_is_the_highest_seen() -> None:
    measured = [result("b", p50_us=1.0, rss_peak_kb=2048), result("b", number=1, p50_us=1.0, rss_after_kb=4096)]
    title, _rule, row = rows(report.details(measured, "b"))
    assert row[title.index("RSS peak MB")] == "4"


def test_a_case_may_show_figures_of_its_own() -> None:
    measured = [result("b", "connect-5000", connects_per_s=20_000, failed=3, rss_per_conn_bytes=1268)]
    title, _rule, row = rows(report.details(measured, "b"))
    assert (row[title.index("failed")], row[title.index("rss_per_conn_bytes")]) == ("3", "1268")


@pytest.mark.parametrize(
    ("lost", "received", "drained", "text"),
    [(0, 100, "all", "0"), (25, 75, "idle", "25.0 %"), (25, 75, "limit", "25.0 % (late)"), (0, 0, "all", "0")],
)
def test_losses_are_shares_of_what_was_due(lost: int, received: int, drained: str, text: str) -> None:
    measured = [result("b", drained=drained, p50_us=1.0, lost=lost, received=received)]
    title, _rule, row = rows(report.details(measured, "b"))
    assert row[title.index("lost")] == text


def test_a_contender_that_failed_is_last_and_says_why_below() -> None:
    table = report.details([failed("broken", "connect: refused"), result("fine", p50_us=1.0)], "fine")
    assert [row[0] for row in rows(table)[2:]] == ["fine", "broken"]
    assert rows(table)[3][1] == "failed"
    assert table.endswith("broken failed: connect: refused")


def test_a_median_leaves_failed_rounds_out() -> None:
    measured = [result("b", p50_us=10.0), result("b", number=1, p50_us=20.0), failed("b", "timed out")]
    assert rows(report.details(measured, "b"))[2][1] == "15"


def test_columns_line_up() -> None:
    measured = [result("a-rather-long-name", p50_us=1.0), result("b", p50_us=123456.0)]
    lines = [line for line in report.details(measured, "b").splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1


def test_a_summary_has_a_column_for_each_case_and_marks_losses() -> None:
    measured = [
        result("mosquitto", "stream-q0-16B-x1", recv_per_s=1e5, lost=0, received=10),
        result("mosquitto", "stream-q1-16B-x1", recv_per_s=5e4, lost=0, received=10),
        result("mqttlite", "stream-q0-16B-x1", recv_per_s=1e6, lost=5, received=5),
        failed("mqttlite", "gone", "stream-q1-16B-x1"),
        result("raw", "stream-q0-16B-x1", recv_per_s=2e7, lost=0, received=10),
    ]
    assert rows(report.summary(measured, "mosquitto"))[2:] == [
        ["mosquitto", "100.0k", "50.0k"],
        ["mqttlite", "1.00M (×10) !50.0 %", "failed"],
        ["raw", "20.00M (×2e+02)", "-"],
    ]


def test_kinds_of_load_have_tables_of_their_own() -> None:
    measured = [result("b", "fanin-500-2k", p99_us=1.0), result("b", "fanout-100", recv_per_s=1.0)]
    assert [line for line in report.summary(measured, "b").splitlines() if line[:1] == "#"] == [
        "### fan-out",
        "### fan-in",
    ]


def test_the_heading_names_the_machine_and_the_builds() -> None:
    machine = Machine("2025-01-01", "Acme 1", 2, "Linux 6", "CPython 3.11", "0.21", 0.5, {"mqttlite": "0.1 (pure)"})
    told = report.heading(machine)
    assert all(word in told for word in ("Acme 1", "2 cores", "CPython 3.11", "uvloop 0.21", "- mqttlite: 0.1 (pure)"))


def test_progress_tells_a_figure_or_an_error() -> None:
    assert "p50_us 12.5, 0 lost" in report.progress(result("b", p50_us=12.5))
    assert "connect: refused" in report.progress(failed("b", "connect: refused"))
