"""docs/reference/performance.md from results: a chart and a table for each kind of load, and what it cost.

Pure functions but for `write`. The tables on a terminal are `report`'s.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import chart, report
from bench.cases import CASES, Better, Case
from bench.growth import Growth, verdict
from bench.machine import Machine
from bench.measure import Result

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "performance.md"
OWN: Final = "mqttlite"
"""How the names of our variants begin."""
NOISY: Final = 0.25
"""Cores that others used during a run, above which its figures are to be read with care."""
NOTES: Final = {
    "recv_per_s": "deliveries/s",
    "cpu_per_delivery_us": "CPU of the broker for each delivery",
    "connects_per_s": "connects/s",
    "max_rate": "messages/s",
    "p50_us": "median",
    "p99_us": "99th percentile",
    "last_p50_us": "median",
    "reader_ratio": "",
    "rss_per_conn_bytes": "memory",
}
"""What a figure is, where the case's title does not tell."""
ALSO: Final = {
    "p50_us": "latency, median",
    "p99_us": "latency, 99th percentile",
    "last_p99_us": "99th percentile",
    "failed": "refused or failed",
    "resumed": "resumed",
    "rss_per_conn_bytes": "memory of each",
    "connects_per_s": "connects",
    "without_per_s": "deliveries without it",
    "recv_per_s": "deliveries beside it",
    "first_failing_rate": "the lowest rate that failed",
}
"""The same for a case's other figures."""
INTRODUCTION: Final = """\
# How fast it is, beside others

<!-- `python -m bench compare` writes this page; edits here are lost. -->

Each case met all brokers within seconds, in an order that turned with the round; figures are medians, with the lowest
and the highest round behind them, and {rounds}. All brokers ran with their defaults, but for a log of
their clients, which none of them wrote, and `set_tcp_nodelay true` for Mosquitto, which waits up to 40 ms for more
bytes without it. They ran on the machine of the load generator, over loopback: *raw* is the same load through a
process that only reads and sends, the most that TCP lets anybody do. Nobody may be fast by losing messages:
each case counts what arrives, and a loss stands beside the figure.
[How to measure this yourself](../howto/benchmark.md), and how to read it.
"""


def write(machines: Sequence[Machine], results: Sequence[Result], growths: Sequence[Growth], path: Path) -> None:
    """The page, and its charts in the folder of the same name beside it."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for table in _tables(results):
        picture = chart.svg([_group(case, results) for case in _cases(results, table)], table)
        (folder / f"{_slug(table)}.svg").write_text(picture, encoding="utf-8")
    path.write_text(page(machines, results, growths, folder.name), encoding="utf-8")


def page(machines: Sequence[Machine], results: Sequence[Result], growths: Sequence[Growth], folder: str) -> str:
    """Its text."""
    rounds = len({result.round for result in results})
    parts = [INTRODUCTION.format(rounds="there was one round" if rounds == 1 else f"there were {rounds} rounds")]
    parts += [f"{report.heading(machine)}\n" for machine in machines]
    if noise := _noise(results):
        parts.append(f"{noise}\n")
    for table in _tables(results):
        title = table[0].upper() + table[1:]
        parts.append(f"## {title}\n\n![{title}]({folder}/{_slug(table)}.svg)\n\n{_figures(table, results)}\n")
    parts.append(
        "## What it cost\n\nCPU seconds of the broker, in user and kernel mode, for a million deliveries, and the peak "
        "of its memory.\n\n"
        f"{_costs(results)}\n"
    )
    if growths:
        parts.append(
            "## How the cost grows\n\nThe compiled core in a process without sockets. *Exponent* is that of "
            "the size in the cost, fitted over all sizes: 0 is flat, 1 is linear.\n\n"
            f"{growth_table(growths)}\n"
        )
    return "\n".join(parts)


def growth_table(growths: Sequence[Growth]) -> str:
    """What a thing costs at each size, and how it grows."""
    rows = []
    for growth in growths:
        costs = " · ".join(
            f"{_size(size)}: {quantity('us', cost)}" for size, cost in zip(growth.sizes, growth.costs_us, strict=True)
        )
        rows.append([growth.what, growth.by, costs, f"{growth.exponent:.2f}", verdict(growth.exponent)])
    return report.markdown(["what is done", "beside how many", "cost", "exponent", ""], rows)


def quantity(figure: str, value: float) -> str:
    """A figure with its unit, in three digits or so."""
    if figure.endswith("_ratio"):
        return f"{100 * value:.0f} %"
    if figure.endswith("us"):
        scale, unit = (1, "µs") if value < 1e3 else (1e3, "ms") if value < 1e6 else (1e6, "s")
        return f"{_digits(value / scale)} {unit}"
    if figure.endswith("bytes"):
        return f"{_digits(value / 1024)} KiB"
    if figure in ("failed", "resumed"):
        return f"{value:.0f}"
    scale, unit = (1, "") if value < 1e4 else (1e3, "k") if value < 1e6 else (1e6, "M")
    return f"{_digits(value / scale)}{' ' if unit else ''}{unit}/s"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _size(size: int) -> str:
    return f"{size // 1_000_000} M" if size >= 1_000_000 else f"{size // 1000} k" if size >= 10_000 else str(size)


def _figures(table: str, results: Sequence[Result]) -> str:
    names = _names(results)
    rows = []
    for case in _cases(results, table):
        rows.append([case.title, *(_cell(_of(results, case, name), case.figure) for name in names)])
        for figure in case.also:
            rows.append([f"– {ALSO[figure]}", *(_median_cell(_of(results, case, name), figure) for name in names)])
    return report.markdown(["", *names], rows)


def _cell(mine: Sequence[Result], figure: str) -> str:
    """Median, spread and loss of a case's main figure."""
    figures = [result.figures[figure] for result in mine if figure in result.figures]
    if not figures:
        return "failed" if mine else "–"
    cell = quantity(figure, statistics.median(figures))
    if len(figures) > 1:
        cell += f" ({quantity(figure, min(figures))} – {quantity(figure, max(figures))})"
    lost = report.loss(mine)
    return cell if lost == "0" else f"{cell}, **{lost} lost**"


def _median_cell(mine: Sequence[Result], figure: str) -> str:
    value = _median(mine, lambda result: result.figures.get(figure))
    return "–" if value is None else quantity(figure, value)


def _costs(results: Sequence[Result]) -> str:
    names = [name for name in _names(results) if name != report.RAW]
    rows = []
    for case in _cases(results):
        cells = [_cost(_of(results, case, name)) for name in names]
        if any(cell != "–" for cell in cells):
            rows.append([f"{case.table}: {case.title}", *cells])
    return report.markdown(["", *names], rows)


def _cost(results: Sequence[Result]) -> str:
    """CPU seconds for a million deliveries, where there were enough to tell, and the memory."""
    parts = []
    if (seconds := _median(results, _seconds_each)) is not None:
        parts.append(f"{_digits(seconds * 1e6)} s")
    if (memory := max((report.rss_mb(result) for result in results), default=0)) > 0:
        parts.append(f"{memory:.0f} MB")
    return ", ".join(parts) or "–"


def _seconds_each(result: Result) -> float | None:
    received, cpu = result.figures.get("received", 0), result.figures.get("broker_cpu_s", 0)
    return cpu / received if received and cpu >= 0.05 else None  # less is too little to tell


def _group(case: Case, results: Sequence[Result]) -> chart.Group:
    bars = []
    for name in _names(results):
        if not (mine := _of(results, case, name)):
            continue
        value = _median(mine, lambda result: result.figures.get(case.figure))
        kind = "raw" if name == report.RAW else "ours" if name.startswith(OWN) else "theirs"
        text = "failed" if value is None else quantity(case.figure, value)
        lost = report.loss(mine)
        bars.append(chart.Bar(name, kind, value, text if lost == "0" else f"{text}, {lost} lost"))
    less = "less is better" if case.better is Better.LOWER else ""
    return chart.Group(case.title, ", ".join(filter(None, (NOTES[case.figure], less))), tuple(bars))


def _noise(results: Sequence[Result]) -> str:
    """Which figures others disturbed."""
    noisy = [
        case.name
        for case in _cases(results)
        if (_median([r for r in results if r.case == case.name], lambda r: r.other_cpu) or 0) > NOISY
    ]
    if not noisy:
        return ""
    share = f"{100 * NOISY:.0f} % of a core"
    all_of_them = len(noisy) == len(list(_cases(results)))
    named = "all cases" if all_of_them else ", ".join(f"`{name}`" for name in noisy)
    return f"> The machine was not quiet: during {named}, other programs used more than {share} in half of the runs."


def _median(results: Sequence[Result], of: Callable[[Result], float | None]) -> float | None:
    found = [value for result in results if (value := of(result)) is not None]
    return statistics.median(found) if found else None


def _names(results: Sequence[Result]) -> list[str]:
    """Ours first, the limit that TCP sets last."""
    names = dict.fromkeys(result.broker for result in results)
    return sorted(names, key=lambda name: (name == report.RAW, not name.startswith(OWN)))


def _tables(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(case.table for case in _cases(results)))


def _cases(results: Sequence[Result], table: str | None = None) -> list[Case]:
    measured = {result.case for result in results}
    return [case for case in CASES.values() if case.name in measured and table in (None, case.table)]


def _of(results: Sequence[Result], case: Case, name: str) -> list[Result]:
    return [result for result in results if result.case == case.name and result.broker == name]


def _slug(table: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in table.lower()).split())
