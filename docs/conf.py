"""How Sphinx builds the site; `tools/docs` runs it."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # reference/commands.md reads the commands of this tree

project = "mqttlite"
copyright = "the mqttlite authors"
extensions = ["myst_parser", "sphinx_click"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False  # they would change -- in options
highlight_language = "text"
myst_heading_anchors = 4  # the same anchors as on GitHub

html_theme = "furo"
html_title = "mqttlite"
html_use_index = False
html_copy_source = False
html_show_sourcelink = False


def name_levels(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: object) -> None:
    """Give the captions of the menu the level that the role of a heading must have."""
    menu = str(context.get("furo_navigation_tree", ""))
    context["furo_navigation_tree"] = menu.replace('role="heading"', 'role="heading" aria-level="2"')


def leave_out_of_menu(app: Sphinx, _doctree: object) -> None:
    """Let the design's index alone lead to the decisions: as entries of the menu they were half of each page."""
    page = app.env.docname
    if page.startswith("design/") and page != "design/index":
        app.env.metadata[page]["orphan"] = "true"


def add_commands(_app: Sphinx, page: str, source: list[str]) -> None:
    """Describe each command of the program on the page of commands."""
    if page != "reference/commands":
        return
    from mqttlite.cli.main import COMMANDS, reference_of

    for name in COMMANDS:
        block = f".. click:: {reference_of(name)}\n   :prog: mqttlite {name}\n   :nested: full\n"
        source[0] += f"\n```{{eval-rst}}\n{block}```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_commands)
    app.connect("doctree-read", leave_out_of_menu, priority=900)  # after the page's own metadata is read
    app.connect("html-page-context", name_levels, priority=900)  # after the theme has made the menu
