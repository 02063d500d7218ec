"""The code blocks and links of the documentation: README.md and everything below docs/.

What a block must fulfil lives in tests/documents. Invariant: no block is skipped without a word.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


class Block(NamedTuple):
    """A fenced block: where it is, its language, and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Program(NamedTuple):
    """A Python block, and what it prints where a block `output` follows it."""

    block: Block
    output: str | None


def blocks(*languages: str) -> list[Block]:
    """The blocks in these languages, in all documents; all blocks where none is named."""
    return [block for page in PAGES for block in _blocks_of(page) if not languages or block.language in languages]


def programs() -> list[Program]:
    """The Python blocks."""
    found = []
    all_of_them = blocks()
    for block, following in zip(all_of_them, [*all_of_them[1:], None], strict=True):
        if block.language == "python":
            is_told = following is not None and following.page == block.page and following.language == "output"
            found.append(Program(block, following.text if following is not None and is_told else None))
    return found


def links() -> Iterator[tuple[Path, str]]:
    """Each link and image that names no site: the page, and its target."""
    for page in PAGES:
        for token in _inline(MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))):
            target = str(token.attrGet("href") or token.attrGet("src") or "")
            if target and "://" not in target:
                yield page, target


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site give to a page's headings."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    titles = [after.content for token, after in zip(tokens, tokens[1:], strict=False) if token.type == "heading_open"]
    return {
        "".join(one for one in title.lower() if one.isalnum() or one in " -_").replace(" ", "-") for title in titles
    }


def _blocks_of(page: Path) -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), token.map[0] + 1, token.info, token.content)
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8"))
        if token.type == "fence" and token.map is not None
    ]


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inline(token.children or [])
