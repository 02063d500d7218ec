"""The Python and TOML blocks of the documents: programs print what the documents say, and fragments use what exists."""

import ast
import importlib
import inspect
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from mqttlite.config import parse_config
from tests.support.documents import Block, Program, blocks, programs

WITH_OUTPUT = [program for program in programs() if program.output is not None]
FRAGMENTS = [program.block for program in programs() if program.output is None]


@pytest.mark.parametrize("program", WITH_OUTPUT, ids=lambda program: str(program.block))
def test_a_program_prints_what_the_page_says(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program.block.text, str(program.block), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == program.output


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_a_fragment_uses_what_exists(block: Block) -> None:
    check_fragment(block.text, str(block))


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_configuration_is_valid(block: Block) -> None:
    parse_config(tomllib.loads(block.text))


@pytest.mark.parametrize(
    "text",
    [
        "import mqttlite.nothing",
        "from mqttlite import Brooker",
        "from mqttlite import Broker\nBroker(prot=1)",
        "import mqttlite\nmqttlite.Brooker()",
        "import mqttlite.client\nmqttlite.client.Client(hots='a')",
        "await (",
    ],
)
def test_a_wrong_fragment_is_noticed(text: str) -> None:
    with pytest.raises((ImportError, AttributeError, TypeError, SyntaxError)):
        check_fragment(text, "text")


def check_fragment(text: str, name: str) -> None:
    """Raises for what does not compile, imports that fail, and calls that what was imported does not take."""
    compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    tree = ast.parse(text)
    names = dict(imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = resolve(node.func, names)
            if function is not None and not is_unpacked(node):
                arguments = [None for _ in node.args]
                inspect.signature(function).bind(*arguments, **{str(each.arg): None for each in node.keywords})


def resolve(node: ast.expr, names: dict[str, Any]) -> Any:
    """The object that a name or a dotted name stands for; None if it was not imported."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return None


def is_unpacked(call: ast.Call) -> bool:
    """Whether arguments come from `*` or `**`, so that their number is unknown."""
    return any(isinstance(each, ast.Starred) for each in call.args) or any(not each.arg for each in call.keywords)


def imported(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The objects that the imports of a fragment bind, by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = importlib.import_module(alias.name)
                root = alias.name.partition(".")[0]
                yield (alias.asname, module) if alias.asname else (root, importlib.import_module(root))
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                yield alias.asname or alias.name, getattr(module, alias.name)
