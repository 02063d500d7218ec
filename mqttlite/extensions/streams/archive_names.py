"""The names of the files of an archive: one for each run of messages of a partition within an hour.

    table=stream/stream=orders/date=2026-11-21/hour=11/part-0003-000000000000-000000049999.parquet

The numbers are the partition and the first and last offset.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = "table=stream"

_NAME: Final = re.compile(r"part-(\d{4})-(\d{12,20})-(\d{12,20})\.parquet")


class File(NamedTuple):
    """A file that is there."""

    last_hour: str
    """Of its messages: date and hour, which sort as times do."""
    path: Path
    size: int
    stream: str
    partition: int
    first: int
    last: int


def find(directory: Path, stream: str = "*") -> list[File]:
    """The files of an archive, in no order, of one stream or of all. Raises `OSError`."""
    found = []
    for path in (directory / FOLDER).glob(f"stream={stream}/date=*/hour=*/part-*.parquet"):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            of, date, hour = (each.partition("=")[2] for each in path.parent.parts[-3:])
            partition, first, last = map(int, name.groups())
            found.append(File(f"{date} {hour}", path, path.stat().st_size, of, partition, first, last))
    return found


def file_name(partition: int, first: int, last: int) -> str:
    return f"part-{partition:04}-{first:012}-{last:012}.parquet"
