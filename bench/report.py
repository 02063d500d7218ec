"""Tables from results: pure functions from what was measured to Markdown.

A figure is the median over the rounds; beside it stand its lowest and highest value, because a median alone
cannot tell a difference from noise.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from bench.cases import CASES, Better, Case
from bench.machine import Machine
from bench.measure import Result

RAW: Final = "raw"
ERROR_LENGTH: Final = 200
"""A compiler or a broker can say much; its first words tell what is wrong, the file keeps the rest."""


def heading(machine: Machine) -> str:
    """Where, when and what: without these no figure means anything."""
    lines = [
        f"Measured {machine.measured_at} on {machine.cores} cores of {machine.cpu}, {machine.kernel},",
        f"{machine.python}, uvloop {machine.uvloop}; load average at the start {machine.load_average:.2f}.",
        "",
        *(f"- {name}: {version}" for name, version in machine.brokers.items()),
    ]
    return "\n".join(lines)


def details(results: Sequence[Result], reference: str) -> str:
    """A table for each case: a row per contender, the best first."""
    return "\n\n".join(_case_table(case, _of_case(results, case), reference) for case in _cases(results))


def summary(results: Sequence[Result], reference: str) -> str:
    """A table for each kind of load: a row per contender, and how many times the reference its figure is."""
    tables = dict.fromkeys(case.table for case in _cases(results))
    return "\n\n".join(
        _kind_table(table, [case for case in _cases(results) if case.table == table], results, reference)
        for table in tables
    )


def progress(result: Result) -> str:
    """One line for a run that has just ended."""
    case = CASES[result.case]
    figures = result.figures
    outcome = result.error or f"{case.figure} {short(figures.get(case.figure))}, {loss([result])} lost"
    return f"round {result.round} {result.case:20} {result.broker:14} {outcome} (other CPU {result.other_cpu:.2f})"


def short(value: float | None) -> str:
    """A number of three digits or so that a person can compare at a glance."""
    if value is None:
        return "-"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _case_table(case: Case, results: Sequence[Result], reference: str) -> str:
    """What one case gave; below it, why a contender failed."""
    value = {
        name: median for name in _names(results) if (median := _median(_of(results, name), case.figure)) is not None
    }
    compared = [name for name in (reference, RAW) if value.get(name)]
    also = [figure for figure in case.also if figure not in ("p50_us", "p99_us")]  # which every case shows
    titles = [
        "broker",
        case.figure,
        "lowest – highest",
        *(f"÷ {name}" for name in compared),
        "p50 µs",
        "p99 µs",
        "lost",
        *also,
        "broker CPU",
        "loadgen CPU",
        "other CPU",
        "RSS peak MB",
    ]
    rows = []
    for name in sorted(_names(results), key=lambda name: _rank(case, value.get(name))):
        mine = _of(results, name)
        if name not in value:
            rows.append([name, "failed", *["-"] * (len(titles) - 2)])
            continue
        good = [result for result in mine if case.figure in result.figures]
        figures = [result.figures[case.figure] for result in good]
        rows.append(
            [
                name,
                short(value[name]),
                f"{short(min(figures))} – {short(max(figures))}",
                *(f"{value[name] / value[other]:.2f}" for other in compared),
                short(_median(good, "p50_us")),
                short(_median(good, "p99_us")),
                loss(good),
                *(short(_median(good, figure)) for figure in also),
                short(_median_of(good, lambda result: _share(result, "broker_cpu_s"))),
                short(_median_of(good, lambda result: _share(result, "loadgen_cpu_s"))),
                short(_median(good, "other_cpu")),
                short(max(rss_mb(result) for result in good)),
            ]
        )
    loads = " / ".join(dict.fromkeys(f"`{result.arguments}`" for result in results))
    told = f"{loads} – {case.figure}, {case.better.value} is better; rounds: {len({r.round for r in results})}"
    failures = [f"{r.broker} failed: {r.error[:ERROR_LENGTH]}" for r in results if r.error is not None]
    return "\n\n".join([f"### {case.name}", told, markdown(titles, rows), *dict.fromkeys(failures)])


def _kind_table(title: str, cases: Sequence[Case], results: Sequence[Result], reference: str) -> str:
    titles = ["broker", *(f"{case.name}<br>{case.figure}" for case in cases)]
    rows = [
        [name, *(_cell(case, _of_case(results, case), name, reference) for case in cases)] for name in _names(results)
    ]
    return f"### {title}\n\n{markdown(titles, rows)}"


def _cell(case: Case, results: Sequence[Result], name: str, reference: str) -> str:
    mine = _of(results, name)
    if not mine:
        return "-"
    value, theirs = _median(mine, case.figure), _median(_of(results, reference), case.figure)
    if value is None:
        return "failed"
    cell = short(value)
    if theirs and name != reference:
        cell += f" (×{value / theirs:.2g})"
    lost = loss(mine)
    return cell if lost == "0" else f"{cell} !{lost}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown whose columns also line up on a terminal: names to the left, figures to the right."""
    cells = [[cell.replace("|", "/") for cell in row] for row in (titles, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return " | ".join([f"| {first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)]) + " |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:]), ""])
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def _rank(case: Case, value: float | None) -> tuple[bool, float]:
    """The best sorts first, and a broker without a figure last."""
    if value is None:
        return True, 0.0
    return False, -value if case.better is Better.HIGHER else value


def loss(results: Sequence[Result]) -> str:
    """The share of deliveries that did not come; late: they still came when the time was up."""
    shares = [
        lost / due
        for result in results
        if (due := (lost := result.figures.get("lost", 0)) + result.figures.get("received", 0)) > 0
    ]
    told = f"{100 * statistics.median(shares):.1f} %" if shares and max(shares) > 0 else "0"
    return f"{told} (late)" if any(result.drained == "limit" for result in results) else told


def _share(result: Result, figure: str) -> float | None:
    """Cores used from the first message until the last was in or given up."""
    phase = result.figures.get("phase_s")
    return result.figures[figure] / phase if phase and figure in result.figures else None


def rss_mb(result: Result) -> float:
    return max(result.figures.get("rss_peak_kb", 0), result.figures.get("rss_after_kb", 0)) / 1024


def _median(results: Iterable[Result], figure: str) -> float | None:
    return _median_of(results, lambda result: result.figures.get(figure))


def _median_of(results: Iterable[Result], figure: Callable[[Result], float | None]) -> float | None:
    found = [value for result in results if (value := figure(result)) is not None]
    return statistics.median(found) if found else None


def _cases(results: Iterable[Result]) -> Iterator[Case]:
    seen = {result.case for result in results}
    return (case for case in CASES.values() if case.name in seen)


def _names(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(result.broker for result in results))


def _of_case(results: Iterable[Result], case: Case) -> list[Result]:
    return [result for result in results if result.case == case.name]


def _of(results: Iterable[Result], name: str) -> list[Result]:
    return [result for result in results if result.broker == name]
