"""A file on its way from the engine: what has come of it is kept, and nothing that is wrong."""

import hashlib
import os
from pathlib import Path

import pytest

pytest.importorskip("nats")

from mqttlite.engine.nats.part import Part


def begun(path: Path) -> Part:
    part = Part(path, "n1")
    part.add(b"abc", 5)
    part.add(b"def", 9)
    part.close()
    return part


def test_a_part_goes_on_where_it_was(tmp_path: Path) -> None:
    begun(tmp_path / "f")
    part = Part(tmp_path / "f", "n1")
    assert (part.chunks, part.sequence) == (2, 9)
    part.add(b"g", 11)
    assert part.digest == hashlib.sha256(b"abcdefg").digest()
    part.finish()
    part.close()
    assert (tmp_path / "f").read_bytes() == b"abcdefg"
    assert os.listdir(tmp_path) == ["f"]


def test_what_was_written_behind_the_note_comes_again(tmp_path: Path) -> None:
    begun(tmp_path / "f")
    with open(tmp_path / "f.part", "ab") as file:
        file.write(b"half a chunk")  # a kill came before the note
    part = Part(tmp_path / "f", "n1")
    part.add(b"g", 11)
    part.finish()
    part.close()
    assert (tmp_path / "f").read_bytes() == b"abcdefg"


@pytest.mark.parametrize("fault", ["another file", "no part", "a short part", "no note", "half a note"])
def test_a_part_that_does_not_match_is_begun_again(tmp_path: Path, fault: str) -> None:
    begun(tmp_path / "f")
    if fault == "no part":
        (tmp_path / "f.part").unlink()
    elif fault == "a short part":
        os.truncate(tmp_path / "f.part", 5)
    elif fault == "no note":
        (tmp_path / "f.part.note").unlink()
    elif fault == "half a note":
        os.truncate(tmp_path / "f.part.note", 10)
    part = Part(tmp_path / "f", "n2" if fault == "another file" else "n1")
    assert (part.chunks, part.sequence, part.digest) == (0, 0, hashlib.sha256().digest())
    part.add(b"new", 1)
    part.finish()
    part.close()
    assert (tmp_path / "f").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]


def test_a_transfer_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    Part(tmp_path / "f", "n1").close()
    assert os.listdir(tmp_path) == []
