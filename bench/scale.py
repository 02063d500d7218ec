"""Measures how costs grow with the build that lies in a folder, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.growth import Growth

ROOT: Final = Path(__file__).resolve().parent.parent


def measure(source: Path, *, most: int = 1_000_000) -> Iterator[Growth]:
    """One after the other, as they come."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
    command = [sys.executable, "-P", "-m", "bench.growth", str(most)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield msgspec.json.decode(line, type=Growth)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
