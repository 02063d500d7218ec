"""Whether the dataset's folder can be written: asked before the broker starts, for later it could only be logged.

Invariant: `check_directory` changes nothing on the disk.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

from mqttlite.telemetry.options import Options, TelemetryError

PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors that end without anybody's help to the configuration: the writer tries again until they do."""


def check_directory(options: Options) -> None:
    """Raises `TelemetryError` for a folder that is not there and cannot be made, or that cannot be written."""
    path = Path(options.directory).absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir():
        raise TelemetryError("directory", f"{path}: {existing} is a file; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise TelemetryError("directory", f"{path}: this user may not write to {existing}; name another folder")


def make_directory(options: Options) -> None:
    """Make the folder, and write to it once. Raises `TelemetryError` if that will never work."""
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
