"""The machine that serves keeps room in the log."""

import logging
from pathlib import Path

import pytest

from mqttlite.engine.memory import MemoryServers
from mqttlite.extensions.cluster import keys
from mqttlite.extensions.cluster.disk import DataDirectory
from mqttlite.extensions.cluster.log_room import LogRoom
from mqttlite.extensions.cluster.options import LEAST_LOG_BYTES


async def test_the_log_says_once_that_room_cannot_be_made_and_once_that_it_can_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    servers = MemoryServers()
    engine = servers.connect()
    await engine.ensure_log(keys.LOG, LEAST_LOG_BYTES)
    room = LogRoom(engine, DataDirectory(tmp_path), LEAST_LOG_BYTES)
    servers.is_available = False
    for _ in range(3):
        await room.make_room(0, [])
    assert room.is_silent
    servers.is_available = True
    for _ in range(3):
        await room.make_room(0, [])
    assert not room.is_silent
    said = [each.getMessage() for each in caplog.records if each.name == "mqttlite.cluster"]
    assert len(said) == 2
    assert said[0].startswith("the log cannot be made shorter, trying again: ")
    assert said[1] == "the log is made shorter again"
    servers.is_available = False
    await room.make_room(0, [])
    assert len(caplog.records) == 3, "another time is said again"
