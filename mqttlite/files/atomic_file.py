"""Replaces the content of a file atomically: a reader finds the old content or the new, even after a power cut.

Two writers of one file, such as a broker and `mqttlite passwd`, take turns: each holds a lock of the operating system,
which ends with its process. Windows has no such lock; there, the later of two writers wins. Invariant: each writer has
a temporary file of its own, so a file is never a mixture of two.
"""

import errno
import glob
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

MAX_WAIT_S: Final = 5.0
"""How long a writer waits for another one, which needs some milliseconds on a good disk. Then its write fails, rather
than hold up a thread of the broker."""

_PAUSE_S: Final = 0.005

_NEW: Final = ".new-"
"""Between the name of a file and that of the writer, in the name of a temporary file."""


def save(path: Path, content: bytes) -> None:
    """Replace the content of a file. Raises `OSError`, which leaves the file unchanged."""
    path = path.resolve()  # keep a symbolic link
    if path.exists():
        with changing(path) as replace:
            replace(content)
    else:  # there is nothing that another writer could lose
        _replace(path, content)


@contextmanager
def changing(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Read a file and replace its content, while no other writer can. The function that this gives replaces it.

    It and this raise `OSError`, which leaves the file unchanged.
    """
    path = path.resolve()
    lock = _lock(path)
    try:
        for left in path.parent.glob(f"{glob.escape(path.name)}{_NEW}*"):  # by a crash: nobody else has the lock
            left.unlink(missing_ok=True)
        yield lambda content: _replace(path, content)
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    """A descriptor that locks the file until it is closed; before there is a file, it locks the folder."""
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)
    give_up_at = time.monotonic() + MAX_WAIT_S
    while True:
        lock = os.open(path if path.exists() else path.parent, os.O_RDONLY)
        if _is_locked(lock) and _is_still(lock, path):
            return lock
        os.close(lock)
        if time.monotonic() >= give_up_at:
            raise OSError(errno.EBUSY, "another change of it is under way", str(path))
        time.sleep(_PAUSE_S)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _is_still(lock: int, path: Path) -> bool:
    """Whether the lock is that of the file that is there now: another writer may have replaced it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), (path if path.exists() else path.parent).stat())
    return False


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}{_NEW}{secrets.token_hex(8)}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
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
