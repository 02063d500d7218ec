"""Backs up the other files of a data directory: those written by the HTTP API and by commands.

They are the `*.json` files of the directory. Each is always complete, because it is replaced atomically. A backup has
them in a separate table. Invariant: an existing file is not overwritten.
"""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqttlite.store.sqlite.files import StoreError

MAX_FILES: Final = 100
"""A broker has some five; a directory with more than this is not a broker's."""

MAX_FILE_BYTES: Final = 268_435_456
"""The largest allowed file."""

TABLE: Final = "CREATE TABLE beside (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT"

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}\.json")
"""The names of these files; others are none of a broker's."""


def copy(directory: Path, connection: sqlite3.Connection) -> tuple[str, ...]:
    """Put the files of a data directory into a backup. Return their names. Raises `StoreError` and `OSError`."""
    names = sorted(each.name for each in directory.iterdir() if NAME.fullmatch(each.name) and each.is_file())
    if len(names) > MAX_FILES:
        raise StoreError(f"{directory} has {len(names)} files *.json: a data directory has {MAX_FILES} at most")
    if not names:
        return ()
    connection.execute("BEGIN")
    connection.execute(TABLE)
    for name in names:
        path = directory / name
        if path.stat().st_size > MAX_FILE_BYTES:
            raise StoreError(f"{path} is larger than {MAX_FILE_BYTES} bytes: it is no file of a broker's")
        connection.execute("INSERT INTO beside VALUES (?, ?)", (name, path.read_bytes()))
    connection.execute("COMMIT")
    return tuple(names)


def names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The names of the files in a backup. Raises `StoreError` for an invalid name."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'beside'").fetchone() is None:
        return ()
    found = tuple(name for (name,) in connection.execute("SELECT name FROM beside ORDER BY name LIMIT ?", (MAX_FILES,)))
    for name in found:
        if not NAME.fullmatch(name):
            raise StoreError(f"the backup has a file {name[:100]!r}, which no data directory has: nothing is restored")
    return found


def check(connection: sqlite3.Connection, directory: Path) -> None:
    """Raises `StoreError` if the directory has one of these files with other content."""
    for name in names(connection):
        path = directory / name
        if path.exists() and path.read_bytes() != _content(connection, name):
            raise StoreError(
                f"{path} exists already, and is not overwritten: restore into another folder, or move {name} to "
                "another folder first"
            )


def restore(connection: sqlite3.Connection, directory: Path, save: Callable[[Path, bytes], None]) -> tuple[str, ...]:
    """After `check`: write the missing files, and remove them from the database. Return their names."""
    found = names(connection)
    for name in found:
        if not (directory / name).exists():
            save(directory / name, _content(connection, name))
    if found:
        connection.execute("DROP TABLE beside")
        connection.execute("VACUUM")
    return found


def _content(connection: sqlite3.Connection, name: str) -> bytes:
    ((content,),) = connection.execute("SELECT content FROM beside WHERE name = ?", (name,))
    found: bytes = content
    return found
