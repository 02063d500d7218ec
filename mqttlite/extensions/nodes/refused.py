"""Content that gave way to that of other nodes, in files beside: `<file>.refused`, `<file>.refused-2`, and so on.

Invariant: the newest `MAX_REFUSED` of a file are there, each once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqttlite.files.atomic_file import save

REFUSED: Final = ".refused"
"""Is added to the name of the file."""

MAX_REFUSED: Final = 20
"""How many are kept of a file. Nobody merges more by hand, and some have megabytes. One more replaces the oldest."""


def keep(path: Path, content: bytes) -> str:
    """Keep content of a file; return the name of the file that has it. Raises `OSError`."""
    taken = []
    for each in _names(path):
        if not each.exists():
            break
        if each.read_bytes() == content:  # of an attempt before this one
            return each.name
        taken.append(each)
    else:
        each = min(taken, key=lambda kept: kept.stat().st_mtime_ns)
    save(each, content)
    return each.name


def _names(path: Path) -> Iterator[Path]:
    for number in range(1, MAX_REFUSED + 1):
        yield path.with_name(f"{path.name}{REFUSED}{'' if number == 1 else f'-{number}'}")
