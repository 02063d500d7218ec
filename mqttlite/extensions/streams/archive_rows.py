"""Reads the messages of an archive. It imports nothing of the broker.

Invariants: the messages of a partition come by their offsets; a file that is not as the broker wrote it raises, and is
never skipped.
"""

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqttlite.extensions.streams.archive_names import File

ROWS_AT_ONCE: Final = 500
"""How many rows are decoded at a time. The compressed file is in memory meanwhile: about 16 MiB at most, as the archive
writes it."""

_COLUMNS: Final = ("partition", "offset", "message_id", "topic", "payload", "content_type", "user_properties")


class BrokenFile(Exception):
    """A file that cannot be read, or is not what its name says. The text names it, and says why."""


class Row(NamedTuple):
    """A message of an archive."""

    partition: int
    offset: int
    message_id: int
    topic: str
    payload: bytes
    content_type: str | None
    user_properties: list[tuple[str, str]]


def in_order(files: Iterable[File]) -> list[File]:
    """The files of a stream hour by hour, and those of a partition by their offsets, also where the clock went back."""
    partitions: dict[int, list[File]] = {}
    for each in sorted(files, key=lambda each: (each.first, each.last)):
        partitions.setdefault(each.partition, []).append(each)
    return list(heapq.merge(*partitions.values(), key=lambda each: (each.last_hour, each.partition)))


def rows(file: File, first: int) -> Iterator[Row]:
    """The messages of a file from an offset on. Raises `BrokenFile`, perhaps behind some of them."""
    import pyarrow
    import pyarrow.parquet

    latest = file.first - 1
    try:
        with pyarrow.parquet.ParquetFile(file.path) as parquet:
            missing = [each for each in _COLUMNS if each not in parquet.schema_arrow.names]
            if missing:
                raise BrokenFile(f"{file.path} cannot be used: it has no column {missing[0]}")
            for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=list(_COLUMNS)):
                for each in batch.to_pylist():
                    row = _row(file.path, each)
                    if row.partition != file.partition or not latest < row.offset <= file.last:
                        raise BrokenFile(
                            f"{file.path} cannot be used: partition {row.partition}, offset {row.offset} is not what "
                            "its name says, or not in order"
                        )
                    latest = row.offset
                    if row.offset >= first:
                        yield row
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise BrokenFile(f"{file.path} cannot be read: {reason}") from None


def _row(path: Path, found: dict[str, Any]) -> Row:
    empty = [each for each in _COLUMNS if found[each] is None and each != "content_type"]
    if empty:
        raise BrokenFile(f"{path} cannot be used: the column {empty[0]} of a row is null")
    properties = [(each["name"], each["value"]) for each in found["user_properties"]]
    return Row(**{**found, "user_properties": properties})
