"""`mqttlite serve` as a process: its lines, its signals, its exit codes."""

import asyncio
import json
import os
import pty
import re
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqttlite.cli.serve import FILES_AT_ONCE
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from tests.support.device import Device

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["uvloop"])]
ROOT = Path(__file__).resolve().parent.parent.parent


class Served:
    def __init__(self, process: asyncio.subprocess.Process, port: int, log: list[str]) -> None:
        self.process = process
        self.port = port
        self.log = log

    async def says(self, text: str) -> None:
        """Read the log up to a line with this text."""
        async with asyncio.timeout(60):
            assert self.process.stderr is not None
            while text not in "".join(self.log[-1:]):
                line = await self.process.stderr.readline()
                assert line, self.log
                self.log.append(line.decode().rstrip())

    async def ends(self, within_s: float) -> int:
        async with asyncio.timeout(within_s):
            assert self.process.stderr is not None
            self.log += (await self.process.stderr.read()).decode().splitlines()
            return await self.process.wait()


async def start(
    *arguments: str, log_format: str = "text", stderr: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", "serve", "--log-format", log_format, *arguments),
        stderr=stderr,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"},
    )


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[Served]:
    process = await start(*(arguments or ("--port", "0")))
    log: list[str] = []
    port = 0
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while not port:
                line = (await process.stderr.readline()).decode().rstrip()
                assert line or not process.stderr.at_eof(), log
                log.append(line)
                found = re.search(r"listening for MQTT over \w+ on 127\.0\.0\.1:(\d+)", line)
                port = int(found[1]) if found else 0
        yield Served(process, port, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_an_ordinary_start_loads_no_unused_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these takes 20 to 100 ms of processor, at every start."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    async with serving("--port", "0", "--no-persistence") as served:
        served.process.terminate()
        assert await served.ends(60) == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in served.log if "import time:" in line}
    assert {"mqttlite", "msgspec", "asyncio"} <= loaded
    optional = (
        "cryptography jwt scramp asn1crypto wsproto starlette uvicorn pyarrow jsonschema fastavro httpx rich curses"
    )
    assert not set(optional.split()) & loaded


async def fails(*arguments: str) -> tuple[int, str]:
    """Its exit code and its last line."""
    process = await start(*arguments)
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in errors
    return process.returncode, errors.decode().splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
async def test_a_signal_ends_it_with_a_goodbye_and_exit_code_0(number: signal.Signals) -> None:
    async with serving() as served:
        device = await Device.dial(served.port)
        await device.connect("device")
        served.process.send_signal(number)
        assert await device.goodbye() == 0x8B
        await device.close()
        assert await served.ends(5) == 0
        assert any("stopping" in line for line in served.log)
        assert not any("Traceback" in line or "Warning" in line or "ERROR" in line for line in served.log), served.log


async def test_a_log_without_a_reader_freezes_no_client_and_the_end_is_in_time() -> None:
    reader, writer = os.pipe()
    process = await start("--port", "0", stderr=writer)
    os.close(writer)
    try:
        text = b""
        while not (found := re.search(rb"listening for MQTT over TCP on 127\.0\.0\.1:(\d+)", text)):
            text += await asyncio.to_thread(os.read, reader, 4_096)
        resident = await Device.dial(int(found[1]))
        await resident.connect("resident")
        for number in range(80):  # a kilobyte of log for each, twice: more than a pipe holds
            device = await Device.dial(int(found[1]))
            await device.connect(f"{number:01000}")
            await device.close()
        await resident.ping()
        process.terminate()
        assert await resident.goodbye() == 0x8B
        await resident.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(reader)


async def test_sighup_reads_files_again_and_names_changes_that_need_a_restart(certs: Path, tmp_path: Path) -> None:
    users, config = tmp_path / "users", tmp_path / "broker.toml"
    set_user(users, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    for name in ("server.crt", "server.key"):
        (tmp_path / name).write_bytes((certs / name).read_bytes())
    text = f"password_file = '{users}'\n[[listeners]]\nport = 0\n[[listeners]]\nport = 0\n"
    text += f"tls.cert_file = '{tmp_path}/server.crt'\ntls.key_file = '{tmp_path}/server.key'\n"
    config.write_text(text)
    async with serving("-c", str(config)) as served:
        device = await Device.dial(served.port)
        await device.connect("device", username="ann")
        config.write_text(text.replace("port = 0", "port = 1", 1) + "[limits]\nmax_inflight = 7\n")
        served.process.send_signal(signal.SIGHUP)
        await served.says("tls-0: reloaded for new connections: ")
        config.write_text("no such thing")
        (tmp_path / "server.crt").write_text("no certificate")
        users.write_text("no user")
        served.process.send_signal(signal.SIGHUP)
        await served.says("tls-0: the former certificates stay in use: listeners[1].tls.cert_file: ")
        await device.ping()
        newcomer = await Device.dial(served.port)
        await newcomer.connect("newcomer", username="ann")
        for each in (device, newcomer):
            await each.close()
        served.process.terminate()
        assert await served.ends(5) == 0
    log = "\n".join(served.log)
    assert f"WARNING {config}: changed, but needs a restart: listeners[0].port, limits.max_inflight" in log
    assert f"INFO    {users} was read again: 1 users" in log
    assert f"ERROR   the configuration stays as it was: {config}:1: " in log
    assert f"ERROR   the users stay as they were: {users}:1: " in log
    assert f"{tmp_path}/server.crt holds no PEM certificate" in log


async def test_sigusr2_logs_a_line_of_status() -> None:
    async with serving() as served:
        device = await Device.dial(served.port)
        await device.connect("device")
        await device.subscribe("a")
        device.publish("kept", b"", retain=True)
        device.publish("kept", b"value", retain=True)
        await device.ping()
        served.process.send_signal(signal.SIGUSR2)
        await served.says("status: 1 connections, 1 sessions, 1 subscriptions, 1 retained messages, 0 queued messages")
        await device.ping()
        await device.close()
        served.process.terminate()
        assert await served.ends(5) == 0


async def test_a_frozen_client_and_a_second_signal_do_not_hold_it_up() -> None:
    async with serving() as served:
        frozen = await Device.dial(served.port, small_buffers=True)
        await frozen.connect("frozen")
        await frozen.subscribe("flood")
        frozen.freeze()
        publisher = await Device.dial(served.port)
        await publisher.connect("publisher")
        for _ in range(200):
            publisher.publish("flood", bytes(50_000))
            await publisher.ping()
        served.process.send_signal(signal.SIGTERM)
        assert await publisher.goodbye() == 0x8B
        await publisher.close()
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends(9) == 0
        assert any("clients that did not leave within 5 s" in line for line in served.log)
        await frozen.close()


async def test_a_stop_during_a_tls_handshake_is_quick(certs: Path) -> None:
    files = ("--cert", str(certs / "server.crt"), "--key", str(certs / "server.key"))
    async with serving("--tls-port", "0", *files) as served:
        silent = await Device.dial(served.port)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends(3) == 0
        await silent.close()


async def test_it_may_open_as_many_files_as_the_system_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as served:
        assert resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def has_room_for_many_files(pid: int) -> bool:
    """Whether the kernel need not make room for more of them when clients come; only Linux says."""
    status = Path(f"/proc/{pid}/status").read_text()
    (room,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize:"))
    return room >= min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], FILES_AT_ONCE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_there_is_room_for_many_files_before_clients_come() -> None:
    async with serving() as served:
        assert has_room_for_many_files(served.process.pid)


async def line_of_ours(log: asyncio.StreamReader) -> dict[str, Any]:
    """The next line but those of asyncio, which in its debug mode tells of passes that took long."""
    while True:
        line: dict[str, Any] = json.loads(await log.readline())
        if line["logger"] != "asyncio":
            return line


async def test_without_a_terminal_the_log_is_json_that_says_whom_each_line_is_about() -> None:
    process = await start("--port", "0", log_format="auto")
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while "listening" not in (line := json.loads(await process.stderr.readline()))["message"]:
                pass
            port = int(line["message"].rsplit(":", 1)[1].split()[0])
            device = await Device.dial(port)
            await device.connect("c/1")
            connected = await line_of_ours(process.stderr)
            await device.close()
            gone = await line_of_ours(process.stderr)
            rude = await Device.dial(port)
            rude.send_bytes(b"\xff\xff")
            await rude.goodbye()
            refused = await line_of_ours(process.stderr)
            await rude.close()
        process.terminate()
        rest, _ = await process.communicate()
        assert rest is None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    about = {"peer": device.address, "client_id": "c/1", "connection_id": 1, "listener": "tcp-0"}
    assert {name: connected[name] for name in about} == about
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", connected["time"])
    assert (connected["level"], connected["logger"]) == ("info", "mqttlite")
    assert connected["message"].startswith(f"{device.address} client 'c/1' connected: MQTT 5.0 on tcp-0")
    assert {name: gone[name] for name in about} == about
    assert "disconnected" in gone["message"]
    assert refused["level"] == "warning"
    assert {name: refused[name] for name in about} == {
        **about, "peer": rude.address, "client_id": None, "connection_id": 2
    }  # fmt: skip


async def test_on_a_terminal_the_log_is_text() -> None:
    ours, theirs = pty.openpty()
    process = await start("--port", "0", log_format="auto", stderr=theirs)
    os.close(theirs)
    try:
        text = b""
        while b"listening for MQTT over TCP on 127.0.0.1:" not in text:
            text += await asyncio.to_thread(os.read, ours, 4_096)
        assert re.match(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    mqttlite ", text)
    finally:
        process.kill()
        await process.wait()
        os.close(ours)


async def test_a_port_in_use_is_exit_code_1_and_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await fails("--port", str(port)) == (
            1,
            f"mqttlite serve: cannot listen on 127.0.0.1:{port} (tcp-{port}): the port is in use; stop the program "
            "that uses it, or choose another port",
        )
