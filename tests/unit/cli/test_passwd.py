"""`mqttlite passwd` at the terminal: what it asks, what it prints and how it ends."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.security.keys import Keys, keys_of
from mqttlite.security.password_file import ITERATIONS, load


def passwd(*arguments: str, typed: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["passwd", *arguments], input=typed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    assert passwd("-c", str(path), "ann", "--password-stdin", typed="secret\n").exit_code == 0
    return path


def test_it_makes_a_file_that_is_its_owners_alone(path: Path) -> None:
    keys = load(path).scram_keys("ann")
    assert keys == keys_of("secret", keys.salt, ITERATIONS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_adds_changes_and_removes_users(path: Path) -> None:
    added = passwd(str(path), "Zoë", "--password-stdin", "--iterations", "4096", typed="päss wörd\r\nrest".encode())
    assert (added.exit_code, added.stderr) == (0, f"Zoë was added to {path}\n")
    keys = load(path).scram_keys("Zoë")
    assert keys == keys_of("päss wörd", keys.salt, 4096)
    changed = passwd(str(path), "ann", "--password-stdin", typed="other")
    assert (changed.exit_code, changed.stderr) == (0, f"ann has a new password in {path}\n")
    removed = passwd(str(path), "ann", "--delete")
    assert (removed.exit_code, removed.stderr) == (0, f"ann was removed from {path}\n")
    assert len(load(path)) == 1


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["argon2id", "scrypt"])
def test_it_writes_other_kinds_on_request(path: Path, algorithm: str) -> None:
    assert passwd(str(path), "bob", "--algorithm", algorithm, "--password-stdin", typed="päss").exit_code == 0
    assert path.read_text().splitlines()[1].startswith(f"bob:${algorithm}$")
    bob = load(path).find("bob")
    assert not isinstance(bob, Keys)
    assert bob.matches("päss".encode())


def test_lines_of_mosquitto_stay_as_they_are(path: Path) -> None:
    line = "eve:$7$101$CPHVEmRDHR+OaAzj$" + "A" * 86 + "=="
    path.write_text(f"{path.read_text()}{line}\n")
    assert passwd(str(path), "bob", "--password-stdin", typed="x").exit_code == 0
    assert path.read_text().splitlines()[1] == line
    assert passwd(str(path), "eve", "--password-stdin", typed="x").exit_code == 0
    assert isinstance(load(path).find("eve"), Keys)


def test_it_asks_twice_where_there_is_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def prompt(text: str, *, hide_input: bool, confirmation_prompt: bool, err: bool) -> str:
        assert hide_input
        assert confirmation_prompt
        asked.append(text)
        return "typed"

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr("mqttlite.cli.passwd.sys", type("Sys", (), {"stdin": Terminal()}))
    assert passwd(str(path), "bob").exit_code == 0
    assert asked == ["Password of bob"]
    keys = load(path).scram_keys("bob")
    assert keys == keys_of("typed", keys.salt, ITERATIONS)


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "why"),
    [
        (["{path}", "ann"], "", 2, "use --password-stdin"),
        (["{path}", "ann", "--delete", "--create"], "", 2, "goes with neither"),
        (["{path}", "ann", "--delete", "--password-stdin"], "", 2, "goes with neither"),
        (["{path}", "ann", "--password-stdin", "--iterations", "4095"], "x", 2, "4096"),
        (["{path}", "ann", "--algorithm", "scrypt", "--iterations", "4096"], "x", 2, "scram-sha-256 only"),
        (["{path}", "ann", "--algorithm", "md5"], "x", 2, "is not one of"),
        (["{path}", "ann", "--algorithm", "argon2id", "--password-stdin"], "\n", 1, "the password: it is empty"),
        (["{path}", "ann", "--password-stdin"], "\n", 1, "the password: it is empty"),
        (["{path}", "ann", "--password-stdin"], b"\xff\n", 1, "the password is not UTF-8"),
        (["{path}", "a:b", "--password-stdin"], "x", 1, "may not hold ':'"),
        (["{path}", "eve", "--delete"], "", 1, "has no user 'eve'"),
        (["{path}", "ann", "-c", "--password-stdin"], "x", 1, "exists already"),
        (["{path}.other", "ann", "--password-stdin"], "x", 1, "--create makes it"),
    ],
)
def test_an_impossible_command_is_reported_and_changes_nothing(
    path: Path, arguments: list[str], typed: str | bytes, code: int, why: str
) -> None:
    before = path.read_bytes()
    result = passwd(*(each.format(path=path) for each in arguments), typed=typed)
    assert (result.exit_code, result.stdout) == (code, "")
    assert why in result.stderr
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["users"]
