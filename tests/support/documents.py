"""The code blocks and links of the documentation: README.md and everything below docs/.

tests/documents checks every block. An HTML comment `<!-- not checked: REASON -->` before a block exempts it.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
)

EXEMPTION: Final = re.compile(r"<!-- not checked: (.+) -->\s*")

BLOCKS: Final = MarkdownIt().disable("inline")
"""What is inside a paragraph takes most of the time, and says nothing of blocks and headings."""


class Block(NamedTuple):
    """A fenced block: where it is, its language, its text, and why it is not checked if it is not."""

    page: str
    line: int
    language: str
    text: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Program(NamedTuple):
    """A Python block, and what it prints if a block `output` follows it."""

    block: Block
    output: str | None


def blocks(*languages: str) -> list[Block]:
    """The blocks in these languages that are to be checked, in all documents; without languages all of them."""
    return [block for block in ALL_BLOCKS if not block.reason and (not languages or block.language in languages)]


def programs() -> list[Program]:
    """The Python blocks."""
    end = Block("", 0, "", "")
    found = []
    for block, following in pairwise([*blocks(), end]):
        if block.language == "python":
            has_output = following.page == block.page and following.language == "output"
            found.append(Program(block, following.text if has_output else None))
    return found


@cache
def links() -> tuple[tuple[Path, str], ...]:
    """Each link and image that does not name another site: the page, and its target."""
    return tuple(_links())


def _links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for token in _inline(MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))):
            target = str(token.attrGet("href") or token.attrGet("src") or "")
            if target and "://" not in target:
                yield page, target


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site give to a page's headings."""
    tokens = BLOCKS.parse(page.read_text(encoding="utf-8"))
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {
        "".join(one for one in title.lower() if one.isalnum() or one in " -_").replace(" ", "-") for title in titles
    }


def blocks_of(text: str, page: str) -> list[Block]:
    """The blocks of one page."""
    found = []
    reason = ""
    for token in BLOCKS.parse(text):
        if token.type == "fence" and token.map is not None:
            found.append(Block(page, token.map[0] + 1, token.info, token.content, reason))
        exemption = EXEMPTION.fullmatch(token.content) if token.type == "html_block" else None
        reason = exemption[1] if exemption else ""
    return found


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inline(token.children or [])


ALL_BLOCKS: Final = [
    block for page in PAGES for block in blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
]
