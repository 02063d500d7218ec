"""The unit of systemd: it is valid, it is hardened, and the broker that it starts tells systemd what it does."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mqttlite.config import load_config
from tests.interop.support import tool
from tests.test_architecture import ROOT

UNIT = ROOT / "packaging" / "systemd" / "mqttlite.service"
CONFIG = UNIT.with_name("mqttlite.toml")
WORST_EXPOSURE = 2.0
LIMIT_S = 30.0


def options() -> dict[str, str]:
    """The last value of each option."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.long
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    program = shlex.split(options()["ExecStart"])[0]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(program, sys.executable), encoding="utf-8")
    done = subprocess.run(
        [tool("systemd-analyze", package="systemd"), "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_the_service_is_hardened() -> None:
    command = [tool("systemd-analyze", package="systemd"), "security", "--offline=true", "--no-pager", UNIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    exposure = re.search(r"Overall exposure level for mqttlite.service: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stdout + done.stderr
    assert float(exposure[1]) <= WORST_EXPOSURE


def test_the_configuration_of_the_service_can_be_used() -> None:
    config = load_config(str(CONFIG))
    assert [listener.host for listener in config.listeners] == ["127.0.0.1"]
    assert config.metrics is not None
    assert config.telemetry is not None
    assert not Path(config.telemetry.directory).is_absolute(), "the unit's StateDirectory is the only one to write to"
    assert config.data_dir is None, "it is the unit's StateDirectory"
    assert options()["WorkingDirectory"] == f"/var/lib/{options()['StateDirectory']}"


def test_only_the_broker_is_asked_to_stop() -> None:
    assert options()["KillMode"] == "mixed", "a server of the engine that is its child must outlive its last commit"


@pytest.mark.slow
def test_the_broker_tells_systemd_that_it_is_ready_reloads_and_stops(tmp_path: Path) -> None:
    assert (options()["Type"], options()["WatchdogSec"]) == ("notify", "30s")
    _, *arguments = shlex.split(options()["ExecStart"])
    config = tmp_path / "mqttlite.toml"
    config.write_text(re.sub(r"port = \d+", "port = 0", CONFIG.read_text(encoding="utf-8")), encoding="utf-8")
    state = tmp_path / "state"
    state.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(LIMIT_S)
        process = subprocess.Popen(
            [sys.executable, "-m", "mqttlite", *arguments[:-1], str(config)],
            cwd=state,
            env={
                **os.environ,
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "WATCHDOG_USEC": "30000000",
                "STATE_DIRECTORY": str(state),  # as systemd for StateDirectory=
                "PYTHONPATH": str(ROOT),
            },
            stderr=subprocess.DEVNULL,
        )
        try:
            assert [notified.recv(4_096) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
            process.send_signal(signal.SIGHUP)
            assert notified.recv(4_096).startswith(b"RELOADING=1\n")
            assert notified.recv(4_096) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            state_line, extension = notified.recv(4_096).decode().splitlines()
            assert state_line == "STOPPING=1"
            needed_s = int(extension.removeprefix("EXTEND_TIMEOUT_USEC=")) / 1_000_000
            assert needed_s <= float(options()["TimeoutStopSec"].removesuffix("s"))
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait()
    assert (state / "telemetry").is_dir()
    assert (state / "mqttlite.db").is_file()
