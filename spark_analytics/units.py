"""Numbers and names of columns as people read them. Pure; rounding happens here and only on the way to the eye.

Invariant: the unit of a column is told by its name alone, `…_s` for seconds and so on; see `tables.Table`.
"""

from __future__ import annotations

_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: float) -> str:
    """1,234"""
    return f"{value:,.0f}"


def number(value: float) -> str:
    """1,234 or 12.35 or 0.00123"""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"


def seconds(value: float) -> str:
    """250 ms, 12.5 s, 3.2 min, 1.5 h, 4.0 d, -3.2 min"""
    if value < 0:
        return f"-{seconds(-value)}"
    for size, unit in _TIME_UNITS:
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    if value >= 1 or value == 0:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value >= 0.001 else f"{value * 1e6:.0f} µs"


def size(value: float) -> str:
    """512 B, 1.5 kB, 20.0 MB; a kB is 1000 B"""
    for unit in _SIZE_UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} {_SIZE_UNITS[-1]}"


def share(value: float) -> str:
    """12.5 %"""
    return f"{value * 100:.1f} %"


def shown(column: str, value: float) -> str:
    """A number in the unit that its column's name tells."""
    match unit(column):
        case "share":
            return share(value)
        case "seconds":
            return seconds(value)
        case "microseconds":
            return seconds(value / 1e6)
        case "bytes":
            return size(value)
        case "bytes per second":
            return f"{size(value)}/s"
        case "per second":
            return f"{number(value)}/s"
    return number(value)


def unit(column: str) -> str:
    """`seconds` of `…_s`, `bytes` of `bytes_…`, and so on; of anything else what it counts, by its name."""
    if column.endswith("_per_s"):
        return "bytes per second" if "bytes" in column else "per second"
    if column.endswith("_us"):
        return "microseconds"
    if column.endswith("_s"):
        return "seconds"
    if "bytes" in column:
        return "bytes"
    return "share" if column == "share" or column.endswith("_share") else heading(column)


def axis(kind: str, largest: float) -> tuple[float, str]:
    """By what numbers of a `unit` are divided on a linear axis up to `largest`, and what the axis is then called."""
    scales = {
        "seconds": (
            (86400.0, "days"),
            (3600.0, "hours"),
            (60.0, "minutes"),
            (1.0, "seconds"),
            (1e-3, "ms"),
            (1e-6, "µs"),
        ),
        "microseconds": ((3.6e9, "hours"), (6e7, "minutes"), (1e6, "seconds"), (1e3, "ms"), (1.0, "µs")),
        "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes")),
        "bytes per second": ((1e9, "GB a second"), (1e6, "MB a second"), (1e3, "kB a second"), (1.0, "bytes a second")),
        "share": ((0.01, "%"),),
    }.get(kind, ((1.0, kind),))
    # Twice the unit at least, so that the axis has more than one whole number.
    return next(((size, name) for size, name in scales if largest >= 2 * size), scales[-1])


def ticks(kind: str, smallest: float, largest: float) -> list[tuple[float, str]]:
    """Where a logarithmic axis has its marks, and how they read: 100 µs, 1 ms, 10 ms, 1 s, 10 s, 1 min, 10 min, 1 h."""
    per_second = {"seconds": 1.0, "microseconds": 1e6}.get(kind)
    if per_second is None:
        marks = [(10.0**power, size(10.0**power) if "bytes" in kind else count(10.0**power)) for power in range(16)]
    else:
        marks = [(value * per_second, text) for value, text in _TIME_MARKS]
    inside = [mark for mark in marks if smallest / 10 < mark[0] < largest * 10]
    return inside or marks[:1]


_TIME_MARKS = (
    *((1e-6, "1 µs"), (1e-5, "10 µs"), (1e-4, "100 µs"), (1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "100 ms")),
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h")),
    *((86400.0, "1 d"), (864000.0, "10 d")),
)


def heading(column: str) -> str:
    """A column's name for people; the cells carry the unit."""
    for ending in ("_per_s", "_us", "_s", "_at"):
        if column.endswith(ending):
            return column.removesuffix(ending).replace("_", " ") + (" per s" if ending == "_per_s" else "")
    return column.replace("_", " ")


def some(number: float, noun: str, nouns: str = "") -> str:
    """1 device, 2 devices, 1,234 devices"""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def listed(names: list[str], of: int) -> str:
    """a, b and 5 more: the first names of so many."""
    more = of - len(names)
    if more > 0:
        return f"{', '.join(names)} and {count(more)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def printable(text: str) -> str:
    """Names in it are clients' own, and a terminal obeys what it cannot print: that is shown as an escape."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
