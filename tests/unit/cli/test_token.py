"""`mqttlite token`: a key is shown once, listed without itself, and revoked by its id."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.token import command
from mqttlite.security.api_keys import PREFIX, load


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--data-dir", str(folder)])


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    made = run(tmp_path, "new", "--role", "operator", "--user", "ann", "--expires", "90d", "--note", "night shift")
    assert made.exit_code == 0
    assert made.stdout.startswith(PREFIX)
    (key,) = load(tmp_path / "api-keys.json")
    assert key.expires_at is not None
    assert key.expires_at - key.created_at in range(90 * 86_400 - 2, 90 * 86_400 + 2)
    listed = run(tmp_path, "list").stdout
    assert [word in listed for word in (key.id, "operator", "ann", "expires", "night shift")] == [True] * 5
    as_json = json.loads(run(tmp_path, "list", "--json").stdout)
    assert (as_json["id"], "sha256" in as_json) == (key.id, False)
    assert run(tmp_path, "revoke", key.id).exit_code == 0
    assert run(tmp_path, "list").stdout == ""
    again = run(tmp_path, "revoke", key.id)
    assert (again.exit_code, "has no key" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("new",), 2),
        (("new", "--role", "root"), 2),
        (("new", "--role", "user", "--expires", "soon"), 2),
        (("new", "--role", "user", "--user", ""), 2),
        (("list",), 1),
        (("revoke", "x"), 1),
        (("new", "--role", "user"), 1),
    ],
)
def test_a_wrong_file_changes_nothing(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    (tmp_path / "api-keys.json").write_text("{")
    assert run(tmp_path, *arguments).exit_code == code
    assert (tmp_path / "api-keys.json").read_text() == "{"
