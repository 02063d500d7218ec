"""What nodes send to each other, as bytes."""

import pytest

from mqttlite.extensions.nodes.blobs import VERSION, Blob, Close, Data, Hello, Open, decode, encode

BLOBS: tuple[Blob, ...] = (
    Hello(VERSION, "a", 1, True),
    Open(VERSION, "a", 1, 2, True, False, 3, 4),
    Close("a", 1, "why"),
    Data("a", 1, 2, 3, True, [(b"t", -1)], b"x"),
)


@pytest.mark.parametrize("blob", BLOBS)
def test_decode_gives_what_was_encoded(blob: Blob) -> None:
    assert decode(encode(blob)) == blob


@pytest.mark.parametrize("blob", BLOBS)
def test_a_cut_blob_is_none_and_a_changed_one_raises_nothing(blob: Blob) -> None:
    data = encode(blob)
    for end in range(len(data)):
        assert decode(data[:end]) is None
    for at in range(len(data)):
        decode(data[:at] + b"\xc1" + data[at + 1 :])
