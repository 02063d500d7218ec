"""The changes of features: records, and logs of messages, which a store makes durable like those of sessions.

A *record* has a key and data that only its feature reads. Messages may be appended to a record: it is then a *log* with
one head, before which messages are finished or taken. Invariant: the offsets of a log rise.
"""

from typing import Final, final

from mqttlite.core.message import Delivery

LOG_MARK: Final = "\0"
"""Begins each key, so that none is a client identifier, which contains no U+0000 [MQTT-1.5.4-2]."""


@final
class SaveRecord:
    """A record begins, or gets other data."""

    __slots__ = ("data", "key")

    def __init__(self, key: str, data: bytes) -> None:
        self.key: Final = key
        self.data: Final = data


@final
class RemoveRecord:
    """A record ends, with the messages of its log."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key: Final = key


@final
class Append:
    """A message joins the end of a log. With a `mark` it is taken at once, as by `Take`.

    Logs of one `family` are trimmed at about the same time, so a store may keep their messages together. Empty: the log
    is trimmed on its own.
    """

    __slots__ = ("delivery", "family", "key", "mark", "offset")

    def __init__(self, key: str, offset: int, delivery: Delivery, mark: int = 0, family: str = "") -> None:
        self.key: Final = key
        self.offset: Final = offset
        self.delivery: Final = delivery
        self.mark: Final = mark
        self.family: Final = family


@final
class Take:
    """The message at the head is taken, or one that was taken before or is kept. `mark` says what its feature must
    know of that after a restart, for example the number of the attempt; it is at least 1."""

    __slots__ = ("key", "mark", "offset")

    def __init__(self, key: str, offset: int, mark: int) -> None:
        self.key: Final = key
        self.offset: Final = offset
        self.mark: Final = mark


@final
class SaveDeadline:
    """When a taken message is due. `Take` removes it."""

    __slots__ = ("due_at", "key", "offset")

    def __init__(self, key: str, offset: int, due_at: float) -> None:
        self.key: Final = key
        self.offset: Final = offset
        self.due_at: Final = due_at


@final
class Finish:
    """A taken message, or the one at the head, is done with. The store removes it unless it is kept."""

    __slots__ = ("key", "offset")

    def __init__(self, key: str, offset: int) -> None:
        self.key: Final = key
        self.offset: Final = offset


@final
class KeepFrom:
    """The store keeps the messages from an offset on even when they are finished, so that `MoveHead` can go back to
    them. -1: it removes them.

    `size_bytes` is about the size of the kept messages before the head. Only `Store.load` sets it.
    """

    __slots__ = ("key", "offset", "size_bytes")

    def __init__(self, key: str, offset: int, size_bytes: int = 0) -> None:
        self.key: Final = key
        self.offset: Final = offset
        self.size_bytes: Final = size_bytes


@final
class MoveHead:
    """The head of a log moves, back or forward. All messages from there on wait again, also taken and finished ones;
    those before it that waited are finished."""

    __slots__ = ("key", "offset")

    def __init__(self, key: str, offset: int) -> None:
        self.key: Final = key
        self.offset: Final = offset


@final
class Compact:
    """Of the waiting messages of a log with offsets from `first` to before `end`, only those of `kept` stay, which are
    in order. The log has gaps then: the others keep their offsets."""

    __slots__ = ("end", "first", "kept", "key")

    def __init__(self, key: str, first: int, end: int, kept: tuple[int, ...]) -> None:
        self.key: Final = key
        self.first: Final = first
        self.end: Final = end
        self.kept: Final = kept


@final
class StoredLog:
    """Messages that wait in a log, and stay in the store until they are read page by page. Only `Store.load` yields it.
    `count` and `size_bytes`, their size as memory is counted, include removed ones (`Compact`)."""

    __slots__ = ("count", "first", "key", "size_bytes")

    def __init__(self, key: str, first: int, count: int, size_bytes: int) -> None:
        self.key: Final = key
        self.first: Final = first
        self.count: Final = count
        self.size_bytes: Final = size_bytes


LoadedOfLog = SaveRecord | Append | SaveDeadline | KeepFrom | StoredLog
"""What `Store.load` yields of records and logs. A record comes before its messages, and taken messages, as `Append`
with their marks, before waiting ones."""

LogChange = LoadedOfLog | RemoveRecord | Take | Finish | MoveHead | Compact
