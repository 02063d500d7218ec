"""From rows to what plotly.js draws: a figure is a dictionary that becomes JSON.

Pure; knows no Spark. Invariant: every text that may come from a client is escaped here, for plotly.js takes labels for
a small HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from math import isfinite
from typing import Any, Final

from spark_analytics.tables import Chart
from spark_analytics.units import axis, heading, shown, ticks, unit

RANKED: Final = 15
"""Bars of a ranking: more labels than that cannot be told apart at a glance."""

SERIES: Final = 8
"""Lines in one chart: as many as there are colours that differ for most eyes. The largest are drawn."""

ALONE: Final = timedelta(minutes=5)
"""On each side of a point that has no other beside it."""

_LONGEST_LABEL: Final = 34

_ROW_HEIGHT: Final = 26

Rows = Sequence[Mapping[str, Any]]


def figure(chart: Chart, rows: Rows) -> dict[str, Any]:
    """The data and the layout, without colours of text and lines: those are the page's."""
    draw = {"bars": _bars, "columns": _columns, "lines": _lines}[chart.kind]
    data, layout = draw(chart, rows)
    layout["barmode"] = "stack"
    layout["showlegend"] = len(data) > 1
    return {"data": data, "layout": layout, "title": chart.title or _names(chart)}


class _Scale:
    """The numbers of a chart in a unit that people read, and their axis."""

    def __init__(self, chart: Chart, rows: Rows) -> None:
        self._name = chart.y[0]
        self._log = chart.log
        known = [number for row in rows for name in chart.y if (number := _number(row[name])) is not None]
        self._shown = [number for number in known if number > 0] if chart.log else known
        self._kind = unit(self._name)
        self._by, self._unit = (1.0, "") if chart.log else axis(self._kind, max(map(abs, known), default=0.0))
        if len(chart.y) > 1 and self._unit == heading(self._name):
            self._unit = ""  # the name of one of several series, which have a legend

    def of(self, value: Any) -> float | None:
        """What is drawn: on a logarithmic axis nothing is, and is no spike to its floor."""
        number = _number(value)
        return None if number is None or (self._log and number <= 0) else number / self._by

    def axis(self) -> dict[str, Any]:
        if not self._log:
            return {"title": {"text": self._unit}, "rangemode": "tozero", "automargin": True}
        marks = ticks(self._kind, min(self._shown, default=1.0), max(self._shown, default=1.0))
        values, texts = [value for value, _ in marks], [text for _, text in marks]
        return {"type": "log", "tickmode": "array", "tickvals": values, "ticktext": texts, "automargin": True}

    def text(self, value: Any) -> str:
        number = _number(value)
        return "" if number is None else shown(self._name, number)


def _bars(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    first = list(rows[:RANKED])
    labels = [_label(_of(chart, row)) for row in first]
    scale = _Scale(chart, first)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": heading(name),
            "y": list(range(len(first))),
            "x": [scale.of(row[name]) for row in first],
            "hovertext": [f"{_text(_of(chart, row))}: {heading(name)} {scale.text(row[name])}" for row in first],
            "hoverinfo": "text",
        }
        for name in chart.y
    ]
    rank = {"tickmode": "array", "tickvals": list(range(len(first))), "ticktext": labels, "autorange": "reversed"}
    height = 90 + _ROW_HEIGHT * max(len(first), 2)
    return data, {"xaxis": scale.axis(), "yaxis": rank | {"automargin": True}, "height": height}


def _of(chart: Chart, row: Mapping[str, Any]) -> str:
    """The label of a bar: of two columns in one line."""
    return str(row[chart.x]) if chart.beside is None else f"{row[chart.x]}, {row[chart.beside]}"


def _columns(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    by = _series(chart, rows)
    scale = _Scale(chart, rows)
    data = [
        {
            "type": "bar",
            "name": _label(name),
            "x": [_text(row[chart.x]) for row in part],
            "y": [scale.of(row[column]) for row in part],
            "hovertext": [scale.text(row[column]) for row in part],
            "hoverinfo": "x+text+name",
        }
        for name, column, part in by
    ]
    # In the order of the rows: by itself plotly.js appends what only a later series has.
    order = list(dict.fromkeys(_text(row[chart.x]) for row in rows))
    across = {"type": "category", "categoryorder": "array", "categoryarray": order}
    return data, {"xaxis": across | {"title": {"text": heading(chart.x)}}, "yaxis": scale.axis()}


def _lines(chart: Chart, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    scale = _Scale(chart, rows)
    data = [
        {
            "type": "scatter",
            "mode": "lines" if len(part) > 1 else "markers",
            "name": _label(name),
            "x": [row[chart.x] for row in part],
            "y": [scale.of(row[column]) for row in part],
            "hovertext": [scale.text(row[column]) for row in part],
            "hoverinfo": "x+text+name",
        }
        for name, column, part in _series(chart, rows)
    ]
    return data, {"xaxis": {"type": "date"} | _around([row[chart.x] for row in rows]), "yaxis": scale.axis()}


def _around(times: Sequence[str]) -> dict[str, Any]:
    """The range of an axis with a single time, around which plotly.js would show milliseconds."""
    if len(set(times)) != 1:
        return {}
    only = datetime.fromisoformat(times[0])
    return {"range": [str(only - ALONE), str(only + ALONE)]}


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


def _names(chart: Chart) -> str:
    names = f"{', '.join(heading(name) for name in chart.y)} by {heading(chart.by or chart.x)}"
    return names[0].upper() + names[1:]


def _number(value: Any) -> float | None:
    return float(value) if value is not None and isfinite(value) else None


def _text(value: Any) -> str:
    return escape(str(value), quote=False)


def _label(value: Any) -> str:
    """Cut from the middle: the ends of client ids are what tells them apart."""
    text = str(value)
    half = (_LONGEST_LABEL - 1) // 2
    return escape(text if len(text) <= _LONGEST_LABEL else f"{text[:half]}…{text[-half:]}", quote=False)
