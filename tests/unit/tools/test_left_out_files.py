"""Files that a run does not import, since none of their tests is selected."""

from pathlib import Path

import pytest

from tests.support.never_quick import AFTER_CORE, MARKED_BY_FOLDER, QUICK, SLOW, is_left_out
from tests.test_architecture import ROOT

TESTS = ROOT / "tests"
MARK = "mark." + "slow"


def test_the_slow_tests_import_what_has_the_mark_or_a_folder_that_gives_it(tmp_path: Path) -> None:
    marked, plain = tmp_path / "test_marked.py", tmp_path / "test_plain.py"
    marked.write_text(f"pytestmark = pytest.{MARK}\n")
    plain.write_text("def test_it() -> None: ...\n")
    assert [is_left_out(path, SLOW) for path in (marked, plain, tmp_path)] == [False, True, False]
    assert [is_left_out(TESTS / each, SLOW) for each in ("interop/test_paho.py", "integration/test_store.py")] == [
        False,
        False,
    ]


@pytest.mark.parametrize("expression", ["", "slow", "long", "not slow or long", "slow and not long and unit"])
def test_another_selection_imports_every_file(expression: str) -> None:
    assert not is_left_out(TESTS / "unit/wire/test_plain.py", expression)
    assert not is_left_out(TESTS / "documents", expression)


def test_the_quick_tests_import_no_folder_that_is_never_quick() -> None:
    assert is_left_out(TESTS / "documents", QUICK)
    assert not is_left_out(TESTS / "unit/wire", QUICK)


def test_after_the_quick_tests_of_the_core_its_other_files_are_not_imported_again() -> None:
    files = ("unit/core/test_answers_wait.py", "unit/core/test_back_pressure.py", "unit/core", "unit/cli/test_serve.py")
    assert [is_left_out(TESTS / each, AFTER_CORE) for each in files] == [True, False, False, False]
    assert f'rest="{AFTER_CORE}"' in (ROOT / "tools" / "test").read_text(encoding="utf-8")


def test_only_the_folders_that_are_known_mark_tests_of_other_files() -> None:
    """Such a test would be in no run."""
    others = {path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")}
    marking = {path.parent for path in others if MARK in path.read_text(encoding="utf-8")}
    assert marking - {TESTS, TESTS / "support"} == {Path(folder) for folder in MARKED_BY_FOLDER}
