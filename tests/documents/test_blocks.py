"""Every code block is in a language that some test checks, or says why it is not checked."""

import configparser
import json
import re

import pytest
import yaml

from tests.support.documents import ALL_BLOCKS, EXEMPTION, PAGES, Block, blocks, blocks_of, programs


def parse_json(text: str) -> None:
    rest = text.strip()
    while rest:  # one value after the other
        _, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].strip()


def parse_yaml(text: str) -> None:
    assert list(yaml.safe_load_all(text)) != []


def parse_ini(text: str) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)  # systemd repeats keys and uses %
    parser.read_string(text)
    assert parser.sections() != []


PARSERS = {"ini": parse_ini, "json": parse_json, "yaml": parse_yaml}
CHECKED = frozenset({"", "console", "output", "python", "sh", "toml", *PARSERS})
"""The languages that the tests of this package check."""

LOOKS_LIKE_A_COMMAND = re.compile(
    r"\$ |([A-Z_]+=\S+ )*((\S*/)?mqttlite [a-z]+|(\./)?tools/[a-z]|(\S*/)?(python3?|pip) -?[a-z]|mosquitto_[a-z]+ -)"
)


def is_directive(block: Block) -> bool:
    """Whether it is for Sphinx, which reports what it does not understand."""
    return block.language.startswith("{")


def test_every_block_is_checked_or_says_why_not() -> None:
    unknown = [block for block in blocks() if block.language not in CHECKED and not is_directive(block)]
    assert [f"{block} ({block.language})" for block in unknown] == []


def test_every_exemption_is_before_a_block() -> None:
    exemptions = sum(len(EXEMPTION.findall(page.read_text(encoding="utf-8"))) for page in PAGES)
    assert exemptions == len([block for block in ALL_BLOCKS if block.reason])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<!-- not checked: needs nginx -->\n```nginx\na\n```\n", "needs nginx"),
        ("<!-- not checked: needs nginx -->\n\n```nginx\na\n```\n", "needs nginx"),
        ("<!-- not checked: needs nginx -->\n\nText.\n\n```nginx\na\n```\n", ""),
        ("<!-- not checked: -->\n```nginx\na\n```\n", ""),
        ("<!-- nothing -->\n```nginx\na\n```\n", ""),
    ],
)
def test_an_exemption_has_a_reason_and_is_next_to_its_block(text: str, reason: str) -> None:
    assert blocks_of(text, "page") == [Block("page", text.count("\n") - 2, "nginx", "a\n", reason)]


@pytest.mark.parametrize("line", ["$ ls", "A=1 ./tools/test tests", ".venv/bin/mqttlite sub", "python -m bench"])
def test_a_command_is_recognised(line: str) -> None:
    assert LOOKS_LIKE_A_COMMAND.match(line)


@pytest.mark.parametrize("block", blocks(""), ids=str)
def test_a_block_without_a_language_has_no_commands(block: Block) -> None:
    commands = [line for line in block.text.splitlines() if LOOKS_LIKE_A_COMMAND.match(line)]
    assert commands == [], "label it sh or console"


def test_every_output_is_that_of_a_program() -> None:
    assert len(blocks("output")) == len([program for program in programs() if program.output is not None])


@pytest.mark.parametrize("block", blocks(*PARSERS), ids=str)
def test_structured_text_is_valid(block: Block) -> None:
    PARSERS[block.language](block.text)


@pytest.mark.parametrize(
    ("language", "text"), [("json", '{"a": 1} {"b"}'), ("yaml", "a: [1\n"), ("ini", "Restart=always\n")]
)
def test_wrong_structured_text_is_noticed(language: str, text: str) -> None:
    with pytest.raises((ValueError, yaml.YAMLError, configparser.Error)):
        PARSERS[language](text)
