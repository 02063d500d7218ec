"""What a benchmark says beside its time: kept in `extra_info`, which goes into the JSON, and printed at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

Note = Callable[..., None]

HERE: Final = Path(__file__).resolve().parent
NOTES: Final = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def note(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Note:
    """Call it with `name=figure`; a figure of None is one that could not be measured."""

    def _note(**figures: float | None) -> None:
        known = {name: float(f"{figure:.4g}") for name, figure in figures.items() if figure is not None}
        benchmark.extra_info.update(known)
        if known:
            line = "  ".join(f"{name} {figure:,g}" for name, figure in known.items())
            request.config.stash.setdefault(NOTES, []).append((request.node.name, line))

    return _note


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A benchmark that fails is one failure, and not also one that "was not used"."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("default::pytest_benchmark.logger.PytestBenchmarkWarning"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    notes = config.stash.get(NOTES, [])
    if notes:
        width = max(len(name) for name, _line in notes)
        terminalreporter.section("beside the times")
        for name, line in notes:
            terminalreporter.write_line(f"{name:<{width}}  {line}")
