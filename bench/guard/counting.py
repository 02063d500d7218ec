"""Runs the driver inside valgrind and reads how many instructions each piece of work took."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from bench.build import BuildError, compiled

ROOT: Final = Path(__file__).resolve().parents[2]
MARK: Final = Path(__file__).resolve().parent / "mark.c"
LIMIT_S: Final = 300.0
"""Ten times what it takes: a machine that is busy, not one that hangs."""
CALIBRATION: Final = "calibration"
SEARCHES: Final = frozenset({"_int_malloc", "_int_free", "malloc_consolidate", "unlink_chunk", "sysmalloc", "systrim"})
"""The C library's search for free memory takes as long as what ran before, and even the length of a path, makes it."""


class CannotCount(Exception):
    """Nothing can be counted here; the message says what is missing."""


def interpreter(source: Path = ROOT) -> str:
    """Whose instructions they are: figures of two of these cannot be compared closely."""
    compiler = platform.python_compiler().strip()
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {compiler}, "
        f"{platform.system()} {platform.machine()}, {_builder(source)}"
    )


def _builder(source: Path) -> str:
    """The build and, if others made it than the interpreter, who."""
    if build(source) == "pure":
        return "pure"
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-dumpfullversion"], capture_output=True, text=True, timeout=30, check=True
    )
    return f"compiled by mypyc {metadata.version('mypy')} and cc {done.stdout.strip()}"


def build(source: Path) -> str:
    """Which build of the core lies there."""
    return "compiled" if any((source / "mqttlite" / "core").glob("*.so")) else "pure"


def shares(source: Path = ROOT, pieces: Sequence[str] = ()) -> dict[str, float]:
    """What each piece of work costs with the core that lies in `source`, as a multiple of the calibration."""
    chosen = [CALIBRATION, *(name for name in pieces if name != CALIBRATION)] if pieces else []
    counts = count(source, chosen)
    unit = counts.pop(CALIBRATION)
    return {name: round(instructions / unit, 6) for name, instructions in counts.items()}


def count(source: Path, pieces: Sequence[str]) -> dict[str, int]:
    """Instructions of the pieces, of all if none are named."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("valgrind is not installed (Debian, Ubuntu: apt-get install valgrind)")
    try:
        mark = compiled(MARK, flags=("-O2", "-shared", "-fPIC"))
    except BuildError as error:
        raise CannotCount(f"its marks cannot be compiled: {error}") from error
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = Path(name)
        command = [
            valgrind,
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder / 'counts'}",
            sys.executable,
            "-P",  # the folder it is run from is nobody's source
            "-m",
            "bench.guard.driver",
            str(mark),
            *pieces,
        ]
        done = subprocess.run(
            command, env=_environment(source), cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
        )
        if done.returncode != 0:
            raise CannotCount(f"the work failed under valgrind:\n{done.stderr[-2_000:].strip()}")
        dumps = [path.read_text() for path in sorted(folder.glob("counts.*"))]
        if not any(") _int_malloc" in dump for dump in dumps):
            raise CannotCount(
                "the C library's functions have no names here (Debian, Ubuntu: apt-get install libc6-dbg)"
            )
        return dict(map(_read, dumps))


def _environment(source: Path) -> dict[str, str]:
    """The core of `source`, the benchmarks of this tree, hashes that are the same each time, and little else."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join((str(source), str(ROOT))),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _read(dump: str) -> tuple[str, int]:
    """The name of one of callgrind's files, and the sum of its instructions but for `SEARCHES`.

    The format is in valgrind's manual: a function is named in full once, then by its number; behind `calls=` comes what
    the called one took, which is counted where that stands.
    """
    name = re.search(r"^desc: Trigger: Client Request: (.+)$", dump, re.MULTILINE)
    assert name is not None
    names: dict[str, str] = {}
    counted = searched = 0
    is_search = of_another = False
    for line in dump.splitlines():
        if defined := re.match(r"c?fn=(\(\d+\))(?: (.+))?", line):
            number, function = defined.groups()
            names.setdefault(number, (function or "").split(".")[0].split("'")[0])
            if line.startswith("fn="):
                is_search = names[number] in SEARCHES
        elif line.startswith("calls="):
            of_another = True
        elif of_another:
            of_another = False
        elif cost := re.fullmatch(r"(?:[+-]?\d+|\*) (\d+)", line):
            if is_search:
                searched += int(cost[1])
            else:
                counted += int(cost[1])
    total = re.search(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)
    assert total is not None
    assert counted + searched == int(total[1])
    return name[1], counted
