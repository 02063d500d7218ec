"""`tools/test --help` and its like say what they do, and do nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["test", "--help"], "Runs every test: "),
        (["test", "-h"], "Runs every test: "),
        (["check", "--help"], "Runs every test: "),
        (["run", "--help"], "Runs the broker here"),
        (["docs", "--help"], "Builds the documentation's site"),
        (["docs", "-h"], "Builds the documentation's site"),
        (["native", "--help"], "Runs the tests on the compiled build"),
        (["mutate", "--help"], "Mutation testing"),
        (["conformance", "--help"], "Plays every row"),
        (["device", "--help"], "Runs tools/devices/device.py"),
        (["fleet", "--help"], "Runs tools/devices/fleet.py"),
        (["telemetry_gen", "--help"], "Runs tools/telemetry"),
        (["wheels", "--help"], "Builds the sdist"),
    ],
)
def test_help_only_helps(tmp_path: Path, arguments: list[str], begins: str) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("run", arguments[0], "test"):
        shutil.copy(TOOLS / name, tmp_path / "tools" / name)
    programs = tmp_path / "bin"  # nothing else can be run: neither Python nor apt-get
    programs.mkdir()
    for name in ("bash", "sed", "dirname"):
        found = shutil.which(name)
        assert found is not None
        os.symlink(found, programs / name)
    result = subprocess.run(
        [tmp_path / "tools" / arguments[0], *arguments[1:]],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(begins)
    assert sorted(os.listdir(tmp_path)) == ["bin", "tools"]
