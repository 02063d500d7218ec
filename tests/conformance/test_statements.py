"""Every row of the table, on the core and over a socket."""

from typing import Any

import pytest

from mqttlite.wire.constants import V5, VERSION_NAMES
from tests.conformance import connecting, keeping, publishing, subscribing
from tests.conformance.script import Row
from tests.conformance.statements import (
    BINDS_THE_CLIENT,
    LAST,
    NEVER_SENT,
    NONE_BY_THAT_NUMBER,
    NOT_ON_THE_WIRE_HERE,
    UNHELD,
)
from tests.conformance.worlds import on_the_core, over_a_socket
from tests.unit.wire.malformed import V5_ONLY

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


def test_no_statement_is_forgotten() -> None:
    """What the standard demands of a server has a row, or it is written down where else it is held."""
    held = {statement for row in ROWS if V5 in row.versions for statement in row.statement.split()}
    held |= {f"MQTT-{row[0]}" for row in V5_ONLY}
    demanded = {f"MQTT-{section}-{number}" for section, last in LAST.items() for number in range(1, last + 1)}
    elsewhere = [NONE_BY_THAT_NUMBER, *BINDS_THE_CLIENT.split(), *NEVER_SENT.split(), *NOT_ON_THE_WIRE_HERE]
    missing = demanded - held - {f"MQTT-{number}" for number in elsewhere}
    assert missing == {f"MQTT-{number}" for number in UNHELD.split()}
