"""Replaces the content of a file atomically: a reader finds the old content or the new, even after a power cut."""

import os
from contextlib import suppress
from pathlib import Path


def save(path: Path, content: bytes) -> None:
    """Replace the content of a file. Raises `OSError`, which leaves the file unchanged."""
    path = path.resolve()
    new = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            _inherit(descriptor, path)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _inherit(descriptor: int, path: Path) -> None:
    """Keep owner, group and read permissions: the broker may run as another user than the editor."""
    if hasattr(os, "fchown") and path.exists():
        was = path.stat()
        with suppress(PermissionError):
            os.fchown(descriptor, was.st_uid, was.st_gid)
            os.fchmod(descriptor, 0o600 | was.st_mode & 0o060)
