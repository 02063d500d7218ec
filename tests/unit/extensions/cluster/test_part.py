"""A file on its way from the engine: what has come of it is kept, and nothing that is wrong."""

import asyncio
import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("nats")

from mqttlite.engine.nats.files import _on_disk
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


def test_chunks_behind_the_note_are_fetched_again(tmp_path: Path) -> None:
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


def test_a_part_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        begun(tmp_path / "f")
        found = [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]
        assert found == [0o600, 0o600]
        for path in tmp_path.iterdir():
            path.chmod(0o644)  # as an older version leaves it
        part = Part(tmp_path / "f", "n1")
        part.add(b"g", 11)
        assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]
        part.close()
    finally:
        os.umask(former)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_a_full_disk_keeps_no_part(tmp_path: Path) -> None:
    begun(tmp_path / "f")
    part = Part(tmp_path / "f", "n1")
    part._file.close()
    part._file = open("/dev/full", "wb")  # noqa: SIM115 closed by `close`
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        part.add(b"more", 11)
    part.close()
    assert os.listdir(tmp_path) == []


async def test_a_transfer_that_is_cancelled_ends_after_its_work_on_the_disk() -> None:
    may_end = threading.Event()
    transfer = asyncio.create_task(_on_disk(may_end.wait, 30.0))
    await asyncio.sleep(0.01)
    transfer.cancel()
    await asyncio.sleep(0.01)
    assert not transfer.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await transfer
