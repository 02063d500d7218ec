"""Removes old files of the dataset, and the oldest ones when there are too many bytes.

Invariant: it removes only complete files with the name of a part in the folders of the dataset's tables, and folders
that this emptied.
"""

import contextlib
import re
import stat
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.parts import Disk, hours_of, names_in
from mqttlite.extensions.dataset.tables import TABLES

_PART: Final = re.compile(r"part-[A-Za-z0-9_-]+-\d{6,}\.(jsonl|parquet)$")

_HOUR_S: Final = 3600


class Retention:
    """One look at a time at all the files. What a folder held is remembered while the folder does not change."""

    def __init__(self, options: TelemetryOptions, disk: Disk) -> None:
        self._directory: Final = Path(options.directory)
        self._keep_s: Final = options.keep_s
        self._keep_bytes: Final = options.keep_bytes
        self._disk: Final = disk
        self._sizes: dict[Path, tuple[int, int]] = {}
        """Of each folder, when it last changed and how many bytes it held then."""

    @property
    def is_limited(self) -> bool:
        return self._keep_s is not None or self._keep_bytes > 0

    def sweep(self, now: float) -> Iterator[None]:
        """Remove what need not be kept, in steps; `now` is the time of day, in seconds since 1970."""
        hours = [
            (at, folder) for table in TABLES for folder in hours_of(self._directory, table) if (at := _hour(folder))
        ]
        hours.sort()
        if self._keep_s is not None:
            for at, folder in hours:
                if at + _HOUR_S + self._keep_s >= now:
                    break
                yield from self._remove(folder, None)
        if self._keep_bytes:
            sizes: dict[Path, tuple[int, int]] = {}
            for _, folder in hours:
                with contextlib.suppress(FileNotFoundError):
                    sizes[folder] = self._size(folder)
                yield
            self._sizes = sizes
            excess = sum(size for _, size in sizes.values()) - self._keep_bytes
            for _, folder in hours:
                if excess <= 0:
                    break
                excess -= yield from self._remove(folder, excess)

    def _size(self, folder: Path) -> tuple[int, int]:
        changed = folder.stat().st_mtime_ns
        known = self._sizes.get(folder)
        if known is not None and known[0] == changed:
            return known
        return changed, sum(size for _, size, _ in _parts(folder))

    def _remove(self, folder: Path, excess: int | None) -> Generator[None, None, int]:
        """Remove a folder's files, oldest first, until `excess` bytes are gone (None: all); returns how many were."""
        gone = 0
        for _, size, path in _parts(folder):
            if excess is not None and gone >= excess:
                return gone
            self._disk.unlink(path)
            gone += size
            yield
        if gone:
            with contextlib.suppress(OSError):  # something else is in it
                folder.rmdir()
                folder.parent.rmdir()
        return gone


def _hour(folder: Path) -> float:
    """When the hour of a folder begins; 0 if it is no folder of ours."""
    try:
        at = datetime.strptime(f"{folder.parent.name} {folder.name}", "date=%Y-%m-%d hour=%H")
    except ValueError:
        return 0
    return at.replace(tzinfo=UTC).timestamp()


def _parts(folder: Path) -> list[tuple[int, int, Path]]:
    """When each of a folder's complete files was written, how many bytes it has, and its path; the oldest first."""
    found = []
    for name in names_in(folder):
        if _PART.match(name):
            path = folder / name
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, status.st_size, path))
    return sorted(found)
