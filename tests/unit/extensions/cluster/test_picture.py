"""The picture of the log: it gets commits in order, with its position, however often its disk fails."""

import asyncio
import random
from pathlib import Path

import pytest

from mqttlite.core.changes import Change, Enqueue, SaveSession
from mqttlite.core.message import Delivery, Message
from mqttlite.extensions.cluster import picture
from mqttlite.extensions.cluster.disk import DataDirectory, Position, is_empty, position_of
from mqttlite.extensions.cluster.picture import Picture
from tests.simulation.cluster import ModelDisk


def enqueue(at: int) -> Change:
    return Enqueue("s", at, Delivery(Message(b"t", b"%d" % at, 1), 1, False))


@pytest.fixture
def disk(tmp_path: Path) -> ModelDisk:
    disk = ModelDisk("a", random.Random(1), {}, tmp_path)
    disk.state.commit([SaveSession("s", 60, 0.0)])
    return disk


async def test_a_page_waits_for_what_the_log_has(disk: ModelDisk) -> None:
    found = Picture(disk.open(), Position(0, "id"))
    for at in range(3):
        found.add([enqueue(at)], at + 1, 100)
    page = await found.page("s", 0, 10)
    assert [each.message.payload for each in page if each is not None] == [b"0", b"1", b"2"]
    assert (found.position, disk.position()) == (3, 3)


async def test_a_disk_that_fails_holds_what_comes_and_goes_on(
    disk: ModelDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(picture, "RETRY_S", 0.001)
    monkeypatch.setattr(picture, "UNAPPLIED_BYTES", 150)
    disk.is_full = True
    found = Picture(disk.open(), Position(0, "id"))
    found.add([enqueue(0)], 1, 100)
    assert not found.is_too_far_behind
    found.add([enqueue(1)], 2, 100)
    assert found.is_too_far_behind
    waits = asyncio.create_task(found.has_room())
    await asyncio.sleep(0.05)
    assert not waits.done()
    disk.is_full = False
    await waits
    await found.reached(2)
    assert "the database cannot be written (attempt 1), trying again: the disk is full" in caplog.text
    assert "the database was written at attempt" in caplog.text


async def test_a_checkpoint_makes_safe_what_was_there_before_it(disk: ModelDisk) -> None:
    found = Picture(disk.open(), Position(0, "id"))
    found.add([enqueue(0)], 1, 100)
    await found.reached(1)
    assert found.durable == 0
    while found.durable < 1:
        await found.checkpoint()
    assert disk.safe == 1


async def test_the_data_directory_keeps_a_position_and_copies_itself(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path / "a")
    database = first.open()
    assert (position_of(database), is_empty(database), first.is_marked) == (None, True, False)
    first.mark()
    found = Picture(database, Position(0, "id"))
    found.add([SaveSession("s", 60, 0.0), enqueue(0)], 7, 100)
    await found.reached(7)
    await found.checkpoint()
    assert found.durable == 7
    await first.copy()
    await first.close(database)
    second = DataDirectory(tmp_path / "b")
    second.snapshot_file.parent.mkdir()
    first.snapshot_file.rename(second.snapshot_file)
    await second.replace()
    again = second.open()
    assert position_of(again) == (7, "id")
    page = await again.page("s", 0, 1)
    assert page[0] is not None
    assert page[0].message.payload == b"0"
    await second.close(again)


async def test_a_look_never_takes_the_position_back(disk: ModelDisk) -> None:
    found = Picture(disk.open(), Position(0, "id"))
    for at in range(20):
        found.add([enqueue(at)], at + 1, 100)
        await found.reached(at + 1)
        looking = asyncio.create_task(found.look())
        await asyncio.sleep(0)
        found.add([], at + 2, 100)
        await found.reached(at + 2)
        assert await looking == ""
        assert disk.position() == found.position == at + 2


async def test_a_look_that_fails_is_tried_again_before_what_comes(
    disk: ModelDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "RETRY_S", 0.2)
    found = Picture(disk.open(), Position(0, "id"))
    found.add([enqueue(0)], 1, 100)
    await found.reached(1)
    disk.is_full = True
    assert await found.look() == "the disk is full"
    found.add([enqueue(1)], 2, 100)
    before = len(disk.commits)
    disk.is_full = False
    await found.reached(2)
    looked, came = disk.commits[before:]
    assert (len(looked), len(came)) == (1, 2), "the position alone, then the message"
    assert await found.look() == ""
