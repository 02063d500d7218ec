"""Which tests hold a statement: rows, packets that the wire refuses, and tests elsewhere."""

from dataclasses import dataclass
from typing import Final

from mqttlite.wire.constants import V5, V31, V311
from tests.conformance import authenticating, connecting, keeping, newer, older, publishing, subscribing
from tests.conformance.elsewhere import ELSEWHERE
from tests.conformance.script import Row
from tests.conformance.statements import STATEMENTS, Statement, numbers, translated
from tests.unit.wire.malformed import EITHER, V5_ONLY, V311_ONLY
from tests.unit.wire.malformed import Row as MalformedRow

MODULES: Final = (connecting, authenticating, publishing, subscribing, keeping, older, newer)
ROWS: Final[list[Row]] = [row for module in MODULES for row in module.ROWS]
REFUSED: Final[dict[int, list[MalformedRow]]] = {V311: EITHER + V311_ONLY, V5: EITHER + V5_ONLY}


@dataclass(frozen=True)
class Test:
    """A row, a refused packet or a test elsewhere: where it stands and what it says."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"`{self.path}`: {self.sentence}" if self.sentence else f"`{self.path}`"


def refused_numbers(row: MalformedRow, version: int) -> list[str]:
    """The statements that a refused packet breaks; the packets of both versions have the numbers of 3.1.1."""
    number = row[0]
    if "-" not in number or version == V31:
        return []
    return translated(number) if version == V5 and row in EITHER else [number]


def held(version: int) -> dict[str, list[Test]]:
    """Every statement of a version with its tests."""
    found: dict[str, dict[Test, None]] = {number: {} for number in STATEMENTS[version]}
    for module in MODULES:
        path = f"{module.__name__.rpartition('.')[2]}.py"
        for row in module.ROWS:
            if version in row.versions:
                for number in numbers(row.statement, version):
                    found[number][Test(path, row.sentence)] = None
    for refused in REFUSED[version]:
        for number in refused_numbers(refused, version):
            found[number][Test("test_malformed.py", refused[1])] = None
    for number, tests in ELSEWHERE[version].items():
        for test in tests:
            found[number][Test(test, "")] = None
    return {number: list(tests) for number, tests in found.items()}


def demanded(statement: Statement) -> bool:
    """Whether it binds a server."""
    return statement.binds != "client"
