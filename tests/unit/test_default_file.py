"""`mqttlite config default` prints every option with its default and a sentence; as a file it changes nothing."""

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main
from mqttlite.config import Config, load_config
from mqttlite.config.default_file import WIDTH, default_file
from mqttlite.config.shape import shape_problems


def uncommented(marks: str) -> str:
    """The file with the options behind these marks in force."""
    return re.sub(rf"^{marks}(?=[^# ])", "", default_file(), flags=re.MULTILINE)


@pytest.mark.long
def test_the_documented_value_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(default_file())
    assert load_config(file) == Config()
    file.write_text(uncommented("#"))
    assert load_config(file) == Config()


def test_absent_columns_have_the_right_names_and_types() -> None:
    assert list(shape_problems(tomllib.loads(uncommented("##?")))) == []


def test_every_option_has_a_sentence_and_stands_in_the_file() -> None:
    lines = default_file().splitlines()
    options = [number for number, line in enumerate(lines) if re.match(r"##?[^# ]", line)]
    without = [lines[number] for number in options if not lines[number - 1].startswith("# ")]
    assert without == [], "give these options a docstring where their types are defined"
    assert {"[[listeners]]", "[limits]", "[listeners.tls]", "[[topic_policies]]"} <= {
        lines[number].lstrip("#") for number in options
    }
    assert len(options) > 150


def test_lines_fit_a_terminal() -> None:
    assert max(len(line) for line in default_file().splitlines()) <= WIDTH


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(main, ["config", "default"])
    assert (result.exit_code, result.output) == (0, default_file())
