"""The page itself: numbers on top, then for each table a sentence, a chart and the first rows.

It knows no Spark; it is handed text and numbers. Invariant: the result refers to nothing outside itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light; --ink: #1f2933; --soft: #5f6c7b; --line: #e3e8ee; --paper: #fff; --ground: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 14px; color: var(--soft); }
section, .tiles div, .warnings { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; }
section { padding: 20px 24px; margin-top: 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin-top: 20px; }
.tiles div { padding: 12px 16px; }
.tiles b { display: block; font-size: 22px; font-weight: 600; }
.tiles span { color: var(--soft); font-size: 13px; }
.warnings { margin-top: 20px; padding: 12px 20px; border-color: #e0b25c; background: #fffaf0; overflow-wrap: anywhere; }
.warnings ul { margin: 4px 0 0; padding-left: 20px; }
svg { display: block; max-width: 100%; height: auto; margin: 6px 0 18px; }
svg text { font-size: 13px; fill: var(--ink); }
svg text.value { fill: var(--soft); }
svg .floor { stroke: var(--line); stroke-width: 2; }
.scroll { overflow: auto; max-height: 420px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--paper); color: var(--soft); font-weight: 600; text-align: left; }
th, td { padding: 5px 18px 5px 0; white-space: nowrap; box-shadow: inset 0 -1px var(--line); unicode-bidi: isolate; }
td { max-width: 320px; overflow: hidden; text-overflow: ellipsis; }
.number { text-align: right; }
.more { margin: 10px 0 0; font-size: 13px; }
""".strip()


@dataclass(frozen=True)
class Cell:
    """Text as shown; numbers stand to the right."""

    text: str
    is_number: bool = False


@dataclass(frozen=True)
class Section:
    """One table of the report: what it says, its chart, and its first rows out of `total`."""

    title: str
    says: str
    empty: str
    chart: str
    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    total: int
    files: str


def page(period: str, tiles: Sequence[tuple[str, str]], warnings: Sequence[str], sections: Sequence[Section]) -> str:
    """One complete HTML document."""
    body = "".join(
        [
            f"<h1>MQTT sessions</h1><p>{escape(period)}</p>",
            _tiles(tiles),
            _warnings(warnings),
            *(_section(section) for section in sections),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        # Should a hostile client id ever slip through unescaped, the browser still runs and fetches nothing.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>MQTT sessions</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    return f'<div class="tiles">{inner}</div>'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<div class="warnings"><b>Not everything could be read</b><ul>{items}</ul></div>'


def _section(section: Section) -> str:
    head = f"<h2>{escape(section.title)}</h2>"
    if not section.rows:
        return f"<section>{head}<p>{escape(section.empty)}</p></section>"
    shown = len(section.rows)
    count = "1 row." if section.total == 1 else f"{section.total:,} rows."
    if shown < section.total:
        count = f"The first {shown:,} of {count}"
    rows = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in section.rows)
    return (
        f"<section>{head}<p>{escape(section.says)}</p>{section.chart}"
        f'<div class="scroll"><table><thead><tr>{"".join(_cell("th", cell) for cell in section.columns)}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="more">{count} All of them: {escape(section.files)}</p></section>'
    )


def _cell(tag: str, cell: Cell) -> str:
    css = ' class="number"' if cell.is_number else ""
    hint = f' title="{escape(cell.text)}"' if len(cell.text) > 40 else ""
    return f"<{tag}{css}{hint}>{escape(cell.text)}</{tag}>"
