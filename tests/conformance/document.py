"""`docs/reference/conformance.md`: statement → code → tests → result.

What it says of statements and tests comes from the tables, what it says of code from the ids in the sources. The
results are those of a run, which `tools/conformance` makes; without one (`run=None`) they are left out.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from mqttlite.wire.constants import V5, V311, VERSION_NAMES
from tests.conformance.coverage import MODULES, Test, demanded, held
from tests.conformance.elsewhere import NOT_APPLICABLE
from tests.conformance.statements import STATEMENTS, name, unknown

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PATH: Final = ROOT / "docs" / "reference" / "conformance.md"

_HERE: Final = "tests/conformance/"
_IN_BRACKETS: Final = re.compile(r"\[((?:3\.1\.1 )?MQTT-[^\]]+)\]")
_LOOKS_LIKE_ONE: Final = re.compile(r"MQTT-?\d[\d.]*-\d+")


@dataclass
class PublishBatch:
    """What became of tests: by file and function, and of rows by version, file and sentence."""

    of_tests: dict[str, Counter[str]] = field(default_factory=dict)
    of_rows: dict[tuple[int, str, str], Counter[str]] = field(default_factory=dict)

    def outcome(self, version: int, tests: list[Test]) -> str:
        """`passed`, `failed`, or `not run` where one of the tests did not."""
        seen: Counter[str] = Counter()
        for test in tests:
            found = self.of_tests.get(test.path) or self.of_rows.get((version, test.path, test.sentence))
            if not found:
                return "not run"
            seen += found
        return "failed" if seen["failed"] else "passed" if seen["passed"] else "not run"


@cache
def places(folder: Path = ROOT / "mqttlite") -> dict[str, list[str]]:
    """Where each id stands in the sources, as `file:function`."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        spans = list(_definitions(ast.parse(source), ""))
        for at, line in enumerate(source.splitlines(), 1):
            for text in _IN_BRACKETS.findall(line):
                inner = [title for first, last, title in spans if first <= at <= last]
                title = f"{path.relative_to(folder.parent).as_posix()}:{inner[-1] if inner else 'module'}"
                if title not in found.setdefault(text, []):
                    found[text].append(title)
    return found


def _definitions(tree: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and name of every class and function, the outer before the inner."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.lineno, node.end_lineno, prefix + node.name
            yield from _definitions(node, f"{prefix}{node.name}.")


def misspelt(folder: Path = ROOT / "mqttlite") -> list[str]:
    """What looks like an id in the sources and is none."""
    wrong = []
    for path in sorted(folder.rglob("*.py")):
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            strays = len(_LOOKS_LIKE_ONE.findall(line)) - len(re.findall(r"MQTT-\d[\d.]*-\d+\]", line))
            wrong += [f"{path.name}:{at}: {each}" for each in unknown(line)]
            wrong += [f"{path.name}:{at}: an id outside of brackets"] * strays
    return wrong


def document(run: PublishBatch | None) -> str:
    """The whole file."""
    parts = [_HEAD]
    where = places()
    for version in (V5, V311):
        parts.append(_section(version, where, run))
    return "\n".join(parts)


def essence(text: str) -> list[list[str]]:
    """What of it must be up to date with the tables: every row without code and result."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:3] == "| ["]
    return [[statement, binds, sentence, tests] for statement, binds, sentence, _code, tests, _result in rows]


def _section(version: int, where: dict[str, list[str]], run: PublishBatch | None) -> str:
    tests = held(version)
    table = STATEMENTS[version]
    for_a_server = [number for number, statement in table.items() if demanded(statement)]
    excused = NOT_APPLICABLE[version]
    uncovered = [number for number in for_a_server if not tests[number] and number not in excused]
    results = {
        number: "does not apply"
        if number in excused
        else "binds clients"
        if not tests[number]
        else run.outcome(version, tests[number])
        if run
        else ""
        for number in table
    }
    lines = [
        f"## MQTT {VERSION_NAMES[version]}",
        "",
        "| | |",
        "|---|---|",
        f"| Statements | {len(table)} |",
        f"| … that bind a server | {len(for_a_server)} |",
        f"| … of those with tests | {sum(bool(tests[number]) for number in for_a_server)} |",
        f"| … whose tests passed | {sum(results[number] == 'passed' for number in for_a_server)} |",
        f"| … that do not apply | {len(excused)} |",
        f"| Rows of the table | {_rows(version)} |",
        "",
        f"Uncovered statements that bind a server: {', '.join(uncovered) or '**none**'}.",
        "",
        "| Statement | Binds | What it demands | Code | Tests | Result |",
        "|---|---|---|---|---|---|",
    ]
    for number, statement in table.items():
        cells = [
            f"[{name(version, number)}]",
            statement.binds,
            statement.sentence,
            "<br>".join(_code(version, number, where)),
            "<br>".join(_shown(test) for test in tests[number]) or excused.get(number, "–"),
            results[number],
        ]
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join([*lines, ""])


def _rows(version: int) -> int:
    return sum(version in row.versions for module in MODULES for row in module.ROWS)


def _shown(test: Test) -> str:
    return f"`{test.path.removeprefix(_HERE)}`{': ' * bool(test.sentence)}{test.sentence}"


def _code(version: int, number: str, where: dict[str, list[str]]) -> list[str]:
    """The places of a statement: under its own number, and for 3.1.1 under those that demand the same in 5.0."""
    ids = [name(version, number)]
    if version == V311:
        ids += [name(V5, each) for each in STATEMENTS[V311][number].same_as]
    found = dict.fromkeys(f"`{place}`" for each in ids for place in where.get(each, []))
    return sorted(found, key=lambda place: "mqttlite/client/" in place)


def without_code(version: int) -> list[str]:
    """Statements that bind a server, apply to us, and stand nowhere in the sources but in the client library's."""
    where = places()
    return [
        number
        for number, statement in STATEMENTS[version].items()
        if demanded(statement)
        and number not in NOT_APPLICABLE[version]
        and all("mqttlite/client/" in place for place in _code(version, number, where))
    ]


_HEAD: Final = """# Conformance

Every normative statement of MQTT 5.0 and 3.1.1, whom it binds, where the code keeps it, and which tests hold it. Made
by `tools/conformance` from the tables in `tests/conformance/`; do not edit it by hand.

- *Statement* is its number in the standard's appendix B.
- *Binds* is `server`, `client` or `both`: `both` includes what a client must not do and a server must refuse.
- *Code* is every place that names the statement. A place that keeps both versions names the number of 5.0, and stands
  here in both tables. What is below `mqttlite/client/` is the client library.
- *Tests* are rows, as file and sentence: bytes in, bytes out or the connection's end, played on the core and over a
  socket (on the core alone where time passes). `test_malformed.py` sends packets that break a rule. A name with `::`
  is a test elsewhere.
- *Result* is that of the run that made this page.
"""
