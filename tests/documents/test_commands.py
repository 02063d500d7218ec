"""Each shell command in the documents exists and takes the options that it is given there."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final

import click
import pytest

from bench.__main__ import _parser as bench_parser
from mqttlite.cli.main import main
from spark_analytics.__main__ import _parser as analytics_parser
from tests.support.documents import ROOT, Block, blocks
from tools.devices.device import command as device
from tools.devices.fleet import command as fleet
from tools.telemetry.command import command as telemetry_gen

TOOLS: Final = {"run": ["serve"], "device": device, "fleet": fleet, "telemetry_gen": telemetry_gen}
MODULES: Final[dict[str, Callable[[], argparse.ArgumentParser]]] = {
    "bench": bench_parser,
    "spark_analytics": analytics_parser,
}
FOREIGN: Final = frozenset(
    (
        "apt-get",
        "cd",
        "cibuildwheel",
        "curl",
        "df",
        "docker",
        "find",
        "git",
        "mosquitto_ctrl",
        "mosquitto_pub",
        "mosquitto_sub",
        "nats-server",
        "node-red",
        "npm",
        "openssl",
        "pip",
        "promtool",
        "pwgen",
        "spark-submit",
        "sudo",
        "systemctl",
        "tail",
        "wc",
    )
)
"""Programs of others, whose options are not ours to check."""

_ENDS: Final = frozenset((";", "|", "&&", "||", "&"))
_ASSIGNMENT: Final = re.compile(r"[A-Z_]+=")


def command_lines(block: Block) -> Iterator[str]:
    """The lines to type: all of a block `sh`, those behind a `$` of a block `console`."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "sh":
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without assignments and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    is_file = False
    for word in [*lexer, ";"]:
        if word in _ENDS:
            if words:
                yield words
            words = []
        elif is_file or word in (">", ">>", "<"):
            is_file = not is_file
        elif words or not _ASSIGNMENT.match(word):
            words.append(word)


def check_line(line: str) -> None:
    for words in commands(line):
        check(words)


def check(words: list[str]) -> None:
    """Raises `AssertionError` for a command that is not there, or that does not take these words."""
    path, name = words[0], words[0].rpartition("/")[2]
    if name == "mqttlite":
        check_click(main, words[1:])
    elif name in ("mosquitto_pub", "mosquitto_sub"):
        check_click(main, [name.removeprefix("mosquitto_"), *words[1:]])
    elif path.removeprefix("./").startswith("tools/"):
        assert (ROOT / path).is_file(), f"there is no {path}"
        target = TOOLS.get(name)
        if isinstance(target, list):
            check_click(main, [*target, *words[2 if words[1:2] == ["--native"] else 1 :]])
        elif target is not None:
            check_click(target, words[1:])
    elif name.startswith("python") and words[1].endswith(".py"):
        assert (ROOT / words[1]).is_file(), f"there is no {words[1]}"
    elif name.startswith("python") and words[1] == "-m":
        if words[2] in MODULES:
            check_argparse(MODULES[words[2]](), words[3:])
        else:
            assert words[2] in ("http.server", "pip", "pytest", "venv"), f"nobody knows the module {words[2]}"
    else:
        assert name in FOREIGN, f"nobody knows the command {name}"


def check_click(command: click.Command, words: list[str]) -> None:
    if isinstance(command, click.Group):
        child = command.get_command(click.Context(command), words[0]) if words else None
        assert child is not None or words[:1] == ["--version"], f"there is no command {words[:1]}"
        if child is not None:
            check_click(child, words[1:])
        return
    try:
        command.make_context(command.name, list(words))
    except click.exceptions.Exit:
        pass  # --help
    except click.UsageError as error:
        raise AssertionError(error.format_message()) from None


def check_argparse(parser: argparse.ArgumentParser, words: list[str]) -> None:
    try:
        parser.parse_args(words)
    except SystemExit as error:
        if error.code:
            raise AssertionError(f"{parser.prog} does not take {words}") from None


@pytest.mark.parametrize("block", blocks("sh", "console"), ids=str)
def test_commands_take_their_options(block: Block) -> None:
    for line in command_lines(block):
        try:
            check_line(line)
        except AssertionError as error:
            pytest.fail(f"{line}: {error}")


@pytest.mark.parametrize(
    "line",
    [
        "mqttlite serve --prot 1883",
        "mqttlite sreve",
        "tools/rnu",
        "mosquitto_sub --nonsense",
        "python -m bench nothing",
        "python -m mqttlight",
        "A=1 mqttlite pub -t a -m b | frobnicate",
    ],
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises(AssertionError):
        check_line(line)
