"""The site that tools/docs builds: no warnings, no broken links, and pages that everybody can use."""

import importlib.util
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.axe import axe_core, violations
from tests.support.browser import Browser
from tests.support.documents import ROOT
from tests.support.rounds import todays

pytestmark = pytest.mark.slow

NEEDED = ("furo", "myst_parser", "sphinx", "sphinx_click")
BUILD_S = 1_200.0
"""It takes a minute, and on a machine that does much else several."""
OF_THE_THEME = 'landmark-unique: <aside class="sidebar-drawer">'
"""Furo has two `aside` without a name: the menu, and the contents of the page. It is advice, no rule of WCAG."""


class Html(HTMLParser):
    """What the checks ask of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.language: str | None = None
        self.headings = 0
        """How many headings of the first level it has."""
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.images: list[tuple[str, str]] = []
        """The source and the text of each image."""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        self.targets.update(values[name] for name in ("href", "src") if name in values)
        if tag == "html":
            self.language = values.get("lang")
        elif tag == "h1":
            self.headings += 1
        elif tag == "img":
            self.images.append((values.get("src", ""), values.get("alt", "")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder, built from a folder that is not the project's."""
    if not all(importlib.util.find_spec(name) for name in NEEDED):  # tools/docs would install them, and this project
        pytest.skip("Sphinx is not installed; tools/test installs it")
    done = subprocess.run(
        [ROOT / "tools" / "docs"],
        cwd=tmp_path_factory.mktemp("elsewhere"),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Path(done.stdout.strip()).parent


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html(path) for path in sorted(site.rglob("*.html"))}


def test_every_document_has_a_page(site: Path, pages: dict[Path, Html]) -> None:
    documents = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").glob("*/*.md")}
    assert documents - {path.relative_to(site).with_suffix("") for path in pages} == set()
    assert len(documents) > 20


def test_every_link_leads_somewhere(pages: dict[Path, Html]) -> None:
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            if not file.is_file() or (link.fragment and file in pages and link.fragment not in pages[file].ids):
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_every_page_has_a_language_and_one_title(pages: dict[Path, Html]) -> None:
    found = {path.name: (page.language, page.headings) for path, page in pages.items() if path.name != "search.html"}
    assert {
        name: what for name, what in found.items() if what != ("en", 1)
    } == {}  # a script gives search.html its title


def test_every_image_has_a_text(pages: dict[Path, Html]) -> None:
    assert [f"{page.path.name}: {source}" for page in pages.values() for source, text in page.images if not text] == []
    assert sum(len(page.images) for page in pages.values()) > 5


@pytest.mark.parametrize("theme", todays(["light", "dark"]))
@pytest.mark.parametrize("name", ["index.html", "explanation/architecture.html", "reference/commands.html"])
async def test_a_page_is_accessible_in_light_and_dark(site: Path, name: str, theme: str, browser: Browser) -> None:
    axe = axe_core()
    async with browser.showing((site / name).as_uri()) as shown:
        await shown.find(f"{axe};0")
        await shown.find(f"document.body.dataset.theme = '{theme}'")
        found = [line for line in await violations(shown) if line != OF_THE_THEME]
    assert found == []
    assert shown.errors == []
    assert [address for address in shown.requests if not address.startswith(("file:", "data:"))] == []
