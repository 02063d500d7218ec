"""`tools/run --native`: it shows how far the compiler is, and compiles again only if a source file has changed.

Python and pip are stood in for by a script: to compile takes minutes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

PYTHON = """#!/usr/bin/env bash
case "$*" in
    *"-m venv"*)
        mkdir -p "${@: -1}/bin"
        cp "$0" "${@: -1}/bin/python"
        echo made >"${@: -1}/pyvenv.cfg"
        ;;
    *"pip install"*)
        echo "pip install ${*: -1}" >>"$CALLS"
        echo "Processing ./sources"
        echo "  mqttlite: compiling 1 of 2: mqttlite__mypyc"
        printf '#!/bin/sh\\necho "%s $*"\\n' "$BUILD" >"${0%/python}/mqttlite"
        chmod +x "${0%/python}/mqttlite"
        exit "${PIP_FAILS:-0}"
        ;;
    *tomllib*) echo "starlette>=1" ;;
    *"import starlette"*) exit "${GATEWAY_IS_MISSING:-0}" ;;
    --version) echo "Python 3.11.7" ;;
esac
"""


class Tree:
    """A copy of what `tools/run` needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "run", root / "tools")
        for name in ("pyproject.toml", "setup.py"):
            shutil.copy(ROOT / name, root)
        for name in ("mqttlite", "spark_analytics"):
            (root / name).mkdir()
        self.source = root / "mqttlite" / "a.py"
        self.source.touch()
        self.python = root / "python3"
        self.python.write_text(PYTHON, encoding="utf-8")
        self.python.chmod(0o755)
        self.calls = root / "calls"
        self.calls.touch()

    def run(
        self, build: str = "mqttlite 0.1.0 (compiled, CPython 3.11.7)", *options: str, **environment: str
    ) -> tuple[int, str, str]:
        """The exit code, what went to standard output and what to standard error."""
        done = subprocess.run(
            [self.root / "tools" / "run", "--native", "--port", "2883", *options],
            env={**os.environ, "PYTHON": str(self.python), "CALLS": str(self.calls), "BUILD": build, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def installs(self) -> int:
        return len(self.calls.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.long
def test_it_shows_how_far_the_compiler_is_and_runs_the_broker(tree: Tree) -> None:
    code, output, errors = tree.run()
    assert code == 0, errors
    assert "compiling 1 of 2: mqttlite__mypyc\n" in errors
    assert "Processing" not in errors
    assert ".venv-native/bin/mqttlite sub -p 2883" in output
    assert "(compiled, CPython 3.11.7) serve --port 1883 --tls-port 8883 " in output
    assert not (tree.root / ".venv").exists()


@pytest.mark.long
def test_it_compiles_again_only_if_a_source_file_has_changed(tree: Tree) -> None:
    for installs in (1, 1):
        assert tree.run()[0] == 0
        assert tree.installs() == installs
    tree.source.write_text("x = 1\n", encoding="utf-8")
    assert tree.run()[0] == 0
    assert tree.installs() == 2


@pytest.mark.long
def test_a_build_that_is_not_compiled_is_an_error(tree: Tree) -> None:
    for _ in range(2):
        code, _, errors = tree.run("mqttlite 0.1.0 (pure Python, CPython 3.11.7)")
        assert code == 1
        assert "could not be compiled. It needs a C compiler" in errors
    assert tree.installs() == 2


@pytest.mark.long
def test_the_output_of_pip_is_shown_where_it_fails(tree: Tree) -> None:
    code, _, errors = tree.run(PIP_FAILS="1")
    assert code == 1
    assert "Processing ./sources" in errors
    assert "pip could not install the package" in errors


@pytest.mark.long
@pytest.mark.parametrize("option", [("--http-port", "8080"), ("--http-port=8080",)])
def test_packages_that_an_option_needs_are_installed_where_they_are_missing(
    tree: Tree, option: tuple[str, ...]
) -> None:
    build = "mqttlite 0.1.0 (compiled, CPython 3.11.7)"
    assert tree.run(build, *option)[0] == 0
    assert tree.installs() == 1
    code, _, errors = tree.run(build, *option, GATEWAY_IS_MISSING="1")
    assert code == 0
    assert "Installing what --http-port needs into .venv-native" in errors
    assert tree.calls.read_text(encoding="utf-8").splitlines()[1:] == ["pip install starlette>=1"]
