"""The guide to testing one's own code: its blocks are files of a test suite, and that suite passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "test-your-code.md"


def files() -> dict[str, str]:
    """The Python blocks of the page, by the name in their first line."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return {block.partition("\n")[0].removeprefix("# "): block for block in blocks}


@pytest.mark.slow
def test_the_suite_on_the_page_passes(tmp_path: Path) -> None:
    assert "conftest.py" in files()
    for name, text in files().items():
        assert re.fullmatch(r"(conftest|test_\w+)\.py", name), f"the first line of each block names its file: {name}"
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"),
            *("-o", "asyncio_default_fixture_loop_scope=function", "--rootdir", tmp_path, tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
