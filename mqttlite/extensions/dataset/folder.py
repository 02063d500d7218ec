"""Checks before the start of the broker whether the dataset's folder can be written.

Invariant: `check_directory` changes nothing on the disk.
"""

import errno
import tempfile
from pathlib import Path
from typing import Final

from mqttlite.extensions.dataset.options import TelemetryError, TelemetryOptions
from mqttlite.files.writable import why_unwritable

PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors that may end without a change of the configuration: the writer retries."""


def check_directory(options: TelemetryOptions) -> None:
    """Raises `TelemetryError` for a folder that cannot be created or written."""
    reason = why_unwritable(Path(options.directory))
    if reason:
        raise TelemetryError("directory", reason)


def make_directory(options: TelemetryOptions) -> None:
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
