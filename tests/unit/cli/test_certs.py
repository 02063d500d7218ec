"""`mqttlite certs init` at the terminal: what it prints and how it ends."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.security import certificates


def certs(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["certs", "init", *arguments])


def test_it_prints_the_new_files_and_the_lines_to_paste(tmp_path: Path) -> None:
    result = certs("--dir", str(tmp_path / "my certs"), "--client", "device", "--host", "broker.example")
    assert result.exit_code == 0
    assert result.stdout.count("made  ") == 3
    assert "broker.example" in result.stdout
    assert f"--cafile '{tmp_path}/my certs/ca.crt' --crl '{tmp_path}/my certs/crl.pem'" in result.stdout
    for line in ("mqttlite serve --tls-port 8883", "mqttlite sub -h localhost -p 8883", "mqttlite pub -h localhost"):
        assert line in result.stdout


def test_it_works_in_the_directory_certs_when_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert certs().exit_code == 0
    assert (tmp_path / "certs" / "server.key").exists()


def test_a_second_run_names_the_files_that_it_kept(tmp_path: Path) -> None:
    certs("--dir", str(tmp_path), "--client", "device")
    result = certs("--dir", str(tmp_path), "--client", "device", "--client", "gauge")
    assert result.exit_code == 0
    assert result.stdout.count("kept  ") == 3
    assert f"made  {tmp_path}/gauge.crt and gauge.key  (client gauge; until " in result.stdout


def test_a_kept_certificate_without_its_key_here_is_told_apart(tmp_path: Path) -> None:
    certs("--dir", str(tmp_path))
    (tmp_path / "ca.key").unlink()
    assert f"kept  {tmp_path}/ca.crt  (certificate authority; until " in certs("--dir", str(tmp_path)).stdout


@pytest.mark.parametrize("is_authority", [False, True])
def test_an_expired_certificate_is_reported_with_the_remedy(tmp_path: Path, is_authority: bool) -> None:
    ca_days = 3_650 if is_authority else 36_500
    certificates.init(tmp_path, ca_days=ca_days, now=datetime(2001, 1, 1, tzinfo=UTC))
    result = certs("--dir", str(tmp_path))
    assert result.exit_code == 3
    assert "EXPIRED 2002-02-01)" in result.stdout
    assert "Next:" not in result.stdout
    renewal = f"certs renew server --dir {tmp_path}"
    assert ("make a new set in an empty directory" if is_authority else f"  mqttlite {renewal}\n") in result.stderr
    renewed = CliRunner().invoke(main, renewal.split())
    assert (renewed.exit_code, certs("--dir", str(tmp_path)).exit_code) == ((1, 3) if is_authority else (0, 0))


def test_a_refusal_is_one_sentence_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("")
    result = certs("--dir", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "ca.key exists without ca.crt" in result.stderr


@pytest.mark.parametrize("days", ["0", "-1", "36501", "many"])
def test_impossible_days_are_wrong_usage(tmp_path: Path, days: str) -> None:
    assert certs("--dir", str(tmp_path), "--days", days).exit_code == 2


def test_the_help_lists_the_exit_codes() -> None:
    assert "Exit codes: 0" in certs("--help").stdout


def test_the_group_lists_every_command_and_loads_none() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert [name for name in ("serve", "pub", "sub", "certs") if f"  {name} " in result.stdout] == [
        "serve",
        "pub",
        "sub",
        "certs",
    ]


def test_an_unknown_command_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["publish"])
    assert result.exit_code == 2
    assert "No such command 'publish'" in result.stderr


def test_the_version_says_how_the_ground_floor_runs() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("mqttlite ")
    assert "pure Python" in result.stdout or "compiled" in result.stdout


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["certs", *arguments])


def test_the_life_of_a_client_certificate(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path))
    certs("--dir", str(tmp_path))
    assert "gauge.crt and gauge.key" in run("issue", "gauge", *where).stdout
    assert run("issue", "gauge", *where).exit_code == 1
    assert run("renew", *where).stdout == "Nothing ends within 30 days.\n"
    assert "renewed  " in run("renew", "gauge", *where).stdout
    revoked = run("revoke", "gauge", *where)
    assert revoked.stdout.count("revoked  ") == 2
    assert f"{tmp_path}/crl.pem" in revoked.stdout
    lines = [json.loads(line) for line in run("list", "--json", *where).stdout.splitlines()]
    assert [each["name"] for each in lines] == ["ca", "gauge", "gauge", "server"]
    assert [each["revoked_at"] is None for each in lines] == [True, False, False, True]
    rows = [line.split("\t") for line in run("list", *where).stdout.splitlines()]
    assert [(name, purpose) for name, purpose, _ends, _state, _serial, _hosts in rows] == [
        *(("ca", "authority"), ("gauge", "client"), ("gauge", "client"), ("server", "server")),
    ]


@pytest.mark.parametrize("command", [["list"], ["renew"], ["revoke", "gauge"], ["issue", "gauge"]])
def test_without_an_authority_each_command_fails_in_one_sentence(tmp_path: Path, command: list[str]) -> None:
    result = run(*command, "--dir", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
