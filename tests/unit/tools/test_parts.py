"""The parts that tools/test runs apart from each other lose no file."""

import pytest

from tests.support.parts import CORE, INTEGRATION, OTHERS, PARTS, is_in
from tests.test_architecture import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_each_file_is_in_one_part() -> None:
    parts = {path: [part for part in (CORE, OTHERS, INTEGRATION) if is_in(path, part)] for path in FILES}
    assert {path: found for path, found in parts.items() if len(found) != 1} == {}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_is_empty_and_none_has_all(part: str) -> None:
    assert 0 < len([path for path in FILES if is_in(path, part)]) < len(FILES)


def test_a_part_that_is_unknown_is_an_error() -> None:
    with pytest.raises(AssertionError, match="unknown is none of core, others, integration, compiled"):
        is_in(FILES[0], "unknown")
