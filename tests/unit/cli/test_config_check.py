"""`mqttlite config check` and the files of the data directory, also of the default one."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main


def check(tmp_path: Path, text: str = "allow_anonymous = true\n") -> Result:
    file = tmp_path / "broker.toml"
    file.write_text(text + "[[listeners]]\nport = 0\n")
    return CliRunner().invoke(main, ["config", "check", str(file)])


@pytest.mark.parametrize("file", ["topics.json", "schemas.json"])
def test_a_damaged_file_in_the_data_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    data_dir = tmp_path / "state"
    data_dir.mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", str(data_dir))
    assert check(tmp_path).exit_code == 0
    (data_dir / file).write_text("{nonsense}\n{}\n")
    for text in ("", f'data_dir = "{data_dir}"\n'):
        found = check(tmp_path, text)
        assert (found.exit_code, file in found.stderr) == (2, True), found.output


def test_a_default_data_directory_that_cannot_be_used_is_named_as_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file" / "state"))
    found = check(tmp_path)
    assert found.exit_code == 2
    assert "it is the default: name another with data_dir or --data-dir" in found.stderr
