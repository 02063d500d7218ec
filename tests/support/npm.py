"""Packages of npm that tests need."""

import fcntl
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.support import tool

INSTALL_S: Final = 300.0


def install(folder: Path, installed: Path) -> None:
    """Install the packages of a folder's package-lock.json, unless the file `installed` shows that they are there.

    One process at a time does so: two would remove each other's files.
    """
    lock = folder / "package-lock.json"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            command = [tool("npm", package="npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            assert done.returncode == 0, done.stderr
            installed.touch()
