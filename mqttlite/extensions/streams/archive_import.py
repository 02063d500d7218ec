"""Appends the messages of an archive to a stream of a running broker, and remembers how far it is.

Invariants: a message has the same `dedup-id` in every run, so that the stream appends it once; what the file of
progress says is on the broker's disk. The file is at most one request behind, far less than the ids that a stream
remembers: both together hold for archives of any size.
"""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqttlite.extensions.streams.archive_names import File
from mqttlite.extensions.streams.archive_rows import BrokenFile, Row, in_order, rows
from mqttlite.extensions.streams.limits import MAX_APPENDED
from mqttlite.files import atomic_file

MAX_REQUEST_BYTES: Final = 1_048_576
"""About the most bytes of a request, but for one message that is larger: what is in memory at a time."""

_FIELDS_BYTES: Final = 250
_ESCAPED: Final = 6
"""Bytes of a character of a text in JSON, at most."""

Send = Callable[[list[dict[str, Any]]], dict[str, Any]]
"""Sends the messages of a request, and returns the answer of `append_routes`."""


class RequestRefused(Exception):
    """The broker takes no message of a request. The text is a sentence that says why."""


class ImportStopped(Exception):
    """A broken file, or a message that the stream refuses. The text names it. What came before is imported."""


@dataclass
class Progress:
    """How far an archive is imported into a stream, in a file."""

    path: Path
    stream: str
    into: str
    end: int = 0
    """How many offsets the stream had given then: fewer now, and it is another stream of that name."""
    positions: dict[int, int] = field(default_factory=dict)
    """By partition of the archive: the offset of the first message that is not imported."""

    @classmethod
    def load(cls, path: Path, stream: str, into: str) -> "Progress":
        """As the file says; at the beginning if there is none. Raises `ImportStopped`."""
        try:
            found = json.loads(path.read_bytes())
            positions = {int(partition): int(offset) for partition, offset in found["positions"].items()}
            loaded = cls(path, str(found["stream"]), str(found["into"]), int(found["end"]), positions)
        except FileNotFoundError:
            return cls(path, stream, into)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ImportStopped(f"{path} does not say how far an import is: {error}; remove it to begin anew") from None
        if (loaded.stream, loaded.into) != (stream, into):
            raise ImportStopped(f"{path} is about the import of {loaded.stream} into {loaded.into}: name another file")
        return loaded

    def save(self) -> None:
        """Raises `ImportStopped`."""
        content = {"stream": self.stream, "into": self.into, "end": self.end, "positions": self.positions}
        try:
            atomic_file.save(self.path, json.dumps(content).encode())
        except OSError as error:
            raise ImportStopped(
                f"{self.path} cannot be written: {error.strerror}; name another file with --progress"
            ) from None


@dataclass
class Counts:
    """What became of the messages of an archive in this run."""

    appended: int = 0
    known: int = 0
    """The stream had them already."""
    missing: int = 0
    """Offsets between files that no file has."""


class ArchiveImport:
    """One run. `tell` is called after each request."""

    def __init__(self, progress: Progress, send: Send, tell: Callable[[Counts], None]) -> None:
        self._progress: Final = progress
        self._send: Final = send
        self._tell: Final = tell
        self.counts: Final = Counts()
        self._waiting: Final[list[tuple[File, Row]]] = []
        """The messages of the next request."""
        self._bodies: Final[list[dict[str, Any]]] = []
        self._size = 0
        self._read: Final[dict[int, int]] = {}
        """By partition: the offset behind the files that were read since the last request."""

    def run(self, files: Iterable[File]) -> None:
        """Import what the files have and the progress does not. Raises `ImportStopped`, and what `send` raises."""
        try:
            for file in in_order(files):
                self._file(file)
        except BrokenFile as error:
            self._flush()
            raise ImportStopped(f"{error}. What comes before is imported; mend the file, and run it again") from None
        self._flush()

    def _file(self, file: File) -> None:
        position = self._read.get(file.partition, self._progress.positions.get(file.partition, 0))
        if file.last < position:
            return
        if position:
            self.counts.missing += max(0, file.first - position)
        for row in rows(file, position):
            body = self._body(row)
            size = _size(body)
            if self._waiting and (len(self._waiting) >= MAX_APPENDED or self._size + size > MAX_REQUEST_BYTES):
                self._flush()
            self._waiting.append((file, row))
            self._bodies.append(body)
            self._size += size
        self._read[file.partition] = file.last + 1

    def _flush(self) -> None:
        """Send what waits, and remember that."""
        progress = self._progress
        answer = self._answer() if self._bodies else None
        if answer is not None:
            self.counts.appended += answer["appended"]
            self.counts.known += answer["known"]
            progress.end = answer["end"]
            taken = answer["appended"] + answer["known"]
            for _file, row in self._waiting[:taken]:
                progress.positions[row.partition] = row.offset + 1
            if answer["refused"]:
                progress.save()
                file, row = self._waiting[taken]
                raise ImportStopped(
                    f"offset {row.offset} of partition {row.partition}, in {file.path}, is refused: "
                    f"{answer['refused']}. What comes before is imported"
                )
        if answer is None and not self._read:
            return
        for partition, offset in self._read.items():
            progress.positions[partition] = max(offset, progress.positions.get(partition, 0))
        progress.save()
        self._waiting.clear()
        self._bodies.clear()
        self._read.clear()
        self._size = 0
        self._tell(self.counts)

    def _answer(self) -> dict[str, Any]:
        try:
            return self._send(self._bodies)
        except RequestRefused as error:
            file, row = self._waiting[0]
            raise ImportStopped(
                f"the messages from offset {row.offset} of partition {row.partition} on, in "
                f"{file.path}, cannot be sent: {error} What comes before is imported"
            ) from None

    def _body(self, row: Row) -> dict[str, Any]:
        """A message, as `append_routes` takes it. What was published to the stream itself is published to the one that
        it is imported into."""
        progress = self._progress
        topic = f"$stream/{progress.into}" if row.topic == f"$stream/{progress.stream}" else row.topic
        return {
            "topic": topic,
            "payload": base64.b64encode(row.payload).decode(),
            "dedup_id": f"import/{progress.stream}/{row.partition}:{row.offset}/{row.message_id}",
            "partition": row.partition,
            "content_type": row.content_type,
            "user_properties": row.user_properties,
        }


def _size(body: dict[str, Any]) -> int:
    """About the bytes of a message in JSON, rather too many."""
    texts = len(body["topic"]) + sum(len(name) + len(value) for name, value in body["user_properties"])
    return _FIELDS_BYTES + len(body["payload"]) + _ESCAPED * (texts + len(body["content_type"] or ""))
