"""Numbers as people read them. Pure; rounding happens here and only on the way to the eye."""

from __future__ import annotations

_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: float) -> str:
    """1,234"""
    return f"{value:,.0f}"


def seconds(value: float) -> str:
    """250 ms, 12.5 s, 3.2 min, 1.5 h, 4.0 d"""
    for size, unit in _TIME_UNITS:
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.1f} s" if value >= 1 or value == 0 else f"{value * 1000:.0f} ms"


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
