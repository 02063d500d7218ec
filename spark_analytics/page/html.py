"""The page itself: findings, numbers, then for each table a sentence, a chart and the first rows.

It knows no Spark; it is handed text, numbers and figures. Invariant: the result refers to nothing outside itself, and
runs no script but the two that are named by their hashes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any, Final

from plotly.offline import get_plotlyjs

from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding

_WEIGHTS: Final = {PROBLEM: "problem", NOTABLE: "notable", INFORMATION: "information"}


@dataclass(frozen=True)
class Cell:
    """Text as shown; of a number also what it sorts by."""

    text: str
    number: float | None = None


@dataclass(frozen=True)
class Section:
    """One table of the report: what it says, its chart, and its first rows out of `total`."""

    name: str
    title: str
    says: str
    empty: str
    figure: Mapping[str, Any] | None
    columns: Sequence[tuple[str, bool]]
    """Headings, and whether the column holds numbers."""
    rows: Sequence[Sequence[Cell]]
    total: int


def page(
    period: str,
    findings: Sequence[Finding],
    tiles: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    sections: Sequence[Section],
) -> str:
    """One complete HTML document."""
    drawn = any(section.figure for section in sections)
    scripts = [*([str(get_plotlyjs())] if drawn else []), _file("page.js")] if sections else []
    shown = {section.name for section in sections}
    body = "".join(
        [
            f"<h1>MQTT telemetry</h1><p>{escape(period)}</p>",
            _warnings(warnings),
            _findings(findings, shown),
            _tiles(tiles),
            _contents(sections),
            *(_section(section) for section in sections),
            *(f"<script>{script}</script>" for script in scripts),
        ]
    )
    # Should a hostile client id ever slip through unescaped, the browser still runs and fetches nothing of it.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src"
        f" {' '.join(_hash(script) for script in scripts) or chr(39) + 'none' + chr(39)}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>MQTT telemetry</title><style>{_file('page.css')}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _file(name: str) -> str:
    return resources.files("spark_analytics.page").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<div class="warnings"><b>Not everything could be read</b><ul>{items}</ul></div>'


def _findings(findings: Sequence[Finding], shown: set[str]) -> str:
    if not findings:
        return "<section><h2>Findings</h2><p>Nothing stands out.</p></section>"
    items = "".join(
        f'<li class="{_WEIGHTS[finding.weight]}"><b>{_WEIGHTS[finding.weight]}</b>{escape(finding.sentence)}'
        + (f' <a href="#{escape(finding.table)}">evidence</a></li>' if finding.table in shown else "</li>")
        for finding in findings
    )
    return f'<section><h2>Findings</h2><ul class="findings">{items}</ul></section>'


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    return f'<div class="tiles">{inner}</div>'


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#{escape(section.name)}">{escape(section.title)}</a>{"" if section.total else " (none)"}</li>'
        for section in sections
    )
    return f"<nav><b>Tables</b><ul>{items}</ul></nav>"


def _section(section: Section) -> str:
    head = f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
    if not section.rows:
        return f"{head}<p>{escape(section.empty)}</p></section>"
    count = "1 row." if section.total == 1 else f"{section.total:,} rows."
    if len(section.rows) < section.total:
        count = f"The first {len(section.rows):,} of {count}"
    headings = "".join(_heading(name, is_number) for name, is_number in section.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(cell, column[1]) for cell, column in zip(row, section.columns, strict=True))}</tr>"
        for row in section.rows
    )
    files = escape(f"{section.name}/csv and {section.name}/parquet")
    return (
        f"{head}<p>{escape(section.says)}</p>{_chart(section)}"
        f'<div class="scroll"><table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="more">{count} All of them: {files}.</p></section>'
    )


def _chart(section: Section) -> str:
    if not section.figure:
        return ""
    # Inside a script element nothing is unescaped, so that no text may look like its end.
    figure = json.dumps(section.figure, ensure_ascii=True).replace("<", "\\u003c").replace("&", "\\u0026")
    identity = f"figure-{escape(section.name)}"
    return (
        f'<div class="chart" data-figure="{identity}"></div>'
        f'<script type="application/json" id="{identity}">{figure}</script>'
    )


def _heading(name: str, is_number: bool) -> str:
    return f"<th{_css(is_number)}>{escape(name)}</th>"


def _cell(cell: Cell, is_number: bool) -> str:
    hint = f' title="{escape(cell.text)}"' if len(cell.text) > 40 else ""
    sorts = "" if cell.number is None else f' data-v="{cell.number:.17g}"'
    return f"<td{_css(is_number)}{sorts}{hint}>{escape(cell.text)}</td>"


def _css(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
