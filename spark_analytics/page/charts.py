"""Two charts as inline SVG: bars for a ranking, columns for a distribution.

Pure functions from numbers to text. Invariant: every label is escaped here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

Format = Callable[[float], str]

# Distinct also in grey and for most kinds of colour blindness.
PALETTE: Final = ("#2f6f9f", "#e0913c", "#5a9e6f", "#b5566b", "#7d6ba8", "#8a8f98")

_WIDTH: Final = 900
_LABEL_WIDTH: Final = 230
_VALUE_WIDTH: Final = 120
_BAR_HEIGHT: Final = 18
_ROW_HEIGHT: Final = 27
_LEGEND_HEIGHT: Final = 26
_COLUMN_AREA_HEIGHT: Final = 190
_LONGEST_LABEL: Final = 30


@dataclass(frozen=True)
class Series:
    """Numbers of one colour, one for each label of the chart."""

    name: str
    values: Sequence[float]


def bars(title: str, labels: Sequence[str], series: Sequence[Series], show: Format) -> str:
    """Horizontal bars, one per label, the series of each stacked; the sum stands behind the bar."""
    sums = [sum(one.values[index] for one in series) for index in range(len(labels))]
    scale = (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) / (max(sums, default=0) or 1)
    top = _LEGEND_HEIGHT if len(series) > 1 else 0
    parts = [_legend(series)] if len(series) > 1 else []
    for index, label in enumerate(labels):
        y = top + index * _ROW_HEIGHT
        middle = y + _BAR_HEIGHT / 2
        parts.append(_text(_LABEL_WIDTH - 10, middle, _shorten(label), anchor="end", hint=label))
        x: float = _LABEL_WIDTH
        for number, one in enumerate(series):
            width = one.values[index] * scale
            parts.append(_rect(x, y, width, _BAR_HEIGHT, number, f"{label}: {one.name} {show(one.values[index])}"))
            x += width
        parts.append(_text(x + 8, middle, show(sums[index]), css="value"))
    return _svg(title, top + len(labels) * _ROW_HEIGHT, parts)


def columns(title: str, labels: Sequence[str], series: Sequence[Series], show: Format) -> str:
    """Columns from left to right, one per label, the series of each stacked; the sum stands above."""
    sums = [sum(one.values[index] for one in series) for index in range(len(labels))]
    step = _WIDTH / max(len(labels), 1)
    top = (_LEGEND_HEIGHT if len(series) > 1 else 0) + 22
    floor = top + _COLUMN_AREA_HEIGHT
    scale = _COLUMN_AREA_HEIGHT / (max(sums, default=0) or 1)
    parts = [_legend(series)] if len(series) > 1 else []
    parts.append(f'<line class="floor" x1="0" x2="{_WIDTH}" y1="{floor}" y2="{floor}"/>')
    for index, label in enumerate(labels):
        middle = (index + 0.5) * step
        y: float = floor
        for number, one in enumerate(series):
            height = one.values[index] * scale
            y -= height
            hint = f"{label}: {one.name} {show(one.values[index])}"
            parts.append(_rect(middle - step * 0.36, y, step * 0.72, height, number, hint))
        if sums[index]:
            parts.append(_text(middle, y - 10, show(sums[index]), anchor="middle", css="value"))
        parts.append(_text(middle, floor + 16, _shorten(label), anchor="middle", hint=label))
    return _svg(title, floor + 30, parts)


def top_and_rest(series: Mapping[str, Sequence[float]]) -> list[Series]:
    """As many series as there are colours, the largest first; the others are summed up in the last."""
    ranked = sorted(series.items(), key=lambda item: (-sum(item[1]), item[0]))
    if len(ranked) <= len(PALETTE):
        return [Series(name, values) for name, values in ranked]
    shown, rest = ranked[: len(PALETTE) - 1], ranked[len(PALETTE) - 1 :]
    others = [sum(numbers) for numbers in zip(*(values for _, values in rest), strict=True)]
    return [*(Series(name, values) for name, values in shown), Series(f"{len(rest)} others", others)]


def _legend(series: Sequence[Series]) -> str:
    parts = []
    x = 0
    for number, one in enumerate(series):
        parts.append(_rect(x, 2, 12, 12, number, one.name))
        parts.append(_text(x + 18, 8, _shorten(one.name), hint=one.name))
        # SVG cannot measure text before it is drawn; this is generous for the font size of the page.
        x += 40 + 7 * len(_shorten(one.name))
    return "".join(parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {_WIDTH} {height:g}"'
        f' width="{_WIDTH}" height="{height:g}">{"".join(parts)}</svg>'
    )


def _rect(x: float, y: float, width: float, height: float, colour: int, hint: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"'
        f' fill="{PALETTE[colour]}"><title>{escape(hint)}</title></rect>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", css: str = "label", hint: str = "") -> str:
    title = f"<title>{escape(hint)}</title>" if hint and hint != text else ""
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" dominant-baseline="central" text-anchor="{anchor}">'
        f"{title}{escape(text)}</text>"
    )


def _shorten(text: str) -> str:
    """Cut from the middle: the ends of client ids are what tells them apart."""
    half = (_LONGEST_LABEL - 1) // 2
    return text if len(text) <= _LONGEST_LABEL else f"{text[:half]}…{text[-half:]}"
