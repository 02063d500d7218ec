"""Writes the files of an archive, and removes old ones. Their names are in `archive_names`.

Invariants: a file is complete when it has its name; the names alone say how far the archive goes, so that after a crash
no message is in two files.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mqttlite.core.message import Message
from mqttlite.extensions.streams.archive_names import FOLDER, File, file_name, find
from mqttlite.extensions.streams.archive_options import ArchiveOptions
from mqttlite.extensions.streams.stream import ORDERING_KEY
from mqttlite.files import atomic_file

HOUR_US: Final = 3_600_000_000

_log: Final = logging.getLogger("mqttlite.archive")


class ArchiveFiles:
    """Those of one directory. Its methods block: they are for a thread."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._options: Final = options
        self._directory: Final = Path(options.directory)

    def find(self) -> list[File]:
        """Those that are there. Raises `OSError`."""
        return find(self._directory)

    def write(self, stream: str, partition: int, first: int, last: int, messages: Sequence[tuple[int, Message]]) -> int:
        """Write the messages of one hour, with their offsets, between `first` and `last`. Return the bytes of the file.
        Raises `OSError`."""
        at = datetime.fromtimestamp(messages[0][1].number / 1_000_000, UTC)
        folder = self._directory / FOLDER / f"stream={stream}" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        content = encoded(partition, messages)
        atomic_file.save(folder / file_name(partition, first, last), content)
        return len(content)

    def remove_old(self, now_us: int) -> None:
        """Remove what is older or more than is kept, but not the newest file of a partition, which says where its
        archive ends. Raises `OSError`."""
        files = sorted(self.find())
        newest = {(each.stream, each.partition): each.path for each in sorted(files, key=lambda each: each.last)}
        keep_s, keep_bytes = self._options.keep_s, self._options.keep_bytes
        oldest = ""
        if keep_s is not None:
            oldest = f"{datetime.fromtimestamp(now_us / 1_000_000 - keep_s - 3_600, UTC):%Y-%m-%d %H}"
        size = sum(each.size for each in files)
        removed = 0
        for each in files:
            is_over = 0 < keep_bytes < size
            if not is_over and each.last_hour > oldest:
                break
            if newest[each.stream, each.partition] != each.path:
                each.path.unlink(missing_ok=True)
                size -= each.size
                removed += 1
        if removed:
            _log.info("%d files of the archive of streams were removed: keep_s or keep_bytes is reached", removed)


def encoded(partition: int, messages: Sequence[tuple[int, Message]]) -> bytes:
    """The messages of a partition as Parquet."""
    import pyarrow
    import pyarrow.parquet

    properties = [message.properties for _offset, message in messages]
    columns: dict[str, tuple[Any, list[Any]]] = {
        "partition": (pyarrow.int32(), [partition] * len(messages)),
        "offset": (pyarrow.int64(), [offset for offset, _message in messages]),
        "message_id": (pyarrow.int64(), [message.number for _offset, message in messages]),
        "published_at": (pyarrow.timestamp("us", tz="UTC"), [message.number for _offset, message in messages]),
        "topic": (pyarrow.string(), [message.topic.decode() for _offset, message in messages]),
        "key": (pyarrow.string(), [_key(each.user_properties) for each in properties]),
        "payload": (pyarrow.binary(), [message.payload for _offset, message in messages]),
        "qos": (pyarrow.int32(), [message.qos for _offset, message in messages]),
        "content_type": (pyarrow.string(), [each.content_type for each in properties]),
        "user_properties": (
            pyarrow.list_(pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.string())])),
            [[{"name": name, "value": value} for name, value in each.user_properties] for each in properties],
        ),
    }
    table = pyarrow.table(
        [pyarrow.array(values, kind) for kind, values in columns.values()],
        schema=pyarrow.schema([(name, kind) for name, (kind, _values) in columns.items()]),
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _key(properties: Sequence[tuple[str, str]]) -> str | None:
    """The ordering key, if a message has one."""
    return next((value for name, value in properties if name == ORDERING_KEY), None)
