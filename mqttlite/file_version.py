"""Tells whether a file has changed since somebody looked."""

import os
from pathlib import Path
from typing import Final

Version = tuple[int, int, int]

NO_FILE: Final = (0, 0, 0)
"""The version of a file that is not there."""


def version_of(path: str | Path | None) -> Version:
    """Another one for another content or other rights, as far as the file system tells."""
    if path is None:
        return NO_FILE
    try:
        found = os.stat(path)
    except OSError:
        return NO_FILE
    return found.st_ctime_ns, found.st_size, found.st_ino
