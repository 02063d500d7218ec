"""Bar charts as SVG text: a group of bars for each case, one for each contender; readable on light and dark pages.

A pure function from figures to text. Bars of one case are to scale with each other, and with nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 760
NAMES: Final = 160
BARS: Final = 440
LINE: Final = 18
GAP: Final = 14
STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.case { font-weight: 600; font-size: 13px; }
.note { fill: #6e7781; }
.ours { fill: #0969da; } .theirs { fill: #afb8c1; } .raw { fill: none; stroke: #8c959f; stroke-dasharray: 3 2; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .note { fill: #8b949e; }
.ours { fill: #4493f8; } .theirs { fill: #565f6b; } .raw { stroke: #8b949e; }
}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One contender at one case; no value, if it has none to show."""

    name: str
    kind: str
    """`ours`, `theirs` or `raw`."""
    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """One case."""

    title: str
    note: str
    bars: tuple[Bar, ...]


def svg(groups: Sequence[Group], title: str) -> str:
    """The chart, as the text of a file."""
    parts: list[str] = []
    y = GAP
    for group in groups:
        parts.append(_text(4, y + 10, group.title, "case", f' <tspan class="note">{escape(group.note)}</tspan>'))
        y += LINE + 4
        most = max((bar.value for bar in group.bars if bar.value is not None), default=0.0)
        for bar in group.bars:
            parts += _bar(bar, y, most)
            y += LINE
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}\n</style>\n"
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _bar(bar: Bar, y: int, most: float) -> list[str]:
    length = round(BARS * bar.value / most, 1) if bar.value and most else 0
    parts = [f'<text x="{NAMES - 8}" y="{y + 11}" text-anchor="end">{escape(bar.name)}</text>']
    if length:
        parts.append(
            f'<rect class="{bar.kind}" x="{NAMES}" y="{y + 1}" width="{max(length, 1):g}" height="{LINE - 5}" rx="2"/>'
        )
    return [*parts, _text(NAMES + length + 6, y + 11, bar.text, "value")]


def _text(x: float, y: float, text: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}{more}</text>'
