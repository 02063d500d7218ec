"""Encodes the changes of a commit for the log that several machines share, and decodes them on another machine.

Unlike `Change`, whose times are in the seconds of one process, what is encoded has Unix times. A message stands in it
once, for however many sessions it is. Invariant: `decode` returns what `encode` was given, or raises `CodecError`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from mqttlite.core.changes import (
    Change,
    EndSession,
    Enqueue,
    LatestNumber,
    RemoveDelayed,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
    Settled,
    Stored,
)
from mqttlite.core.log_changes import (
    Append,
    Compact,
    Finish,
    KeepFrom,
    MoveHead,
    RemoveRecord,
    SaveDeadline,
    SaveRecord,
    StoredLog,
    Take,
)
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.retained.writer import Writer
from mqttlite.store.sqlite.records import (
    Damaged,
    decode_delayed,
    decode_message,
    decode_retained,
    decode_session,
    decode_subscription,
    decode_will,
    encode_delayed,
    encode_message,
    encode_retained,
    encode_session,
    encode_subscription,
    encode_will,
    opened,
)

FORMAT: Final = 1
"""The version of the format. A change of a new kind raises it: what an older version cannot read it must not skip."""

_NUMBER: Final = 0
"""Stands for the number that a session or delayed message has in one store: in the log their names identify them."""

_Row: TypeAlias = tuple[Any, ...]
_Read: TypeAlias = list[Any]
"""A row as it was read."""

_Rarer: TypeAlias = (
    SaveSession
    | EndSession
    | SaveSubscription
    | RemoveSubscription
    | SaveWill
    | RemoveWill
    | LatestNumber
    | Stored
    | StoredLog
    | SaveReleased
    | RemoveReleased
    | SaveReceived
    | RemoveReceived
    | SaveRetained
    | RemoveRetained
    | SaveDelayed
    | RemoveDelayed
    | RemoveRecord
    | SaveDeadline
    | KeepFrom
    | MoveHead
    | Compact
)


class CodecError(Exception):
    """Bytes that this version cannot read, in a sentence."""


class _Encoder:
    def __init__(self, offset: float) -> None:
        self.messages: list[bytes] = []
        self.deliveries: list[_Row] = []
        self._offset: Final = offset
        self._message_numbers: dict[int, int] = {}
        self._delivery_numbers: dict[int, int] = {}

    def row(self, change: Change) -> _Row:
        if isinstance(change, Enqueue):  # most are
            return 1, change.client_id, change.sequence, self._delivery(change.delivery), change.packet_id
        if isinstance(change, Settled):
            return 2, change.client_id, change.sequence
        if isinstance(change, Sent):
            return 3, change.client_id, change.sequence, change.packet_id
        if isinstance(change, Append):
            return 4, change.key, change.offset, self._delivery(change.delivery), change.mark
        if isinstance(change, Finish):
            return 5, change.key, change.offset
        if isinstance(change, Take):
            return 6, change.key, change.offset, change.mark
        if isinstance(change, SaveRecord):
            return 7, change.key, change.data
        return self._rarer_row(change)

    def _rarer_row(self, change: _Rarer) -> _Row:
        offset = self._offset
        if isinstance(change, SaveReceived):
            return 8, change.client_id, change.packet_id
        if isinstance(change, RemoveReceived):
            return 9, change.client_id, change.packet_id
        if isinstance(change, SaveReleased):
            return 10, change.client_id, change.sequence, change.packet_id
        if isinstance(change, RemoveReleased):
            return 11, change.client_id, change.packet_id
        if isinstance(change, SaveRetained):
            return 12, encode_retained(change.message, offset)
        if isinstance(change, RemoveRetained):
            return 13, change.topic
        if isinstance(change, SaveSession):
            return 14, encode_session(change, _NUMBER, offset)
        if isinstance(change, EndSession):
            return 15, change.client_id
        if isinstance(change, SaveSubscription):
            return 16, change.client_id, encode_subscription(change.subscription)
        if isinstance(change, RemoveSubscription):
            return 17, change.client_id, change.topic_filter
        if isinstance(change, SaveWill):
            return 18, change.client_id, encode_will(change.will, _NUMBER, change.due_at + offset)
        if isinstance(change, RemoveWill):
            return 19, change.client_id
        if isinstance(change, SaveDelayed):
            due_at = change.due_at + offset
            return 20, change.number, encode_delayed(change.number, change.message, due_at, change.client_id, offset)
        if isinstance(change, RemoveDelayed):
            return 21, change.number
        if isinstance(change, SaveDeadline):
            return 22, change.key, change.offset, change.due_at + offset
        if isinstance(change, KeepFrom):
            return 23, change.key, change.offset
        if isinstance(change, MoveHead):
            return 24, change.key, change.offset
        if isinstance(change, RemoveRecord):
            return 25, change.key
        if isinstance(change, Compact):
            return 26, change.key, change.first, change.end, change.kept
        if isinstance(change, LatestNumber | Stored | StoredLog):
            raise TypeError(f"{type(change).__name__} says what a store has, and is nothing to commit")
        assert_never(change)

    def _delivery(self, delivery: Delivery) -> int:
        number = self._delivery_numbers.get(id(delivery))
        if number is None:
            number = self._delivery_numbers[id(delivery)] = len(self.deliveries)
            origin = None if delivery.origin is None else delivery.origin.name
            message = self._message(delivery.message)
            self.deliveries.append((message, delivery.qos, delivery.retain, delivery.identifiers, origin))
        return number

    def _message(self, message: Message) -> int:
        number = self._message_numbers.get(id(message))
        if number is None:
            number = self._message_numbers[id(message)] = len(self.messages)
            self.messages.append(encode_message(message, self._offset))
        return number


class _Decoder:
    def __init__(self, messages: list[bytes], deliveries: list[_Read], offset: float) -> None:
        self._messages: Final = [decode_message(opened(each), offset) for each in messages]
        self._deliveries: Final = [self._delivery(each) for each in deliveries]
        self._offset: Final = offset
        self._writers: Final[dict[bytes, Writer]] = {}
        self._kinds: Final[dict[int, Callable[..., Change]]] = {
            1: self._enqueue,
            2: Settled,
            3: Sent,
            4: self._append,
            5: Finish,
            6: Take,
            7: SaveRecord,
            8: SaveReceived,
            9: RemoveReceived,
            10: SaveReleased,
            11: RemoveReleased,
            12: self._retained,
            13: RemoveRetained,
            14: self._session,
            15: EndSession,
            16: self._subscription,
            17: RemoveSubscription,
            18: self._will,
            19: RemoveWill,
            20: self._delayed,
            21: RemoveDelayed,
            22: self._deadline,
            23: KeepFrom,
            24: MoveHead,
            25: RemoveRecord,
            26: self._compact,
        }

    def change(self, row: _Read) -> Change:
        return self._kinds[row[0]](*row[1:])

    def _delivery(self, row: _Read) -> Delivery:
        message, qos, retain, identifiers, origin = row
        stored = None if origin is None else StoredOrigin(origin)
        return Delivery(self._messages[message], qos, retain, tuple(identifiers), stored)

    def _enqueue(self, client_id: str, sequence: int, delivery: int, packet_id: int) -> Enqueue:
        return Enqueue(client_id, sequence, self._deliveries[delivery], packet_id)

    def _append(self, key: str, at: int, delivery: int, mark: int) -> Append:
        # Without its family: where a picture keeps messages is its own affair.
        return Append(key, at, self._deliveries[delivery], mark)

    def _retained(self, data: bytes) -> SaveRetained:
        return SaveRetained(decode_retained(data, self._offset, self._writers))

    def _session(self, data: bytes) -> SaveSession:
        return decode_session(data, _NUMBER, self._offset)

    def _subscription(self, client_id: str, data: bytes) -> SaveSubscription:
        return SaveSubscription(client_id, decode_subscription(data, client_id, client_id.encode()))

    def _will(self, client_id: str, data: bytes) -> SaveWill:
        will, due_at = decode_will(data, _NUMBER)
        return SaveWill(client_id, will, due_at - self._offset)

    def _delayed(self, number: int, data: bytes) -> SaveDelayed:
        message, due_at, client_id = decode_delayed(data, number, self._offset, self._writers)
        return SaveDelayed(number, message, due_at - self._offset, client_id)

    def _compact(self, key: str, first: int, end: int, kept: list[int]) -> Compact:
        return Compact(key, first, end, tuple(kept))

    def _deadline(self, key: str, at: int, due_at: float) -> SaveDeadline:
        return SaveDeadline(key, at, due_at - self._offset)


def encode(changes: Iterable[Change], offset: float) -> bytes:
    """`offset` is how many seconds the wall clock is ahead of the broker's seconds.

    Raises `TypeError` for a change that only `Store.load` yields.
    """
    encoder = _Encoder(offset)
    rows = [encoder.row(change) for change in changes]
    return msgspec.msgpack.encode((FORMAT, encoder.messages, encoder.deliveries, rows))


def decode(data: bytes, offset: float) -> list[Change]:
    """Raises `CodecError` for bytes that are damaged, or of a newer version."""
    try:
        version, *parts = msgspec.msgpack.decode(data)
        if version != FORMAT:
            text = f"a record of the log has version {version}, and this broker reads {FORMAT}"
            raise CodecError(f"{text}: upgrade it, then start it again")
        messages, deliveries, rows = parts
        decoder = _Decoder(messages, deliveries, offset)
        return [decoder.change(row) for row in rows]
    except (Damaged, msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise CodecError(f"a record of the log cannot be read: {error!r}") from None
