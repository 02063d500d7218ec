"""Every row of the table, on the core and over a socket; and no statement that binds a server is without a test."""

import ast

import pytest

from mqttlite.wire.constants import V5, V311, VERSION_NAMES
from tests.conformance.coverage import ROWS, demanded, held
from tests.conformance.elsewhere import ELSEWHERE, NOT_APPLICABLE
from tests.conformance.script import Row
from tests.conformance.statements import STATEMENTS, unknown
from tests.conformance.worlds import on_the_core, over_a_socket
from tests.support.table import over
from tests.test_architecture import ROOT


def cases(*, waiting: bool) -> list[tuple[Row, int]]:
    """Rows and versions, with or without those in which time passes."""
    return [(row, version) for row in ROWS for version in row.versions if waiting or not row.waits]


def title(row: Row, version: int) -> str:
    return f"{VERSION_NAMES[version]} [{row.label(version)}] {row.sentence}"


@pytest.mark.reaches
@pytest.mark.long
@over(cases(waiting=True), title)
def test_on_the_core(row: Row, version: int) -> None:
    on_the_core(row, version)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@over(cases(waiting=False), title)
async def test_over_a_socket(row: Row, version: int) -> None:
    await over_a_socket(row, version)


def test_a_statement_is_not_told_twice() -> None:
    told = [(row.statement, row.sentence, version) for row in ROWS for version in row.versions]
    assert len(set(told)) == len(told)


def test_the_tables_are_whole() -> None:
    """As many statements as appendix B has, and what a statement shares with 5.0 is there."""
    assert {version: len(table) for version, table in STATEMENTS.items()} == {V311: 141, V5: 251}
    for statement in STATEMENTS[V311].values():
        assert set(statement.same_as) <= STATEMENTS[V5].keys()


def test_a_row_names_statements_that_exist() -> None:
    assert [(row.statement, unknown(row.statement)) for row in ROWS if unknown(row.statement)] == []


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
def test_no_statement_is_forgotten(version: int) -> None:
    """What the standard demands of a server has a test, or a condition that is never met here."""
    tests = held(version)
    bare = [number for number, each in STATEMENTS[version].items() if demanded(each) and not tests[number]]
    assert bare == list(NOT_APPLICABLE[version])


@pytest.mark.long
def test_a_test_elsewhere_is_there() -> None:
    wanted = {test for table in ELSEWHERE.values() for tests in table.values() for test in tests}
    for path in {test.partition("::")[0] for test in wanted}:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        wanted -= {
            f"{path}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    assert wanted == set()
