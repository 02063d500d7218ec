"""The port to the engine: replicated logs, keys and files that outlive each single machine.

A *log* is a row of records with dense sequences 1, 2, 3, …. Each append names the sequence of the record before it, so
that of two owners of a log only one can go on: this is the fence. A *key* has a value and a revision, and is changed by
compare-and-set. A *file* is written whole and read whole.

Invariant: an answer is the truth of a majority, and `EngineUnavailable` is no answer. Whoever gets it does not know
whether the request took place, nor whether it will yet: a request on its way may still arrive.
"""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

MAX_BLOB_BYTES: Final = 768 * 1024
"""The most bytes of one record or value. With its headers it fits into the engine's smallest message of 1 MiB."""

MAX_READ_BYTES: Final = 8 * 1024 * 1024
"""About how much `read` returns at most: sixteen of the largest records that the codec writes."""

_LOG_OR_FILE: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_KEY: Final = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")


class EngineError(Exception):
    """The engine did not do what it was asked."""


class EngineUnavailable(EngineError):
    """No answer came: no connection, no majority, or not in time. The request may have taken place, or may do so yet.

    To find out about an append, append the same blob with the same expected sequence again. It takes place, or it is
    `Fenced`; then `read` shows whose record stands at that place, and none but that one ever will. If none stands
    there yet, an append is still on its way: ask again.
    """


class EngineUnfit(EngineError):
    """The servers are not set up as a cluster needs them, and waiting does not help. The text says what to do."""


class Fenced(EngineError):
    """The expected sequence is not the log's last, so nothing was appended.

    `last` is the log's last sequence as the engine saw it, including appends that it had begun and not finished.
    """

    def __init__(self, log: str, expected: int, last: int) -> None:
        super().__init__(f"log {log!r} ends with record {last}, and an append expected {expected}")
        self.last = last


class LogFull(EngineError):
    """The log has no room for the record, so nothing was appended. After `trim` there is room."""

    def __init__(self, log: str) -> None:
        super().__init__(f"log {log!r} is full; trim it, or give it more bytes")


class RevisionConflict(EngineError):
    """The key has another revision than expected, so nothing was changed. Read the key and decide anew."""

    def __init__(self, key: str, expected: int) -> None:
        super().__init__(f"key {key!r} does not have revision {expected}")


class NoSuchFile(EngineError):
    """The engine has no whole file of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the engine has no file {name!r}")


class FileDamaged(EngineError):
    """The engine's file is shorter than it should be, or its digest differs. Nothing was written."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the engine's file {name!r} is damaged; put it again")


class Record(NamedTuple):
    """One record of a log."""

    sequence: int
    blob: bytes


class Bounds(NamedTuple):
    """What a log holds: records `first` to `last`, none if `first` is `last + 1`.

    `size_bytes` is their size as the engine counts it, with its own overhead; at `max_bytes` the log is full.
    """

    first: int
    last: int
    size_bytes: int
    max_bytes: int
    away: tuple[str, ...] = ()
    """The servers that keep a copy of the log, and have not been heard of for some seconds: of three copies, so many
    are missing."""


class Entry(NamedTuple):
    """The value of a key, and the revision to expect at its next change. A value of None says that it was deleted."""

    key: str
    value: bytes | None
    revision: int


class Reach(NamedTuple):
    """How the engine's servers look from here, by new connections to each."""

    servers: int
    answering: int
    refusing: int
    """The machine answers, and nobody listens: this server does not run."""

    @property
    def may_be_cut_off(self) -> bool:
        """Whether the other servers may have a majority of which nothing is seen here."""
        majority = self.servers // 2 + 1
        return self.answering < majority and self.refusing < majority


class Engine(Protocol):
    """One connection to the engine. Every method but `close` may raise `EngineUnavailable`.

    A connection that breaks is made again by itself, for ever. Meanwhile requests fail, and iterators wait.
    """

    async def ensure_log(self, log: str, max_bytes: int) -> None:
        """Create a log, or give an existing one this limit. Ask this once before anything else is asked of the log.

        Raises `EngineUnfit` if the servers have no room for so many bytes.
        """
        ...

    async def use_log(self, log: str) -> None:
        """Instead of `ensure_log`, for who only looks: use a log as it is. Raises `EngineUnfit` if there is none."""
        ...

    async def append(self, log: str, expected: int, blob: bytes) -> int:
        """Append a record after the record with sequence `expected`, and return its own sequence, `expected + 1`.

        When it returns, a majority of the servers have written the record and called fsync. Several appends may be
        under way: they are sent in the order of the calls, each with the sequence that it will follow. If one does
        not take place, neither does any later one, unless another owner's record took its place: then the next may
        follow that record. A reader must tell by what stands in a record whose it is.

        Raises `Fenced`, `LogFull`, `EngineUnavailable`, and ValueError for a blob above `MAX_BLOB_BYTES`.
        """
        ...

    async def read(self, log: str, first: int, count: int) -> list[Record]:
        """Up to `count` records from the first kept one at or above `first` on; at least one if there is one.

        It may return fewer because of `MAX_READ_BYTES`. An empty list says that nothing is kept at or above `first`.

        The read is linear for what this connection knows: it sees each record up to the highest sequence that this
        connection has appended, read, or seen in `bounds`. A server that lags behind this sequence is not believed,
        and the read fails with `EngineUnavailable` in the end. So an heir that has appended its own first record
        reads everything before it, for records have one order, and a log that has this record has all before it.
        """
        ...

    async def bounds(self, log: str) -> Bounds:
        """What the log holds, by the word of its leader; never older than what this connection knows, as `read`.

        A leader that has been replaced and does not know it yet may answer: only an append proves an end.
        """
        ...

    def follow(self, log: str, first: int) -> AsyncGenerator[Record, None]:
        """Each record from `first` on, in order, once, as soon as a server has it; it waits for new ones for ever.

        No gap comes from a lost connection: the iterator goes on where it was. A sequence that jumps says that the
        records between have been trimmed. What this connection has trimmed before does not come. It ends when the
        engine is closed; close it with `aclose` or by cancelling its task.
        """
        ...

    async def trim(self, log: str, before: int) -> None:
        """Forget the records below sequence `before`. The last sequence stays, even if no record is left."""
        ...

    async def put(self, key: str, value: bytes, revision: int) -> int:
        """Set a key if it has this revision (0: if it does not exist), and return the new revision, which is higher.

        Raises `RevisionConflict`, and `EngineUnavailable`: then read the key to see whose value it has.
        """
        ...

    async def get(self, key: str) -> Entry | None:
        """The value of a key by the word of its leader; None if there is none."""
        ...

    async def entries(self, prefix: str) -> list[Entry]:
        """The value of each key that begins with `prefix`, as one server has it: perhaps not the latest."""
        ...

    def watch(self, prefix: str) -> AsyncGenerator[Entry, None]:
        """The present value of each key that begins with `prefix`, then each change, for ever.

        Of changes in quick succession it may leave out all but the last. It never goes back to an older revision.
        """
        ...

    async def reach(self) -> Reach:
        """Look at each server, then go on with another one than before: this one may be cut off from the others."""
        ...

    async def lead_elsewhere(self, log: str, server: str) -> None:
        """Let another server lead the log and the keys where the one with this address does: so that the loss of that
        machine is not also the loss of a leader, which takes the others some seconds to replace."""
        ...

    async def put_file(self, name: str, path: Path) -> None:
        """Store a file under a name; it replaces an older one when it is whole, and not before.

        Memory use is bounded; a part that got no answer is sent again. `EngineUnavailable` says that the engine keeps
        the older file, or the new one if only the last answer was lost.
        """
        ...

    async def get_file(self, name: str, path: Path) -> None:
        """Write the file of a name to `path`, which appears when it is whole and its digest is right.

        A broken connection makes it go on where it was, and so does another call for the same file and path: what came
        is kept beside `path`, also when this process ends, but not if the disk is full. Raises `NoSuchFile`,
        `FileDamaged`, and OSError.
        """
        ...

    async def delete_file(self, name: str) -> None:
        """Forget a file; harmless if there is none."""
        ...

    async def close(self) -> None:
        """Close the connection. Iterators end, and whatever is under way fails with `EngineUnavailable`."""
        ...


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a log or file."""
    if not _LOG_OR_FILE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a log or file: use 1 to 100 letters, digits, '_' and '-'")


def check_key(key: str) -> None:
    """Refuse what cannot be a key."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key: use letters, digits, '_', '=', '/' and '-', in parts joined by '.'")


def check_blob(blob: bytes) -> None:
    """Refuse what is too large for one record or value."""
    if len(blob) > MAX_BLOB_BYTES:
        raise ValueError(f"{len(blob)} bytes are too many for one record: split them; {MAX_BLOB_BYTES} is the most")
