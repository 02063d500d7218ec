"""Run what the tables name, and write the document; see `tools/conformance`."""

import sys
from collections import Counter

import pytest

from mqttlite.wire.constants import V5, V311
from tests.conformance.coverage import MODULES, demanded, held
from tests.conformance.document import PATH, Run, document, without_code
from tests.conformance.elsewhere import ELSEWHERE, NOT_APPLICABLE
from tests.conformance.script import Row
from tests.conformance.statements import STATEMENTS


class Recorder:
    """Notes what became of every test, and of every row in every version."""

    def __init__(self) -> None:
        self.run = Run()
        self._rows: dict[str, tuple[int, str, str]] = {}
        self._paths = {id(row): f"{module.__name__.rpartition('.')[2]}.py" for module in MODULES for row in module.ROWS}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                params = item.callspec.params
                version, row = params.get("version"), params.get("row")
                if isinstance(version, int) and isinstance(row, Row):
                    self._rows[item.nodeid] = (version, self._paths[id(row)], row.sentence)
                elif isinstance(version, int) and isinstance(row, tuple):
                    self._rows[item.nodeid] = (version, "test_malformed.py", str(row[1]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        outcome = "passed" if report.passed else "skipped" if report.skipped else "failed"
        self.run.of_tests.setdefault(report.nodeid.partition("[")[0], Counter())[outcome] += 1
        if report.nodeid in self._rows:
            self.run.of_rows.setdefault(self._rows[report.nodeid], Counter())[outcome] += 1


def main() -> int:
    elsewhere = {test for table in ELSEWHERE.values() for tests in table.values() for test in tests}
    named = sorted(test for test in elsewhere if not test.startswith("tests/conformance/"))
    recorder = Recorder()
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
