"""Every row of the table, on the core and over a socket."""

from typing import Any

import pytest

from mqttlite.wire.constants import VERSION_NAMES
from tests.conformance import connecting, keeping, publishing, subscribing
from tests.conformance.script import Row
from tests.conformance.worlds import on_the_core, over_a_socket

ROWS = [*connecting.ROWS, *publishing.ROWS, *subscribing.ROWS, *keeping.ROWS]


def cases(*, waiting: bool) -> list[Any]:
    """Rows and versions, with or without those in which time passes."""
    return [
        pytest.param(row, version, id=f"{VERSION_NAMES[version]} [{row.statement}] {row.sentence}")
        for row in ROWS
        for version in row.versions
        if waiting or not row.waits
    ]


@pytest.mark.parametrize(("row", "version"), cases(waiting=True))
def test_on_the_core(row: Row, version: int) -> None:
    on_the_core(row, version)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("row", "version"), cases(waiting=False))
async def test_over_a_socket(row: Row, version: int) -> None:
    await over_a_socket(row, version)


def test_a_statement_is_not_told_twice() -> None:
    told = [(row.statement, row.sentence, version) for row in ROWS for version in row.versions]
    assert len(set(told)) == len(told)
