"""`mqttlite filter test` at the terminal: the tree that it prints, and how it ends."""

import json

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main

EXPRESSION = 'payload.total > 1000 AND (attributes.region = "us" OR NOT attributes:region)'


def run(*args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["filter", "test", *args], input=stdin)


def test_the_tree_has_each_part_with_its_result_and_its_value() -> None:
    result = run(EXPRESSION, '{"total": 1200}', "--property", "region=eu", "--property", "x=1")
    assert result.output.splitlines() == [
        f"false  {EXPRESSION}",
        "  true   payload.total > 1000: 1200",
        '  false  attributes.region = "us" OR NOT attributes:region',
        '    false  attributes.region = "us": "eu"',
        "    false  NOT attributes:region",
        '      true   attributes:region: "eu"',
    ]
    assert result.exit_code == 1


def test_a_message_that_passes_ends_with_0() -> None:
    result = run("topic: 'a/' AND qos = 1 AND retain = true", "-t", "a/b", "-q", "1", "-r")
    assert result.exit_code == 0
    assert result.output.splitlines()[1:] == [
        "  true   topic: 'a/': \"a/b\"",
        "  true   qos = 1: 1",
        "  true   retain = true: true",
    ]


def test_absent_values_are_missing_and_long_ones_are_cut() -> None:
    result = run("payload.a = 1 OR attributes.b = '1' OR payload.c = '1'", "-s", stdin=b'{"c": "%s"}' % (b"x" * 100))
    assert result.output.splitlines()[1:] == [
        "  false  payload.a = 1: missing",
        "  false  attributes.b = '1': missing",
        f"  false  payload.c = '1': \"{'x' * 59}…",
    ]


def test_the_tree_as_json() -> None:
    result = run("--json", "payload.x = 1 AND attributes:a", "-m", '{"x": 1}')
    assert json.loads(result.output) == {
        "text": "payload.x = 1 AND attributes:a",
        "result": False,
        "parts": [
            {"text": "payload.x = 1", "result": True, "found": 1},
            {"text": "attributes:a", "result": False},
        ],
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ('qos = 1 AND\n attributes.region == "us"',),
            "Error: The filter is wrong: position 33: found =, and expected a value (it is written =); "
            'such as "us", 42 or true.\n   attributes.region == "us"\n                      ^\n',
        ),
        (("qos = 1", "-t", "a/#"), "wildcard"),
        (("qos = 1", "x", "-s"), "MESSAGE, -m and -s exclude each other."),
        (("qos = 1", "--property", "region"), "'region' is no user property: write NAME=VALUE."),
    ],
)
def test_wrong_usage_is_said_with_exit_code_2(args: tuple[str, ...], said: str) -> None:
    result = run(*args)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
