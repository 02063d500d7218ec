"""A flame graph as SVG text: each box a function, as wide as its share, on top of its caller."""

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Final

from bench import stacks
from bench.stacks import Stack

WIDTH: Final = 960
LINE: Final = 18
LEAST: Final = 0.004
"""Of the whole width; what is narrower is left out."""
LETTER: Final = 6.6
STYLE: Final = """
text { font: 11px ui-monospace, monospace; fill: #1f2328; }
.ours { fill: #ffb86b; } .kernel { fill: #a5c8f0; } .runtime { fill: #b9dfae; }
rect { stroke: #fff; stroke-width: 0.6; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.ours { fill: #9a5b13; } .kernel { fill: #2d5480; } .runtime { fill: #35622b; } rect { stroke: #0d1117; }
}"""


def svg(found: Counter[Stack], title: str) -> str:
    """The graph, as the text of a file; the outermost function is at the bottom."""
    boxes = list(_boxes(found, 0.0, found.total(), 0))
    height = (max((depth for _name, _left, _share, depth in boxes), default=0) + 1) * LINE
    parts = [_box(name, left, share, height - (depth + 1) * LINE) for name, left, share, depth in boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        f' role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}\n</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _boxes(found: Counter[Stack], left: float, total: int, depth: int) -> Iterator[tuple[str, float, float, int]]:
    for name, called in stacks.children(found):
        share = called.total() / total
        if share >= LEAST and name != "itself":
            yield name, left, share, depth
            yield from _boxes(called, left, total, depth + 1)
        left += share


def _box(name: str, left: float, share: float, y: int) -> str:
    x, width = WIDTH * left, WIDTH * share
    kind = "kernel" if name.startswith("kernel") else "ours" if "." in name else "runtime"
    room = int((width - 6) / LETTER)
    shown = name if len(name) <= room else f"{name[: room - 1]}…" if room > 3 else ""
    text = f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(shown)}</text>' if shown else ""
    told = f"<title>{escape(name)} {100 * share:.1f} %</title>"
    return f'<g>{told}<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 1}"/>{text}</g>'
