"""Looks at a database and its journal before SQLite opens them, and rebuilds them if they are damaged.

SQLite takes a journal for finished at its first bad frame, and overwrites what follows. So after an unclean end the
frames are checked here first. If a bad frame hides others, a new database is made of the old one with the last image of
each page; if that is not whole, its readable rows are copied. Invariant: the damaged files keep their names until the
new database is complete, and are kept under another name then.
"""

import contextlib
import mmap
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqttlite.store.sqlite import files, header
from mqttlite.store.sqlite.journal import Data, Frame, Journal, scan
from mqttlite.store.sqlite.mark import UNKNOWN
from mqttlite.store.sqlite.pages import Pages
from mqttlite.store.sqlite.salvage import Source, salvage
from mqttlite.store.sqlite.schema import APPLICATION_ID

ROOT: Final = "SELECT rootpage FROM sqlite_master WHERE name = 'commits'"
COMMIT: Final = "SELECT number FROM commits"

HEAD_PAGES: Final = 64
"""The first pages of a database, in which its tables begin: they were made with it."""

IMAGE: Final = ".image"
"""The suffix of a database that is put together from the damaged one and its journal."""


def look(path: Path, acknowledged: int) -> str:
    """What is wrong with a database and its journal, as far as SQLite does not say so; "" if nothing is.

    `acknowledged` is the number of the latest acknowledged commit, or less.
    """
    if header.is_damaged(_header_of(path)):
        return "its header is damaged"
    with _opened_journal(path) as (journal, data):
        read = _commit_read(path, journal, data) if journal.read < len(journal.frames) else acknowledged
    if journal.read == len(journal.frames):
        return ""
    hidden = journal.hidden_commits
    # A power cut leaves at most one commit unfinished, and a write that failed may leave a damaged header of a journal
    # that was about to begin anew.
    is_damaged = hidden > 1 if journal.has_header else hidden > 0 and acknowledged == UNKNOWN
    if not is_damaged and acknowledged <= read:
        return ""
    bad = sum(1 for frame in journal.frames if not frame.is_good)
    if not bad and journal.has_header:
        return "its journal is cut off within a commit that was acknowledged"
    what = (
        f"{bad} of {len(journal.frames)} frames of its journal are" if journal.has_header else "its journal's head is"
    )
    return f"{what} damaged, and {len(journal.frames) - journal.read} frames cannot be read without a repair"


def commit_of(path: Path) -> int:
    """The number of the latest commit in a database, without its journal; -1 if it cannot be read."""
    return _stored(path, COMMIT)


def _commit_read(path: Path, journal: Journal, data: Data) -> int:
    """The same with the part of the journal that SQLite reads. To ask SQLite takes room on the disk."""
    root = _stored(path, ROOT)
    is_torn = root < 0  # for example while a full disk stops a checkpoint: the header counts pages that are not there
    if is_torn:
        root = _stored_in_head(path, ROOT)
    for frame in reversed(journal.frames[: journal.read]):
        if frame.page == root:
            image = data[frame.at : frame.at + journal.page_size]
            (cell,) = Pages(image, journal.page_size, {}).cells_of(image)
            return int(cell.values[1]) if cell is not None else -1
    return _stored_in_head(path, COMMIT) if is_torn else commit_of(path)


def _stored_in_head(path: Path, sql: str) -> int:
    """The same, of a database with fewer pages than its header says; -1 if it cannot be read."""
    with open(path, "rb") as file:
        size = header.page_size(file.read(header.HEADER_BYTES))
        file.seek(0)
        head = file.read(HEAD_PAGES * size)
    mended = bytearray(header.mended(head[: header.HEADER_BYTES], size, len(head) // size))
    mended[18:20] = b"\1\1"  # without a journal: there is none in memory
    try:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.deserialize(bytes(mended) + head[header.HEADER_BYTES : len(head) // size * size])
            return int(connection.execute(sql).fetchone()[0])
    except (sqlite3.DatabaseError, TypeError, ValueError):
        return -1


def _stored(path: Path, sql: str) -> int:
    """A number in a database; -1 if it cannot be read."""
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"  # that is without the journal
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            return int(connection.execute(sql).fetchone()[0])
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # that is: there is no such table
        if code != sqlite3.SQLITE_ERROR and not files.is_damage(error) and path.exists():
            raise
        return -1


def missing(number: int, acknowledged: int) -> str:
    """Names the acknowledged commits behind a number."""
    return f"lost: acknowledged commits {number + 1} to {acknowledged}, of which nothing is left"


def rebuild(path: Path, acknowledged: int) -> list[str]:
    """Replace a damaged database. Return sentences that say what was kept and what was lost.

    Raises `StoreError` for a database of another program or of a newer version, which is left as it is.
    """
    image = path.with_name(path.name + IMAGE)
    files.remove(image)
    try:
        with _opened_journal(path) as (journal, data):
            read = _commit_read(path, journal, data)
        source = _make_image(path, image, acknowledged)
        if source.path == image and not source.is_torn and _is_whole(image):
            number = commit_of(image)
            lost = [missing(number, acknowledged)] if number < acknowledged else []
            return [
                f"the damaged database is kept as {files.replace(path, image)}",
                "recovered: each page is whole in the database or its journal",
                *lost,
            ]
        last = f" to {acknowledged}" if acknowledged > read else ""
        lost = [f"parts of the commits from number {read + 1} on{last}"] if source.is_torn else []
        return salvage(source, path, lost, acknowledged)
    finally:
        files.remove(image)


def _make_image(path: Path, image: Path, acknowledged: int) -> Source:
    """Put the database and its journal together; where there is no journal and a good header, nothing is made."""
    head = _header_of(path)
    with _opened_journal(path) as (journal, data):
        size = journal.page_size if journal.frames else header.page_size(head)
        if not journal.frames and header.mended(head, size, _length(path) // size) == head:
            return Source(path)
        end = max((at + 1 for at, frame in enumerate(journal.frames) if frame.size), default=0)
        frames, rest = journal.frames[:end], journal.frames[end:]
        writer = _Writer(path, image, size, data)
        former = writer.write(frames)
        number = commit_of(image)
        if frames and not journal.has_header and number < commit_of(path):
            writer.write([])  # the journal is older than the database, which has all of it
            return Source(image)
        tail = {frame.page: writer.page(frame) for frame in rest if frame.page} if acknowledged > number else {}
    return Source(image, former, tail, any(not frame.page for frame in frames))


class _Writer:
    """Writes an image: the database with pages of its journal in their places."""

    def __init__(self, path: Path, image: Path, size: int, data: Data) -> None:
        self._path: Final = path
        self._image: Final = image
        self._size: Final = size
        self._data: Final = data

    def write(self, frames: list[Frame]) -> dict[int, list[bytes]]:
        """Write the last image of each page. Return earlier ones of pages whose last image is damaged."""
        last = {frame.page: frame for frame in frames if frame.page}
        pages = max(frames[-1].size if frames else _length(self._path) // self._size, *last, 1)
        files.copy(self._path, self._image, pages * self._size)
        places = {(page - 1) * self._size: self.page(frame) for page, frame in last.items()}
        first = places.get(0) or _header_of(self._path)
        places[0] = header.mended(first[: header.HEADER_BYTES], self._size, pages) + first[header.HEADER_BYTES :]
        files.overwrite(self._image, places)
        former: dict[int, list[bytes]] = {page: [] for page, frame in last.items() if not frame.is_good}
        for frame in reversed(frames):
            if frame.page in former and frame.is_good:
                former[frame.page].append(self.page(frame))
        for page, images in former.items():
            images.append(self._stored(page))
        return former

    def page(self, frame: Frame) -> bytes:
        return self._data[frame.at : frame.at + self._size]

    def _stored(self, page: int) -> bytes:
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek((page - 1) * self._size)
            return file.read(self._size)
        return b""


@contextlib.contextmanager
def _opened_journal(path: Path) -> Iterator[tuple[Journal, Data]]:
    """The journal of a database, without frames if there is none."""
    with contextlib.ExitStack() as stack:
        data: Data = b""
        with contextlib.suppress(FileNotFoundError):
            file = stack.enter_context(open(path.with_name(path.name + "-wal"), "rb"))
            if os.fstat(file.fileno()).st_size:
                data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        size = header.page_size(_header_of(path))
        yield scan(data, size, _length(path) // size), data


def _header_of(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError), open(path, "rb") as file:
        return file.read(header.HEADER_BYTES)
    return b""


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_whole(image: Path) -> bool:
    """Whether SQLite finds no damage. A damaged mark or version number is mended. Raises `StoreError`."""
    try:
        with contextlib.closing(sqlite3.connect(image, isolation_level=None)) as connection:
            connection.text_factory = files.lenient
            if version := files.version_of(connection):
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {version}")
            files.check(connection, image)
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return bool(found == "ok")
    except sqlite3.DatabaseError as error:
        if not files.is_damage(error):
            raise
        return False
