"""Run what the tables name, and write the document; see `tools/conformance`."""

import sys
from collections import Counter
from typing import Any

import pytest

from mqttlite.wire.constants import V5, V311
from tests.conformance.coverage import MODULES, demanded, held
from tests.conformance.document import PATH, PublishBatch, document, without_code
from tests.conformance.elsewhere import ELSEWHERE, NOT_APPLICABLE
from tests.conformance.script import Row
from tests.conformance.statements import STATEMENTS
from tests.support.table import LISTENERS


class Recorder:
    """Notes what became of every test, and of every row in every version."""

    def __init__(self) -> None:
        self.run = PublishBatch()
        self._paths = {id(row): f"{module.__name__.rpartition('.')[2]}.py" for module in MODULES for row in module.ROWS}

    def on_row(self, case: tuple[Any, ...], passed: bool) -> None:
        """A case is a version and a row of ours, or of the wire's table of what is malformed, in any order; those of
        other tables are looked at as one test."""
        match case:
            case (int(version), Row() as row) | (Row() as row, int(version)):
                place = (self._paths[id(row)], row.sentence)
            case (int(version), (_, str(sentence), *_)) | ((_, str(sentence), *_), int(version)):
                place = ("test_malformed.py", sentence)
            case _:
                return
        self.run.of_rows.setdefault((version, *place), Counter())["passed" if passed else "failed"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        outcome = "passed" if report.passed else "skipped" if report.skipped else "failed"
        self.run.of_tests.setdefault(report.nodeid.partition("[")[0], Counter())[outcome] += 1


def main() -> int:
    elsewhere = {test for table in ELSEWHERE.values() for tests in table.values() for test in tests}
    named = sorted(test for test in elsewhere if not test.startswith("tests/conformance/"))
    recorder = Recorder()
    LISTENERS.append(recorder.on_row)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "tests/conformance", *named], plugins=[recorder])
    PATH.write_text(document(recorder.run), encoding="utf-8")
    bare = 0
    for version in (V5, V311):
        tests = held(version)
        for number, statement in STATEMENTS[version].items():
            if demanded(statement) and not tests[number] and number not in NOT_APPLICABLE[version]:
                print(f"uncovered: {number} {statement.sentence}", file=sys.stderr)
                bare += 1
        for number in without_code(version):
            print(f"no line of code names {number}: {STATEMENTS[version][number].sentence}", file=sys.stderr)
    print(f"{PATH.name} written")
    return int(code) or int(bare > 0)


if __name__ == "__main__":
    sys.exit(main())
