"""The normative statements of both versions as values, and which of them a row is about."""

import re
from dataclasses import dataclass
from typing import Final

from mqttlite.wire.constants import V5, V311
from tests.conformance import table_3_1_1, table_5_0

_ID: Final = re.compile(r"(3\.1\.1 )?MQTT-([\d.]+-\d+)")


@dataclass(frozen=True)
class Statement:
    number: str
    binds: str
    """`server`, `both` (what a client must not do, and a server must refuse, binds both) or `client`."""
    sentence: str
    same_as: tuple[str, ...] = ()
    """Of 3.1.1: the numbers that demand it in 5.0."""

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.split(r"[.-]", self.number))


def _parse(table: str, *, with_same_as: bool) -> dict[str, Statement]:
    statements = {}
    for line in table.strip().splitlines():
        number, binds, rest = line.split(None, 2)
        same_as = "-"
        if with_same_as:
            same_as, rest = rest.split(None, 1)
        assert number not in statements, f"{number} is there twice"
        assert binds in ("client", "server", "both"), line
        statements[number] = Statement(number, binds, rest, () if same_as == "-" else tuple(same_as.split(",")))
    return statements


STATEMENTS: Final[dict[int, dict[str, Statement]]] = {
    V311: _parse(table_3_1_1.TABLE, with_same_as=True),
    V5: _parse(table_5_0.TABLE, with_same_as=False),
}


def name(version: int, number: str) -> str:
    """As the code and the rows write it, without brackets."""
    return f"MQTT-{number}" if version == V5 else f"3.1.1 MQTT-{number}"


def numbers(text: str, version: int) -> list[str]:
    """The statements of that version which are named in a text, by their own number or by the one they share."""
    found: list[str] = []
    for older, number in _ID.findall(text):
        if version == V5:
            if not older:
                found.append(number)
        elif older:
            found.append(number)
        else:
            found += [each.number for each in STATEMENTS[V311].values() if number in each.same_as]
    return list(dict.fromkeys(found))


def translated(number: str) -> list[str]:
    """What 5.0 calls a statement of 3.1.1."""
    return list(STATEMENTS[V311][number].same_as)


def unknown(text: str) -> list[str]:
    """The ids in a text that no version has."""
    return [
        f"{older}MQTT-{number}"
        for older, number in _ID.findall(text)
        if number not in STATEMENTS[V311 if older else V5]
    ]
