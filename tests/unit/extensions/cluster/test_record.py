"""The records of the log: commits come out whole, and a commit that its writer did not finish never does."""

import pytest

from mqttlite.extensions.cluster.codec import CodecError
from mqttlite.extensions.cluster.record import (
    PART_BYTES,
    VERSION,
    Assembler,
    Begin,
    Commit,
    Place,
    encode_begin,
    encode_commit,
    place_of,
)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_a_commit_of_any_size_comes_out_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    records = encode_commit(7, 3, data)
    assert len(records) == max(1, -(-size // PART_BYTES))
    assert [place_of(record) for record in records] == [Place(7, 3, part) for part in range(len(records))]
    assembler = Assembler()
    found = [assembler.add(at, record) for at, record in enumerate(records, 8)]
    assert all(each is None for each in found[:-1])
    assert isinstance(found[-1], Commit)
    assert found[-1].data == data
    assert found[-1].place == Place(7, 3, len(records) - 1)


@pytest.mark.parametrize("is_seed", [False, True])
def test_a_machine_begins_with_its_name(is_seed: bool) -> None:
    assembler = Assembler()
    found = assembler.add(5, encode_begin(42, "náme", is_seed))
    assert isinstance(found, Begin)
    assert (found.node, found.is_seed, found.place) == ("náme", is_seed, Place(0, 42, 0))


def test_an_unfinished_commit_is_dropped_when_another_machine_begins() -> None:
    assembler = Assembler()
    for at, record in enumerate(encode_commit(7, 3, b"x" * 3 * PART_BYTES)[:2], 8):
        assert assembler.add(at, record) is None
    assert isinstance(assembler.add(10, encode_begin(1, "b", False)), Begin)
    found = assembler.add(11, encode_commit(10, 1, b"new")[0])
    assert isinstance(found, Commit)
    assert found.data == b"new"


def test_a_record_behind_the_begin_of_another_machine_is_refused() -> None:
    assembler = Assembler()
    assembler.add(8, encode_begin(1, "b", False))
    with pytest.raises(CodecError, match="record 9 of the log is of turn 7, behind the begin of 8"):
        assembler.add(9, encode_commit(7, 9, b"late")[0])


def test_a_part_without_the_one_before_is_refused() -> None:
    first, second, third = encode_commit(7, 3, b"x" * 3 * PART_BYTES)
    assembler = Assembler()
    assembler.add(8, first)
    with pytest.raises(CodecError, match="part 2 of a commit without the part before it"):
        assembler.add(9, third)
    with pytest.raises(CodecError, match="part 1 of a commit"):
        Assembler().add(8, second)
    other = Assembler()
    other.add(8, encode_commit(7, 2, b"x" * 2 * PART_BYTES)[0])
    with pytest.raises(CodecError, match="part 1 of a commit"):
        other.add(9, second)


def test_damage_and_newer_versions_are_refused() -> None:
    record = encode_commit(7, 3, b"data")[0]
    with pytest.raises(CodecError, match="fewer than its header"):
        place_of(record[:10])
    with pytest.raises(CodecError, match="does not match its checksum"):
        place_of(record[:-1] + b"!")
    with pytest.raises(CodecError, match="does not match its checksum"):
        place_of(record[:1] + b"\x09" + record[2:])
    with pytest.raises(CodecError, match=f"version {VERSION + 1}, and this broker reads {VERSION}: upgrade it"):
        place_of(bytes([VERSION + 1]) + record[1:])
