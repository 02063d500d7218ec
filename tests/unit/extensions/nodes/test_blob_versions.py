"""What nodes of several versions read of each other's blobs."""

import msgspec
import pytest

from mqttlite.extensions.nodes.blobs import MAX_KIND, VERSION, Fence, Hello, Notes, Unknown, decode, decode_newer


def test_a_member_that_a_newer_node_adds_to_a_blob_is_not_read() -> None:
    hello = [*msgspec.to_builtins(Hello(VERSION, "x", 7)), "new", {"more": 1}]
    assert decode(msgspec.msgpack.encode(hello)) == Hello(VERSION, "x", 7)


def test_an_older_node_says_less_in_a_blob() -> None:
    assert decode(msgspec.msgpack.encode(["hello", VERSION, "x", 7, False])) == Hello(VERSION, "x", 7)


def test_the_notes_that_are_known_are_read_and_the_first_other_kind_is_told() -> None:
    whole = ["notes", "x", 3, 1, [["fence", 1], ["sing", 4], ["dance"], ["fence", 2]]]
    assert decode(msgspec.msgpack.encode(whole)) is None
    assert decode_newer(msgspec.msgpack.encode(whole)) == (Notes("x", 3, 1, [Fence(1), Fence(2)]), "sing")


def test_the_kind_of_a_blob_that_is_not_known_is_told_but_not_all_of_a_long_one() -> None:
    assert decode_newer(msgspec.msgpack.encode(["poem", "x", 1])) == (Unknown("x", "poem"), "")
    assert decode_newer(msgspec.msgpack.encode(["p" * 1_000, "x"])) == (Unknown("x", "p" * MAX_KIND), "")


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode([]), msgspec.msgpack.encode(["notes", "x"])])
def test_bytes_that_are_no_blob_are_nothing(data: bytes) -> None:
    found, kind = decode_newer(data)
    assert (getattr(found, "kind", "notes"), kind) == ("notes", "")


def test_changed_bytes_raise_nothing() -> None:
    data = msgspec.msgpack.encode(["notes", "x", 3, 1, [["fence", 1], ["sing", 4], []]])
    for end in range(len(data)):
        decode_newer(data[:end])
    for at in range(len(data)):
        for byte in (0x00, 0x90, 0x93, 0xA1, 0xC1, 0xFF):
            decode_newer(data[:at] + bytes([byte]) + data[at + 1 :])
