"""Checks before the start of the broker whether the dataset's folder can be written.

Invariant: `check_directory` changes nothing on the disk.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

from mqttlite.telemetry.options import Options, TelemetryError

PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors that may end without a change of the configuration: the writer retries."""


def check_directory(options: Options) -> None:
    """Raises `TelemetryError` for a folder that cannot be created or written."""
    reason = why_unwritable(Path(options.directory))
    if reason:
        raise TelemetryError("directory", reason)


def why_unwritable(folder: Path) -> str:
    """Why a folder cannot be created or written; empty if it can. Nothing is created."""
    path = folder.absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir():
        return f"{path}: {existing} is a file; name a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{path}: this user may not write to {existing}; name another folder"
    return ""


def make_directory(options: Options) -> None:
    """Create the folder and test a write. Raises `TelemetryError` for a permanent error."""
    path = Path(options.directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError):
        raise TelemetryError("directory", f"{path}: there is a file of that name; name a folder") from None
    except OSError as error:
        if error.errno not in PASSING:
            reason = error.strerror or str(error)
            raise TelemetryError("directory", f"{path} cannot be written: {reason}; name another folder") from None
