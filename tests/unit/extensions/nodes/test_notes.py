"""The notes of a connection: in order, each once, and in blobs that NATS can carry."""

import pytest

from mqttlite.extensions.nodes.blobs import (
    Adopt,
    Adopted,
    Ask,
    Begin,
    Bytes,
    End,
    Filter,
    Filters,
    Forget,
    Held,
    Moved,
    Yours,
    encode,
)
from mqttlite.extensions.nodes.notes import BLOB_BYTES, NoteBook
from mqttlite.extensions.nodes.pipes import PIECE_BYTES


def test_notes_leave_in_their_order_in_blobs_of_bounded_size() -> None:
    book = NoteBook()
    notes = [Bytes(number, bytes(PIECE_BYTES)) for number in range(30)]
    for note in notes:
        book.put(note)
    book.put(End(1))
    assert book.waiting_bytes > 30 * PIECE_BYTES
    blobs = list(book.take("a", 7))
    assert [note for blob in blobs for note in blob.notes] == [*notes, End(1)]
    assert [(blob.node, blob.connection, blob.number) for blob in blobs] == [("a", 7, n + 1) for n in range(len(blobs))]
    assert max(len(encode(blob)) for blob in blobs) <= BLOB_BYTES + 2 * PIECE_BYTES
    assert (book.sent, book.waiting_bytes) == (len(blobs), 0)
    assert list(book.take("a", 7)) == []


@pytest.mark.parametrize("client_id", ["x" * 1_024, "\U0001f40c" * 1_024])
def test_the_texts_of_a_client_count_in_the_size_of_a_blob(client_id: str) -> None:
    book = NoteBook()
    for number in range(600):
        book.put(Ask(number, number, client_id))
        book.put(Forget(number, client_id))
        book.put(Held("b", client_id, client_id, number))
        book.put(Moved(number, client_id, bytes(2_000)))
        book.put(Adopt(client_id, client_id, bytes(1_000), number))
        book.put(Filters(client_id, [Filter(bytes(1_000), 2, True, True, 268_435_455, client_id)], is_last=True))
        book.put(Adopted(client_id, True, client_id))
        book.put(Yours(client_id, 1 << 60))
        book.put(Begin(number, number, client_id, "tcp", client_id, client_id, None, None))
    blobs = list(book.take("a", 7))
    assert max(len(encode(blob)) for blob in blobs) <= BLOB_BYTES + 20_000


def test_a_blob_that_is_missing_is_noticed() -> None:
    book = NoteBook()
    assert book.is_whole(0)
    assert book.is_next(1)
    assert book.is_whole(1)
    assert not book.is_whole(2)
    assert not book.is_next(3)


def test_a_connection_begins_with_nothing() -> None:
    book = NoteBook()
    book.put(End(1))
    assert len(list(book.take("a", 7))) == 1
    book.put(End(2))
    assert book.is_next(1)
    book.begin()
    assert (book.sent, book.waiting_bytes, list(book.take("a", 8))) == (0, 0, [])
    assert book.is_whole(0)
