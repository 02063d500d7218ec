"""The page itself: the verdict, findings and numbers, then sections of tables, and a view for each of some clients.

It knows no Spark; it is handed text, numbers and figures. Invariant: the page loads nothing from outside itself, and
runs no script but those that are named by their hashes; links lead to the files of the same report.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

from plotly.offline import get_plotlyjs

from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding

FOLDED: Final = 10
"""Rows of a table that are shown at first: as many as fit beside its chart."""

_WEIGHTS: Final = {PROBLEM: "problem", NOTABLE: "notable", INFORMATION: "information"}


@dataclass(frozen=True)
class Cell:
    """Text as shown; of a number also what it sorts by, of a client the id of its view."""

    text: str
    number: float | None = None
    client_id: str | None = None


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


@dataclass(frozen=True)
class Head:
    """What is above all sections."""

    period: str
    until: str = ""
    """The last moment of the period, as the times of the views are written."""
    verdict: Sequence[str] = ()
    tiles: Sequence[tuple[str, str]] = ()
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()
    """What a reader should know of the data: how complete they are."""
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Content:
    """What is below: chapters of tables by their title, and views by client id."""

    chapters: Mapping[str, Sequence[Section]] = field(default_factory=dict)
    clients: Mapping[str, Any] = field(default_factory=dict)


def page(head: Head, content: Content) -> str:
    """One complete HTML document."""
    sections = [section for chapter in content.chapters.values() for section in chapter]
    drawn = bool(content.clients) or any(section.figure for section in sections)
    scripts = [*([str(get_plotlyjs())] if drawn else []), *([_file("page.js")] if sections else [])]
    body = "".join(
        [
            _side(content),
            '<main id="top"><div id="report">',
            _head(head, content),
            *(_chapter(title, chapter, content.clients) for title, chapter in content.chapters.items()),
            '</div><section id="client" hidden tabindex="-1" aria-label="One client"></section></main>',
            _data("clients", content.clients) if content.clients else "",
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
        f'<body data-until="{escape(head.until)}">{body}</body></html>\n'
    )


def _file(name: str) -> str:
    return resources.files("spark_analytics.page").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _data(identity: str, value: Any) -> str:
    # Inside a script element nothing is unescaped, so that no text may look like its end.
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<script type="application/json" id="{identity}">{text}</script>'


# ----------------------------------------------------------------------------------------------------- the side


def _side(content: Content) -> str:
    chapters = "".join(
        f'<li><a href="#{_anchor(title)}">{escape(title)}</a>'
        f"<ul>{''.join(_contents(section) for section in chapter)}</ul></li>"
        for title, chapter in content.chapters.items()
    )
    options = "".join(f'<option value="{escape(name)}"></option>' for name in content.clients)
    search = (
        '<label for="find-client">Look at a client</label>'
        '<input id="find-client" list="client-ids" placeholder="client id" autocomplete="off">'
        f'<datalist id="client-ids">{options}</datalist>'
    )
    return (
        '<nav aria-label="Contents"><a class="top" href="#top">MQTT telemetry</a>'
        f'{search if content.clients else ""}<ul><li><a href="#findings">Findings</a></li>{chapters}</ul></nav>'
    )


def _contents(section: Section) -> str:
    empty = "" if section.total else ' class="none"'
    return f'<li{empty}><a href="#{escape(section.name)}">{escape(section.title)}</a></li>'


def _anchor(title: str) -> str:
    return f"chapter-{escape(title.lower().replace(' ', '-'))}"


# ----------------------------------------------------------------------------------------------------- the head


def _head(head: Head, content: Content) -> str:
    shown = {section.name for chapter in content.chapters.values() for section in chapter}
    notes = "".join(f"<p>{escape(note)}</p>" for note in head.notes)
    verdict = "".join(f"<li>{escape(sentence)}</li>" for sentence in head.verdict)
    return (
        f"<header><h1>MQTT telemetry</h1><p>{escape(head.period)}</p>"
        + (f'<ol class="verdict">{verdict}</ol>' if verdict else "")
        + f"{notes}</header>{_warnings(head.warnings)}{_tiles(head.tiles)}"
        + _findings(head.findings, shown, content.clients)
    )


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<div class="warnings"><b>Not everything could be read</b><ul>{items}</ul></div>'


def _findings(findings: Sequence[Finding], shown: set[str], clients: Iterable[str]) -> str:
    if not findings:
        return '<section id="findings"><h2>Findings</h2><p>Nothing stands out.</p></section>'
    known = set(clients)
    items = "".join(
        f'<li class="{_WEIGHTS[finding.weight]}"><b>{_WEIGHTS[finding.weight]}</b>{escape(finding.sentence)}'
        + (_to_client(finding.client_id, "look at it") if finding.client_id in known else "")
        + (
            f' <a href="#{escape(finding.table)}">evidence<span class="hidden"> in {escape(finding.table)}</span></a>'
            if finding.table in shown
            else ""
        )
        + "</li>"
        for finding in findings
    )
    return f'<section id="findings"><h2>Findings</h2><ul class="findings">{items}</ul></section>'


def _to_client(client_id: str | None, text: str) -> str:
    of = f'<span class="hidden"> {escape(client_id or "")}</span>'
    return f' <a href="#client={escape(quote(client_id or "", safe=""))}">{text}{of}</a>'


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for name, value in tiles)
    return f'<dl class="tiles">{inner}</dl>' if tiles else ""


# --------------------------------------------------------------------------------------------------- the tables


def _chapter(title: str, sections: Sequence[Section], clients: Mapping[str, Any]) -> str:
    tables = "".join(_section(section, clients) for section in sections)
    return f'<h2 class="chapter" id="{_anchor(title)}">{escape(title)}</h2>{tables}'


def _section(section: Section, clients: Mapping[str, Any]) -> str:
    head = f'<section id="{escape(section.name)}"><h3>{escape(section.title)}</h3>'
    if not section.rows:
        return f"{head}<p>{escape(section.empty)}</p></section>"
    return f"{head}<p>{escape(section.says)}</p>{_chart(section)}{_table(section, clients)}</section>"


def _table(section: Section, clients: Mapping[str, Any]) -> str:
    headings = "".join(_heading(name, is_number) for name, is_number in section.columns)
    rows = "".join(
        f"<tr{'' if place < FOLDED else ' class=folded'}>"
        f"{''.join(_cell(cell, column[1], clients) for cell, column in zip(row, section.columns, strict=True))}</tr>"
        for place, row in enumerate(section.rows)
    )
    title = escape(section.title)
    tools = ""
    if len(section.rows) > FOLDED:
        tools = (
            f'<div class="tools"><input type="search" placeholder="search" aria-label="Search in {title}">'
            f'<button type="button" aria-expanded="false">Show {len(section.rows):,} rows</button></div>'
        )
    return (
        f'{tools}<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><thead><tr>{headings}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>{_more(section)}"
    )


def _more(section: Section) -> str:
    count = "1 row." if section.total == 1 else f"{section.total:,} rows."
    if len(section.rows) < section.total:
        count = f"The first {len(section.rows):,} of {count}"
    place = escape(f"{section.name}/csv/{section.name}.csv")
    return f'<p class="more">{count} All of them: <a href="{place}">{place}</a>, beside this page.</p>'


def _chart(section: Section) -> str:
    if not section.figure:
        return ""
    identity = f"figure-{escape(section.name)}"
    title = escape(str(section.figure["title"]))
    return (
        f'<figure><figcaption>{title}</figcaption><div class="chart" data-figure="{identity}" role="img"'
        f' aria-label="{title}: a chart of the table below"></div></figure>{_data(identity, section.figure)}'
    )


def _heading(name: str, is_number: bool) -> str:
    return f'<th scope="col"{_css(is_number)}><button type="button">{escape(name)}</button></th>'


def _cell(cell: Cell, is_number: bool, clients: Mapping[str, Any]) -> str:
    hint = f' title="{escape(cell.text)}"' if len(cell.text) > 40 else ""
    sorts = "" if cell.number is None else f' data-v="{cell.number:.17g}"'
    text = escape(cell.text)
    if cell.client_id is not None and cell.client_id in clients:
        text = f'<a href="#client={escape(quote(cell.client_id, safe=""))}">{text}</a>'
    return f"<td{_css(is_number)}{sorts}{hint}>{text}</td>"


def _css(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
