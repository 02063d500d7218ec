"""What `mqttlite certs doctor` says of a directory."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main
from mqttlite.security.authority import revoke
from mqttlite.security.certificate_files import load_certificate
from mqttlite.security.certificates import init
from mqttlite.security.findings import Level, has_name
from mqttlite.security.local_examination import examine_directory

NOW = datetime.now(UTC)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    init(tmp_path / "certs", clients=["pump"], now=NOW)
    init(tmp_path / "others", now=NOW)
    return tmp_path / "certs"


def said(directory: Path, level: Level, now: datetime = NOW) -> list[str]:
    return [each.text for each in examine_directory(directory, now, 30) if each.level == level]


def test_a_new_set_has_nothing_wrong(made: Path) -> None:
    assert said(made, Level.PROBLEM) == said(made, Level.WARNING) == []
    assert any("valid for localhost" in text for text in said(made, Level.NOTE))


def copied(name: str, target: str) -> Callable[[Path], None]:
    def copy(directory: Path) -> None:
        (directory / target).write_bytes((directory.parent / "others" / name).read_bytes())

    return copy


SPOILT: list[tuple[Callable[[Path], None], Level, str]] = [
    (copied("server.crt", "server.crt"), Level.PROBLEM, "was not signed by the authority"),
    (copied("server.key", "server.key"), Level.PROBLEM, "is not the key of"),
    (copied("ca.key", "ca.key"), Level.PROBLEM, "is not the key of"),
    (copied("crl.pem", "crl.pem"), Level.PROBLEM, "was not signed by an authority"),
    (copied("server.crt", "ca.crt"), Level.PROBLEM, "is no certificate authority"),
    (lambda directory: (directory / "ca.crt").unlink(), Level.PROBLEM, "certs init"),
    (lambda directory: (directory / "pump.crt").write_text("x"), Level.PROBLEM, "is not a PEM certificate"),
    (lambda directory: (directory / "ca.key").unlink(), Level.NOTE, "nothing can be issued"),
    (lambda directory: (directory / "pump.key").chmod(0o644), Level.WARNING, "can be read by others"),
    (lambda directory: revoke(directory, "pump"), Level.NOTE, "pump.crt is revoked"),
]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
@pytest.mark.parametrize(("spoil", "level", "sentence"), SPOILT)
def test_each_fault_has_its_sentence(made: Path, spoil: Callable[[Path], object], level: Level, sentence: str) -> None:
    assert not any(sentence in text for text in said(made, level))
    spoil(made)
    assert any(sentence in text for text in said(made, level))


@pytest.mark.parametrize(
    ("days", "level", "sentence"),
    [
        (-1, Level.PROBLEM, "is not yet valid"),
        (794, Level.OK, "in date, for 31 more days"),
        (795, Level.WARNING, "expires in 30 days"),
        (825, Level.PROBLEM, "expired on"),
    ],
)
def test_dates_are_compared_with_the_clock(made: Path, days: int, level: Level, sentence: str) -> None:
    ends = load_certificate(made / "pump.crt").not_valid_after_utc
    texts = said(made, level, ends - timedelta(days=825) + timedelta(days=days))
    assert any("pump.crt" in text and sentence in text for text in texts)


@pytest.mark.parametrize(
    ("host", "valid"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("127.0.0.1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("127.0.0.2", False),
        ("a.example.org", True),
        ("a.b.example.org", False),
        ("example.org", False),
        ("org", False),
    ],
)
def test_a_name_is_in_a_certificate_or_not(tmp_path: Path, host: str, valid: bool) -> None:
    init(tmp_path, hosts=["*.example.org"])
    assert has_name(load_certificate(tmp_path / "server.crt"), host) is valid


def test_the_exit_codes_are_for_scripts(made: Path) -> None:
    def doctor() -> int:
        return CliRunner().invoke(main, ["certs", "doctor", "--dir", str(made)]).exit_code

    assert doctor() == 0
    (made / "pump.key").chmod(0o640)
    assert doctor() == 3
    (made / "pump.key").write_text("x")
    assert doctor() == 1
