"""The folders that the quick suite leaves out."""

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
