"""What systemd is told, on a socket that stands for its own."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite.net import service_manager
from mqttlite.net.service_manager import ServiceManager


class Systemd:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """The messages since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4_096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(str(tmp_path / "notify") if request.param == "path" else f"\0mqttlite-test-{os.getpid()}")
    yield systemd
    systemd.close()


def test_it_tells_the_state_of_the_process(systemd: Systemd) -> None:
    manager = ServiceManager(systemd.environment)
    manager.ready()
    assert systemd.heard() == ["READY=1"]
    before_us = time.monotonic_ns() // 1_000
    manager.reloading()
    state, time_us = systemd.heard()[0].splitlines()
    assert state == "RELOADING=1"
    assert before_us <= int(time_us.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1_000
    manager.ready()
    manager.stopping(12.5)
    assert systemd.heard() == ["READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=12500000"]


async def test_the_watchdog_is_fed_twice_an_interval_once_the_broker_is_ready(systemd: Systemd) -> None:
    manager = ServiceManager(systemd.environment | {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())})
    assert systemd.heard() == []
    manager.ready()
    manager.ready()
    assert systemd.heard() == ["READY=1", "WATCHDOG=1", "READY=1"]
    began = time.monotonic()
    heard: list[str] = []
    async with asyncio.timeout(60):
        while len(heard) < 4:
            await asyncio.sleep(0.001)
            heard += systemd.heard()
    assert set(heard) == {"WATCHDOG=1"}
    assert time.monotonic() - began >= 0.025, "but for the first, which may have been due when this began"


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}]
)
async def test_no_watchdog_is_fed_where_none_waits_for_this_process(systemd: Systemd, watchdog: dict[str, str]) -> None:
    ServiceManager(systemd.environment | watchdog).ready()
    await asyncio.sleep(0.03)
    assert systemd.heard() == ["READY=1"]


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a socket was opened"))
    manager = ServiceManager({"WATCHDOG_USEC": "20000"})
    manager.ready()
    manager.reloading()
    manager.stopping(1)


def test_a_service_manager_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert caplog.messages == ["the service manager was not told READY=1: [Errno 2] No such file or directory"]


async def test_a_start_asks_for_time_until_it_is_ready(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "STARTING_S", 0.02)
    manager = ServiceManager(systemd.environment)
    manager.starting()
    asked: list[str] = []
    async with asyncio.timeout(60):
        while len(asked) < 3:
            await asyncio.sleep(0.001)
            asked += systemd.heard()
    assert set(asked) == {"EXTEND_TIMEOUT_USEC=20000"}
    manager.ready()
    await asyncio.sleep(0.1)
    assert systemd.heard() == ["READY=1"]
