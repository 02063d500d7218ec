"""What is installed: the sdist, the wheels, and what setup.py says while it compiles."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

NEEDED = ("mqttlite", "packaging", "spark_analytics", "tools")
LIMIT_S = 400.0


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what distributions are made of: to build one leaves folders among the sources."""
    copy = tmp_path / "sources"
    for name in NEEDED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)
    (copy / "docs").mkdir()
    return copy


def run(sources: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=sources,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.slow
def test_the_sdist_and_the_pure_wheel_pass_every_check(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "dist"
    done = run(sources, "-m", "tools.distributions", "--pure", "--out", str(out), PYTHONPATH="")
    assert done.returncode == 0, done.stdout
    for line in (
        "check-wheel-contents: ",
        "the pure build, delivers messages.",
        "100 % of the types are known",
        "cibuildwheel: 16 wheels on linux",
        "twine check --strict: ",
    ):
        assert line in done.stdout
    sdist, wheel = sorted(out.iterdir(), reverse=True, key=lambda path: path.suffix == ".gz")
    assert sdist.name.endswith(".tar.gz")
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_a_missing_module_is_noticed(sources: Path, tmp_path: Path) -> None:
    text = (sources / "pyproject.toml").read_text(encoding="utf-8")
    (sources / "pyproject.toml").write_text(text.replace('"spark_analytics*"', ""), encoding="utf-8")
    done = run(sources, "-m", "tools.distributions", "--pure", "--out", str(tmp_path / "dist"), PYTHONPATH="")
    assert done.returncode == 1
    assert "has not spark_analytics/" in done.stdout
    assert not list((tmp_path / "dist").iterdir())


def compile_one_layer(sources: Path) -> None:
    """Let setup.py translate `wire` alone, which takes seconds instead of minutes: the compiler fails all the same.

    The package's own file names public classes of all layers, and mypyc would look at each.
    """
    text = (sources / "setup.py").read_text(encoding="utf-8")
    for part, instead in (
        ('("wire", "topics", "log", "core")', '("wire",)'),
        ("    files += [*COMPILED_ADAPTERS, *modules_of_extensions()]\n", ""),
    ):
        assert text.count(part) == 1
        text = text.replace(part, instead)
    (sources / "setup.py").write_text(text, encoding="utf-8")
    (sources / "mqttlite" / "__init__.py").write_text("", encoding="utf-8")


@pytest.mark.slow
def test_a_compiler_that_fails_leaves_the_pure_modules(sources: Path) -> None:
    compile_one_layer(sources)
    command = ("-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".")
    done = run(sources, *command, CC="false", MQTTLITE_PURE="0")
    assert done.returncode == 0, done.stdout
    said = [line.removeprefix("mqttlite: ") for line in done.stdout.splitlines() if line.startswith("mqttlite: ")]
    assert said[0].startswith("translating ")
    assert said[1].startswith("compiling 1 of ")
    assert said[1].endswith("which takes a minute or two")
    assert said[-1].startswith("the C compiler failed, see above: nothing is compiled")
    (wheel,) = (sources / "dist").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert "mqttlite/core/broker.py" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MQTTLITE_PURE": "1"}, "mqttlite: MQTTLITE_PURE=1: nothing is compiled"),
        ({"MQTTLITE_PURE": "0", "CC": "no-such-compiler"}, "mqttlite: there is no C compiler (no-such-compiler): "),
    ],
)
def test_uncompiled_modules_are_reported(sources: Path, environment: dict[str, str], said: str) -> None:
    done = run(sources, "setup.py", "--quiet", "build_ext", "--inplace", **environment)
    assert done.returncode == 0, done.stdout
    assert said in done.stdout
    assert not list(sources.rglob("*.so"))


@pytest.mark.slow
def test_type_checkers_see_an_editable_install(tmp_path: Path) -> None:
    """They read the paths of `.pth` files, and run no import hooks."""
    hook = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", hook, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MQTTLITE_PURE": "1"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (pth,) = [name for name in content.namelist() if name.endswith(".pth")]
        assert content.read(pth).decode().splitlines() == [str(ROOT)]
        assert not [name for name in content.namelist() if name.endswith("_finder.py")]
