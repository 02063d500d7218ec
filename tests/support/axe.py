"""axe-core, which finds what keeps people with assistive technology from using a page."""

from pathlib import Path
from typing import Any, Final

from tests.support.browser import Page
from tests.support.npm import install

JS: Final = Path(__file__).resolve().parents[1] / "spark" / "js"

JUDGE: Final = """axe.run(document, {resultTypes: ["violations"], preload: false}).then(found => found.violations.map(
    one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 100)).join(", ")}`))"""


def axe_core() -> str:
    """axe-core as one script; installs it if it is missing."""
    script = JS / "node_modules/axe-core/axe.min.js"
    install(JS, script)
    return script.read_text(encoding="utf-8")


async def violations(page: Page) -> Any:
    """A line for each rule that the page violates as it is shown now; needs axe-core in the page."""
    return await page.find(JUDGE)
