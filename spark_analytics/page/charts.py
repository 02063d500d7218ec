"""From rows to what plotly.js draws: a figure is a dictionary that becomes JSON.

Pure; knows no Spark. Invariant: every text that may come from a client is escaped here, for plotly.js takes labels for
a small HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any, Final

from spark_analytics.tables import Chart
from spark_analytics.units import heading, unit

RANKED: Final = 15
"""Bars of a ranking: more labels than that cannot be told apart at a glance."""

SERIES: Final = 8
"""Lines in one chart: as many as there are colours that differ for most eyes. The largest are drawn."""

_LONGEST_LABEL: Final = 34

_ROW_HEIGHT: Final = 26

Rows = Sequence[Mapping[str, Any]]


def figure(chart: Chart, rows: Rows) -> dict[str, Any]:
    """The data and the layout, without colours of text and lines: those are the page's."""
    draw = {"bars": _bars, "columns": _columns, "lines": _lines, "heat": _heat}[chart.kind]
    data, layout = draw(chart, rows)
    layout["barmode"] = "stack"
    layout["showlegend"] = len(data) > 1
    return {"data": data, "layout": layout, "title": chart.title or _names(chart)}


def _bars(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    shown = list(rows[:RANKED])
    labels = [_label(row[chart.x]) for row in shown]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": heading(name),
            "y": list(range(len(shown))),
            "x": [_number(row[name]) for row in shown],
            "hovertext": [f"{_text(row[chart.x])}: {heading(name)}" for row in shown],
        }
        for name in chart.y
    ]
    rank = {"tickmode": "array", "tickvals": list(range(len(shown))), "ticktext": labels, "autorange": "reversed"}
    height = 90 + _ROW_HEIGHT * max(len(shown), 2)
    return data, {"xaxis": _numbers(chart), "yaxis": rank | {"automargin": True}, "height": height}


def _columns(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    by = _series(chart, rows)
    data = [
        {
            "type": "bar",
            "name": _label(name),
            "x": [_text(row[chart.x]) for row in part],
            "y": [_number(row[column]) for row in part],
        }
        for name, column, part in by
    ]
    # In the order of the rows: by itself plotly.js appends what only a later series has.
    order = list(dict.fromkeys(_text(row[chart.x]) for row in rows))
    across = {"type": "category", "categoryorder": "array", "categoryarray": order}
    return data, {"xaxis": across | {"title": {"text": heading(chart.x)}}, "yaxis": _numbers(chart)}


def _lines(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    data = [
        {
            "type": "scatter",
            "mode": "lines" if len(part) > 1 else "markers",
            "name": _label(name),
            "x": [row[chart.x] for row in part],
            "y": [_number(row[column]) for row in part],
        }
        for name, column, part in _series(chart, rows)
    ]
    return data, {"xaxis": {}, "yaxis": _numbers(chart)}


def _heat(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert chart.by is not None, "a heat map has rows"
    across = list(dict.fromkeys(row[chart.x] for row in rows))
    down = list(dict.fromkeys(row[chart.by] for row in rows))
    cells = {(row[chart.x], row[chart.by]): _number(row[chart.y[0]]) for row in rows}
    data = {
        "type": "heatmap",
        "x": [_text(x) for x in across],
        "y": [_label(y) for y in down],
        "z": [[cells.get((x, y)) for x in across] for y in down],
        "colorbar": {"title": {"text": unit(chart.y[0])}},
    }
    return [data], {"xaxis": {}, "yaxis": {"type": "category", "automargin": True}}


def _series(chart: Chart, rows: Rows) -> list[tuple[str, str, Rows]]:
    """(name, column, rows): one for each column in `y`, or for each of the largest values of `by`."""
    if chart.by is None:
        return [(heading(name), name, rows) for name in chart.y]
    column = chart.y[0]
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(str(row[chart.by]), []).append(row)
    largest = sorted(parts, key=lambda name: -sum(_number(row[column]) or 0 for row in parts[name]))[:SERIES]
    return [(name, column, parts[name]) for name in largest]


def _numbers(chart: Chart) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": unit(chart.y[0])}, "rangemode": "tozero", "automargin": True}
    return axis | ({"type": "log"} if chart.log else {})


def _names(chart: Chart) -> str:
    return f"{', '.join(heading(name) for name in chart.y)} by {heading(chart.by or chart.x)}"


def _number(value: Any) -> float | None:
    return float(value) if value is not None and isfinite(value) else None


def _text(value: Any) -> str:
    return escape(str(value), quote=False)


def _label(value: Any) -> str:
    """Cut from the middle: the ends of client ids are what tells them apart."""
    text = str(value)
    half = (_LONGEST_LABEL - 1) // 2
    return escape(text if len(text) <= _LONGEST_LABEL else f"{text[:half]}…{text[-half:]}", quote=False)
