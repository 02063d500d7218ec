"""Detects changes of a file."""

import os
from pathlib import Path
from typing import Final

Version = tuple[int, int, int]

NO_FILE: Final = (0, 0, 0)
"""The version of a missing file."""


def version_of(path: str | Path | None) -> Version:
    """A value that changes with the content or permissions of a file, as far as the file system shows."""
    if path is None:
        return NO_FILE
    try:
        found = os.stat(path)
    except OSError:
        return NO_FILE
    return found.st_ctime_ns, found.st_size, found.st_ino
