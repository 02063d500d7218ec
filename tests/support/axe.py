"""axe-core, which finds what keeps people with assistive technology from using a page."""

import fcntl
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.interop.support import tool
from tests.support.browser import Page

JS: Final = Path(__file__).resolve().parents[1] / "spark" / "js"
INSTALL_S: Final = 300.0

JUDGE: Final = """axe.run(document, {resultTypes: ["violations"], preload: false}).then(found => found.violations.map(
    one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 100)).join(", ")}`))"""


def axe_core() -> str:
    """axe-core as one script; installs it if it is missing."""
    npm = tool("npm", package="npm")
    script = JS / "node_modules/axe-core/axe.min.js"
    lock = JS / "package-lock.json"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # tests in other processes install it, too
        if not script.exists() or script.stat().st_mtime < lock.stat().st_mtime:
            command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            assert done.returncode == 0, done.stderr
            script.touch()
    return script.read_text(encoding="utf-8")


async def violations(page: Page) -> Any:
    """A line for each rule that the page violates as it is shown now; needs axe-core in the page."""
    return await page.find(JUDGE)
