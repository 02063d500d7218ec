"""The parts of the tests that `tools/test` runs apart from each other, each a set of files.

Invariant: each file is in one of `CORE`, `OTHERS` and `INTEGRATION`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]

CORE: Final = "core"
"""Tests that together reach each line and branch of the core layers. Coverage is measured of these alone: it makes them
take three times as long."""

OTHERS: Final = "others"

INTEGRATION: Final = "integration"
"""A run of the compiled build has these tests on asyncio, and the slow tests have them on uvloop."""

COMPILED: Final = "compiled"
"""All files but those whose tests are the same on the compiled build."""

PARTS: Final = (CORE, OTHERS, INTEGRATION, COMPILED)

_OF_CORE: Final = (
    *("conformance", "models"),
    *("unit/core", "unit/extensions/queues", "unit/extensions/streams", "unit/filters", "unit/log", "unit/topics"),
    *("unit/operations", "unit/telemetry/test_queue_attempts.py", "unit/test_quota_options.py", "unit/wire"),
)
_IN_TURNS: Final = (
    *("fuzz", "properties", "simulation"),
    *("unit/client", "unit/extensions", "unit/gateway", "unit/net", "unit/security", "unit/store", "unit/telemetry"),
)
_NOT_COMPILED: Final = (
    *("documents", "packaging", "spark"),
    *("unit/bench", "unit/catalogue", "unit/cli", "unit/extensions/dataset", "unit/tools"),
)


def is_in(path: Path, part: str) -> bool:
    """Whether a file belongs to a part."""
    if part == COMPILED:
        return not _is_below(path, _NOT_COMPILED)
    if part == CORE:
        return _is_below(path, _OF_CORE)
    if part == INTEGRATION:
        return _is_below(path, ("integration",))
    assert part == OTHERS, f"{part} is none of {', '.join(PARTS)}"
    return not is_in(path, CORE) and not is_in(path, INTEGRATION)


def takes_turns(path: Path) -> bool:
    """Whether a file's tests run on one build a day, and on the other the next day: what they test is above the core,
    of which each build has tests of its own each day."""
    return is_in(path, OTHERS) and is_in(path, COMPILED) and _is_below(path, _IN_TURNS)


def _is_below(path: Path, folders: Iterable[str]) -> bool:
    return any(path.absolute().is_relative_to(TESTS / folder) for folder in folders)
