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
