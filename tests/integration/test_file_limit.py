"""The limit on open files: connections beyond it are closed and counted, and the log tells when it begins and ends."""

import os
import resource
from collections.abc import Iterator

import pytest

from mqttlite.net import file_limit
from mqttlite.net.file_limit import RESERVED_FILES, FileLimit
from tests.integration.conftest import Rig
from tests.support.device import Device, until


@pytest.fixture
def lowest() -> Iterator[int]:
    """The lowest number that a new file would get; the limit may be changed meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    file = os.dup(0)
    os.close(file)
    yield file
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "open files" in record.getMessage()]


@pytest.mark.long
async def test_clients_beyond_the_limit_are_closed_with_one_line_and_come_in_when_there_is_room(
    rig: Rig, lowest: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_limit, "CHECK_S", 0.05)
    limit = lowest + RESERVED_FILES + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    broker = await rig.broker()
    inside: list[Device] = []
    (listener,) = broker.listeners
    while listener.turned_away < 3:
        come = len(inside) + listener.turned_away
        device = await rig.dial(broker.port)
        await until(lambda come=come: listener.open + listener.turned_away > come)  # type: ignore[misc]
        if listener.open > len(inside):
            await device.connect(f"device-{len(inside)}")
            inside.append(device)
        else:
            await device.close()
    assert inside
    assert said(caplog) == [
        f"tcp-0: the limit of {limit} open files is reached (ulimit -n, LimitNOFILE=): new connections are closed"
    ]
    await inside[0].ping()
    for device in inside:
        await device.close()
    await until(lambda: len(said(caplog)) == 2)
    assert said(caplog)[1] == "tcp-0: 3 connections were closed at the limit of open files"
    await rig.device(broker.port, "later")


@pytest.mark.parametrize(("room", "expected"), [(-1, False), (0, False), (1, True)])
async def test_connections_leave_files_for_the_rest(lowest: int, room: int, expected: bool) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = FileLimit("tcp-1883")
    assert limit.has_room(), "before it is open"
    spare = [os.dup(0) for _ in range(4 * RESERVED_FILES)]  # so many that less than a quarter of them is kept
    highest = max(spare) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + RESERVED_FILES + room, hard))
    limit.open()  # takes a number, and asks for the next
    try:
        assert limit.has_room() is expected
    finally:
        limit.close()
        for file in spare:
            os.close(file)
    assert limit.has_room(), "after it is closed"


async def test_a_table_that_is_full_has_no_room_and_the_end_is_told_at_a_stop(
    lowest: int, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FileLimit("tcp-1883")
    limit.open()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
    assert not limit.has_room()
    limit.turn_away()
    limit.turn_away()
    limit.close()
    limit.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert said(caplog)[1:] == ["tcp-1883: 2 connections were closed at the limit of open files"]
