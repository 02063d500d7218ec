"""How the commands write numbers, sizes, durations and the names that clients gave themselves."""

from collections.abc import Mapping
from typing import Any, Final


def printable(text: str, width: int) -> str:
    """A text that a client chose, made safe: it cannot steer the terminal."""
    safe = text if text.isprintable() else repr(text)[1:-1]
    return safe if len(safe) <= width else safe[: width - 1] + "…"


def count(value: float) -> str:
    """With spaces between thousands."""
    return f"{value:,.0f}".replace(",", " ")


def short(value: int) -> str:
    """In at most seven characters."""
    if value < 100_000:
        return count(value)
    return f"{value // 1_000}k" if value < 10_000_000 else f"{value // 1_000_000}M"


def size(size_bytes: float) -> str:
    """Bytes in a unit that leaves three digits or four."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 100 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_024
    return f"{size_bytes:.1f} TiB"


def duration(seconds: float) -> str:
    """In a unit that one can read."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"


def most_of(status: Mapping[str, Any]) -> str:
    """The client with the most unacknowledged messages, and their number; empty if none has any."""
    ranked = status["top"].get("inflight")
    return f" (most: {printable(ranked[0]['client_id'], 30)}, {count(ranked[0]['inflight'])})" if ranked else ""


_OVERLOAD: Final = (
    "none",
    "stage 1, clients that send most are read more slowly",
    "stage 2, messages of low priority are dropped",
    "stage 3, messages of QoS 0 are dropped",
    "stage 4, new connections are refused",
)


def overload_words(overload: Mapping[str, float]) -> str:
    """The measures against an overload at present."""
    slowed = f", {count(overload['slowed'])} clients slowed" if overload["slowed"] else ""
    return f"{_OVERLOAD[int(overload['stage'])]} (load {100 * overload['load']:.0f} %{slowed})"
