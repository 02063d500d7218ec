"""The number of the latest commit, in a small file beside the database that is written without a sync.

After `kill -9` it is exact; after a power cut it may be too low. So a database with a lower number has lost
acknowledged commits, also where its journal was cut off or deleted.
"""

import contextlib
import zlib
from pathlib import Path
from typing import IO, Final

SUFFIX: Final = "-committed"

UNKNOWN: Final = -1


class CommitMark:
    """The file is made when it is first written."""

    def __init__(self, database: Path) -> None:
        self.path: Final = database.with_name(database.name + SUFFIX)
        self._file: IO[bytes] | None = None

    def read(self) -> int:
        """The number of the latest acknowledged commit, or a lower one; `UNKNOWN` if there is no valid file."""
        try:
            number, _, checksum = self.path.read_bytes().partition(b" ")
            return int(number) if checksum == _checksum(number) else UNKNOWN
        except (OSError, ValueError):
            return UNKNOWN

    def write(self, number: int) -> None:
        """Note a commit. A failure is ignored: a lower number is still true."""
        with contextlib.suppress(OSError):
            if self._file is None:
                self.path.touch(0o600)
                self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115 held until `close`
            digits = b"%019d" % number
            self._file.seek(0)
            self._file.write(digits + b" " + _checksum(digits))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _checksum(digits: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(digits)
