"""pytest on all test files, several processes side by side, each with a share of the files; arguments go to each.
With `--parts=A,B` as the first argument only the files of these parts, and of those that take turns today's half.

pytest-xdist hands out single tests, for which every process must know all of them, and tells of each of them: with
thousands of tests that are over in milliseconds it takes a quarter of the time.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.never_quick import AFTER_CORE, QUICK, is_left_out
from tests.support.turns import runs_today

PYTEST: Final = (sys.executable, "-m", "pytest")

MEMORY: Final = Path("/dev/shm")

ROOM_BYTES: Final = 1 << 30
"""The files of all tests take a tenth of it."""

PYCACHE: Final = Path(sys.prefix) / "pycache"
"""Compiled modules and tests, also where Python is told to write nothing beside the sources: to compile them again
takes each process seven seconds."""

SHARES: Final = 3
"""More than a small machine has processors: some tests wait, and no two shares take the same time."""


def run(arguments: list[str]) -> int:
    """Print what each process said when it is done; return the highest exit code."""
    parts: list[str] = []
    if arguments[:1] and arguments[0].startswith("--parts="):
        parts = arguments.pop(0).removeprefix("--parts=").split(",")
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        os.environ["TMPDIR"] = str(MEMORY)  # thousands of tests make files, and databases are synced
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(PYCACHE)
    paths = sorted(Path("tests").rglob("test_*.py"))
    files = [str(path) for path in paths if not parts or any(runs_today(path, part) for part in parts)]
    for expression in {QUICK, AFTER_CORE} & set(arguments):  # pytest would import each file that is named
        files = [each for each in files if not is_left_out(Path(each).absolute(), expression)]
    shares = dealt(files)
    with ExitStack() as open_files:
        said = [open_files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(SHARES)]
        running = [
            subprocess.Popen([*PYTEST, *arguments, *share], stdout=out, stderr=subprocess.STDOUT)
            for share, out in zip(shares, said, strict=True)
        ]
        codes = []
        for process, out in zip(running, said, strict=True):
            codes.append(process.wait())
            out.seek(0)
            print(out.read(), end="", flush=True)
    return max(abs(code) for code in codes)


def dealt(files: list[str]) -> list[list[str]]:
    """The files of each share. Those whose marks say that some test takes long are dealt first, so that no share gets
    many of them."""
    ranks = {}
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        ranks[file] = 0 if "mark.reaches" in text else 1 if "mark.long" in text else 2
    in_order = sorted(files, key=ranks.__getitem__)
    return [in_order[share::SHARES] for share in range(SHARES)]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
