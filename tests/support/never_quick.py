"""The folders that the quick suite leaves out, and the files that the slow tests leave out."""

import os
from pathlib import Path
from typing import Final

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

MARKED_BY_FOLDER: Final = tuple(f"{_TESTS / each}{os.sep}" for each in ("integration", "interop"))
"""Their conftest.py marks tests as slow."""


def is_left_out(path: Path, expression: str) -> bool:
    """Whether none of a file's tests is selected, which its text says: to import all files takes half a minute."""
    if expression == QUICK:
        return f"{path}{os.sep}".startswith(NEVER_QUICK)
    if expression != SLOW or not path.match("test_*.py") or str(path).startswith(MARKED_BY_FOLDER):
        return False
    return "mark.slow" not in path.read_text(encoding="utf-8")
