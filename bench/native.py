"""The compiled build of this very source tree, made when it is first asked for and again when the source changed.

It lies in a copy, because compiled modules among the sources would hide later edits.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.build import BUILD, BuildError

ROOT: Final = Path(__file__).resolve().parent.parent
PROJECT: Final = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
LIMIT_S: Final = 900.0
"""A minute on a quiet machine."""


def tree(root: Path = ROOT, build: Path = BUILD) -> Path:
    """A folder whose `mqttlite` is this one, compiled."""
    copy = build / f"native-{_digest(root)}"
    if not (copy / "done").exists():
        for stale in build.glob("native-*"):
            shutil.rmtree(stale)
        _copy(root, copy)
        _compile(copy)
        (copy / "done").touch()
    return copy


def _digest(root: Path) -> str:
    """Of all that compiling may depend on: which modules are compiled is for setup.py to say."""
    told = hashlib.sha256(sys.version.encode())
    for path in (root / "setup.py", *sorted((root / "mqttlite").rglob("*.py"))):
        told.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _copy(root: Path, copy: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(root / "mqttlite", copy / "mqttlite", ignore=ignored, dirs_exist_ok=True)
    for name in PROJECT:
        shutil.copy2(root / name, copy / name)


def _compile(copy: Path) -> None:
    print("Compiling mqttlite, which takes a minute ...", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=copy,
        env={**os.environ, "MQTTLITE_PURE": "0"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0 or not any((copy / "mqttlite" / "core").glob("*.so")):
        raise BuildError(f"the compiled build cannot be made here: {(done.stdout + done.stderr)[-500:].strip()}")
