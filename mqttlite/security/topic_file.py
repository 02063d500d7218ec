"""The file of the topics made over HTTP: a line for each change, so that a change writes one topic.

The first line is the version. Each other line is a topic, which replaces the one of its id, or the id of a topic that
was removed. A last line without its end is what a crash left of a change that no caller was told of: it does not count.
Earlier versions wrote all topics as one value. Invariant: what `topic_records` limits has room in a file that `load`
reads.
"""

import os
from collections import Counter
from collections.abc import Iterable
from errno import ENOSPC
from pathlib import Path
from typing import Final, Literal

import msgspec

from mqttlite.files import atomic_file
from mqttlite.security.topic_records import MAX_TOPICS_BYTES, TopicFileError, TopicRecord

FILE_NAME: Final = "topics.json"
"""In the data directory."""

MAX_FILE_BYTES: Final = 268_435_456
"""A larger file is not read. Earlier versions wrote all that may be here; this one keeps less than half."""

MAX_OUTDATED_BYTES: Final = MAX_TOPICS_BYTES
"""When the file has grown by so much, it is written anew, without the lines that are outdated."""


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1, 2]
    topics: list[TopicRecord] = []
    """All there are, in version 1."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    topic: TopicRecord | None = None
    removed: str = ""


_HEAD: Final = b'{"version":2}\n'


def line_of(topic: TopicRecord) -> bytes:
    """The line that says that a topic is there."""
    return msgspec.json.encode(_Line(topic=topic)) + b"\n"


def line_without(topic_id: str) -> bytes:
    """The line that says that a topic is removed."""
    return msgspec.json.encode(_Line(removed=topic_id)) + b"\n"


def load(path: Path | None) -> list[TopicRecord]:
    """The topics of a file; none where there is no file. Raises `TopicFileError`."""
    if path is None:
        return []
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TopicFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes: it is no file of topics")
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TopicFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return parse(content)
    except ValueError as error:
        raise TopicFileError(f"{path} is no file of topics: {error}") from None


def parse(content: bytes) -> list[TopicRecord]:
    """The topics that the content of a file tells. Raises ValueError with what is wrong, and what to do."""
    number = 1
    try:
        first, end, rest = content.partition(b"\n")
        head = msgspec.json.decode(first if end and b'"version":2' in first else content, type=_Head)
        if head.version == 1:
            topics = head.topics
        else:
            found: dict[str, TopicRecord] = {}
            for text in rest.split(b"\n")[:-1]:
                number += 1
                line = msgspec.json.decode(text, type=_Line)
                if line.topic is None:
                    found.pop(line.removed, None)
                else:
                    found[line.topic.topic_id] = line.topic
            topics = list(found.values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"line {number}: {error}. Put back a copy, or remove it: then its topics are open to all"
        ) from None
    counts = Counter([*(f"the id {each.topic_id}" for each in topics), *(f"the topic {each.name}" for each in topics)])
    for what, count in counts.items():
        if count > 1:
            raise ValueError(f"it has {what} {count} times. Put back a copy")
    return topics


def content_of(topics: Iterable[TopicRecord]) -> bytes:
    """The content of a file that has these topics and no outdated lines."""
    return _HEAD + b"".join(map(line_of, topics))


def save(path: Path, topics: Iterable[TopicRecord]) -> int:
    """Replace the file; its size. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = content_of(topics)
    atomic_file.save(path, content)
    return len(content)


class TopicFile:
    """The file of a broker that runs, which alone writes it."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._whole_bytes = 0
        """Its size when it was last written as a whole."""
        self._bytes = -1
        """Its size; -1: the next change writes it as a whole."""

    def write(self, line: bytes, topics: Iterable[TopicRecord]) -> None:
        """Add the line of a change; `topics` are those after it. Raises `OSError`, and the file is as it was."""
        if self._bytes < 0 or self._bytes > self._whole_bytes + MAX_OUTDATED_BYTES or not self._is_ours():
            self._bytes = self._whole_bytes = save(self.path, topics)
            return
        size, self._bytes = self._bytes, -1
        with self.path.open("ab", buffering=0) as file:
            try:
                if file.write(line) < len(line):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        self._bytes = size + len(line)

    def replace(self, topics: Iterable[TopicRecord]) -> None:
        """Have these topics and no others. Raises `OSError`, and the file is as it was."""
        self._bytes = -1
        self._bytes = self._whole_bytes = save(self.path, topics)

    def _is_ours(self) -> bool:
        """Whether nobody else has written it."""
        try:
            return self.path.stat().st_size == self._bytes
        except OSError:
            return False
