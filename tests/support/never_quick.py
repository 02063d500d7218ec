"""The folders that the quick suite leaves out, and the files that the slow tests leave out."""

import os
from pathlib import Path
from typing import Final

from tests.support.parts import CORE, is_in
from tests.support.turns import rests

_TESTS: Final = Path(__file__).parents[1]

NEVER_QUICK: Final = tuple(
    f"{_TESTS / each}{os.sep}"
    for each in (
        *("documents", "e2e", "faults", "integration", "interop", "packaging"),
        *("unit/bench", "unit/gateway", "unit/tools"),
    )
)
"""Their tests start processes, brokers with sockets or gateways, or are tests of tools, benchmarks and documents. They
took half of the quick suite's time."""

QUICK: Final = "not slow"
"""The expression of marks that selects the quick suite."""

SLOW: Final = "slow and not long"
"""The expression of marks that selects the slow tests."""

AFTER_CORE: Final = "(long and not reaches) or (not slow and not core)"
"""The expression of marks that selects the tests that are not slow, but for those of the core that ran with coverage
before."""

MARKED_BY_FOLDER: Final = tuple(f"{_TESTS / each}{os.sep}" for each in ("integration", "interop"))
"""Their conftest.py marks tests as slow."""


def is_left_out(path: Path, expression: str) -> bool:
    """Whether none of a file's tests is selected, which the date and its text say: to import all files takes half a
    minute."""
    if expression == QUICK:
        return f"{path}{os.sep}".startswith(NEVER_QUICK)
    if expression == AFTER_CORE:
        return path.match("test_*.py") and is_in(path, CORE) and "mark.long" not in path.read_text(encoding="utf-8")
    if expression != SLOW or not path.match("test_*.py"):
        return False
    if rests(path):
        return True
    if str(path).startswith(MARKED_BY_FOLDER):
        return False
    return "mark.slow" not in path.read_text(encoding="utf-8")
