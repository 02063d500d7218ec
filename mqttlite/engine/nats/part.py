"""What has come of a file from the engine. It is kept, so that a transfer goes on where it was, also after a restart.

Beside it a note says which file it is of, and how far it goes. Invariants: nobody sees the file before it is whole and
has its digest; a part that is damaged, or of another file, is begun again; nobody else may read a part; a full disk
keeps none. The methods wait for the disk.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Final, final

import msgspec

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when the disk is full. The part is what may have filled it."""


class _Note(msgspec.Struct):
    """The first `chunks` chunks of the file `nuid` are here, of `size` bytes; the last has this sequence."""

    nuid: str
    chunks: int
    size: int
    sequence: int


@final
class Part:
    """Of the file `nuid`, which is to be `path`."""

    def __init__(self, path: Path, nuid: str) -> None:
        self._path: Final = path
        self._part_path: Final = path.with_name(f"{path.name}.part")
        self._note_path: Final = path.with_name(f"{path.name}.part.note")
        self._digest: Final = hashlib.sha256()
        self._note = _Note(nuid, 0, 0, 0)
        found = self._read_note()
        if found is None or found.nuid != nuid or not self._take_up(found):
            self._file: BufferedIOBase = open(self._part_path, "wb", opener=_private)  # noqa: SIM115 closed by `close`

    @property
    def chunks(self) -> int:
        """How many chunks are here."""
        return self._note.chunks

    @property
    def sequence(self) -> int:
        """That of the last of them; 0 if there is none."""
        return self._note.sequence

    @property
    def digest(self) -> bytes:
        """Of what is here."""
        return self._digest.digest()

    def add(self, chunk: bytes, sequence: int) -> None:
        """The next chunk has come."""
        note = self._note
        with self._room():
            self._file.write(chunk)
            self._file.flush()
            self._digest.update(chunk)
            self._note = _Note(note.nuid, note.chunks + 1, note.size + len(chunk), sequence)
            with open(self._note_path, "wb", opener=_private) as file:
                file.write(msgspec.json.encode(self._note))

    def finish(self) -> None:
        """All is here: let the file appear."""
        with self._room():
            os.fsync(self._file.fileno())
        os.replace(self._part_path, self._path)
        self.discard()

    def close(self) -> None:
        """The transfer ends, for now. What is here stays."""
        with suppress(OSError):  # of what was not written; the note does not count it
            self._file.close()
        if not self.chunks:
            self.discard()

    def discard(self) -> None:
        """Forget what is here."""
        self._note = _Note("", 0, 0, 0)
        for path in (self._part_path, self._note_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """If the disk is full, nothing stays."""
        try:
            yield
        except OSError as error:
            if error.errno in FULL:
                self.discard()
            raise

    def _read_note(self) -> _Note | None:
        try:
            return msgspec.json.decode(self._note_path.read_bytes(), type=_Note)
        except (OSError, msgspec.DecodeError):
            return None

    def _take_up(self, note: _Note) -> bool:
        """Go on behind what is here. False if it is less than the note says."""
        try:
            file = open(self._part_path, "r+b", opener=_private)  # noqa: SIM115 closed by `close`
        except OSError:
            return False
        if file.seek(0, os.SEEK_END) < note.size:
            file.close()
            return False
        file.truncate(note.size)
        file.seek(0)
        while some := file.read(1_048_576):
            self._digest.update(some)
        self._file, self._note = file, note
        return True


def _private(path: str, flags: int) -> int:
    """Open a file that only this user may read, also one that was there."""
    number = os.open(path, flags, 0o600)
    os.fchmod(number, 0o600)
    return number
