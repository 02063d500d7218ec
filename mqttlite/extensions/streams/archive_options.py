"""The options of the archive of streams."""

import math

import msgspec


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which streams are archived, where, and how much of it is kept."""

    directory: str
    """The folder for the Parquet files."""
    streams: tuple[str, ...] = ()
    """The names of the streams. Empty: all of them."""
    keep_s: float | None = None
    """How long files are kept. Absent: for ever."""
    keep_bytes: int = 10_737_418_240
    """The most bytes of files to keep; the oldest go first. 0: no limit."""

    def __post_init__(self) -> None:
        if not self.directory:
            raise ValueError("directory is empty: it names the folder for the files")
        if self.keep_s is not None and not 3_600 <= self.keep_s < math.inf:
            raise ValueError(f"keep_s is {self.keep_s:g}: 3600 at least, and finite")
        if self.keep_bytes < 0:
            raise ValueError(f"keep_bytes is {self.keep_bytes}: 0 at least")
