"""Three servers that we start ourselves are a cluster. They come back when they die, and end with us."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mqttlite.engine.nats.engine import NatsEngine
from mqttlite.engine.nats.servers import NatsOptions
from mqttlite.engine.port import EngineUnavailable, EngineUnfit, Fenced
from mqttlite.extensions.cluster import engine_child
from mqttlite.extensions.cluster.engine_child import (
    ROUTE_OFFSET,
    EngineChild,
    EngineChildOptions,
    EngineTls,
    login_of,
    system_login_of,
)
from tests.support.nats_clusters import open_engine
from tests.support.nats_servers import free_ports
from tests.test_architecture import ROOT

pytestmark = pytest.mark.slow

SECRET = "a secret of the three machines"
WAIT_S = 30.0
DISK_BYTES = 1 << 30
PAGE_BYTES = 4_096

Start: TypeAlias = Callable[[EngineTls | None], Awaitable[tuple[list[EngineChild], NatsOptions]]]


def addresses(scheme: str = "nats") -> tuple[str, ...]:
    """Three addresses whose routes' ports are free, too."""
    while True:
        ports = free_ports(3)
        if all(map(is_free, (port + ROUTE_OFFSET for port in ports))):
            return tuple(f"{scheme}://127.0.0.1:{port}" for port in ports)


def is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError, OverflowError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    children: list[EngineChild] = []

    async def start(tls: EngineTls | None) -> tuple[list[EngineChild], NatsOptions]:
        servers = addresses("tls" if tls else "nats")
        for place, own in enumerate(servers):
            child = EngineChild(EngineChildOptions(servers, own, "c", tmp_path / f"engine {place}", SECRET, tls))
            children.append(child)
            await child.start()
        context = ssl.create_default_context(cafile=str(tls.ca)) if tls else None
        login, system = login_of(SECRET), system_login_of(SECRET)
        return children, NatsOptions(servers, "c", login, context, max_file_bytes=64 * 1024 * 1024, system=system)

    yield start
    await asyncio.gather(*(child.stop() for child in children))


def certificate(folder: Path) -> EngineTls:
    """One that signs itself, for both uses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = datetime.now(UTC)
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(uses, critical=False)
        .sign(key, hashes.SHA256())
    )
    files = EngineTls(folder / "engine.crt", folder / "engine.key", folder / "engine.crt")
    files.cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return files


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.05)


async def test_three_children_are_a_cluster_that_syncs_always(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mqttlite.engine"):
        children, options = await start(None)
        engine = await open_engine(options)  # which checks `sync_interval` by the system account
    await engine.ensure_log("log", 1_000_000)
    assert await engine.append("log", 0, b"first") == 1
    assert "Server is ready" in caplog.messages
    assert (tmp_path / "engine 0" / "nats-server.conf").stat().st_mode & 0o077 == 0
    with pytest.raises(EngineUnfit, match="refuse our login"):
        await open_engine(replace(options, login=login_of("another secret of ours")))
    dead = children[0].pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    async with asyncio.timeout(WAIT_S):
        while children[0].pid == dead or children[0].restarts == 0:
            await asyncio.sleep(0.05)
    assert [child.restarts for child in children] == [1, 0, 0]
    pids = [child.pid for child in children]
    await engine.close()
    await asyncio.gather(*(child.stop() for child in children))
    for pid in pids:
        assert pid is not None
        await gone(pid)
    assert [child.pid for child in children] == [None] * 3


async def test_children_with_certificates_talk_by_tls(start: Start, tmp_path: Path) -> None:
    _, options = await start(certificate(tmp_path))
    engine = await open_engine(options)
    await engine.ensure_log("log", 1_000_000)
    assert await engine.append("log", 0, b"first") == 1
    await engine.close()


PARENT = """
import asyncio, sys
from pathlib import Path
from mqttlite.extensions.cluster.engine_child import EngineChild, EngineChildOptions

async def main():
    servers = tuple(sys.argv[2:])
    options = EngineChildOptions(servers, servers[0], "c", Path(sys.argv[1]), "a secret of the three machines")
    child = EngineChild(options)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child goes on, which the module says")
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The child is silent: one that writes would notice that nobody reads its lines."""
    silent = tmp_path / "nats-server"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    command = [sys.executable, "-c", PARENT, str(tmp_path), *addresses()]
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            wait_until(lambda: Path(f"/proc/{pid}/exe").resolve().name == "sleep")
        finally:
            parent.kill()
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists())


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


async def test_a_child_that_keeps_nothing_is_started_again_when_its_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = tmp_path / "bin" / "nats-server"
    server.parent.mkdir()
    starts = tmp_path / "starts"
    server.write_text(
        f"#!/bin/sh\necho >> {starts}\n"
        'echo "[1] [ERR] JetStream out of File resources, will be DISABLED" >&2\nexec sleep 60\n'
    )
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{server.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(engine_child, "RESTART_S", 0.01)
    monkeypatch.setattr(engine_child, "ROOM_CHECK_S", 0.01)
    monkeypatch.setattr(engine_child, "ROOM_BYTES", 1 << 62)
    servers = addresses()
    child = EngineChild(EngineChildOptions(servers, servers[0], "c", tmp_path / "engine", SECRET))
    await child.start()
    try:
        await said(caplog, "keeps no records until")
        await asyncio.sleep(0.2)
        assert starts.read_text().count("\n") == 1, "there is no room yet"
        monkeypatch.setattr(engine_child, "ROOM_BYTES", 1)
        async with asyncio.timeout(WAIT_S):
            while child.restarts < 2:
                await asyncio.sleep(0.05)
    finally:
        await child.stop()


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while text not in caplog.text:
            await asyncio.sleep(0.05)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_server_whose_disk_was_full_keeps_records_again(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a disk in memory, which only root may mount."""
    disk = tmp_path / "engine 0"
    disk.mkdir()
    if mount(disk, DISK_BYTES, "-t", "tmpfs"):
        pytest.skip("a disk cannot be mounted here")
    try:
        children, options = await start(None)
        engine = await open_engine(options)
        await engine.ensure_log("log", 64 * 1024 * 1024)
        acknowledged: list[bytes] = []
        await append(engine, acknowledged)
        while mount(disk, shutil.disk_usage(disk).used + PAGE_BYTES, "-o", "remount"):
            pass  # it had more meanwhile
        while "keeps no records until" not in caplog.text:
            await append(engine, acknowledged)
        restarts = children[0].restarts
        for _ in range(20):
            await append(engine, acknowledged)
        assert mount(disk, DISK_BYTES, "-o", "remount") == 0
        async with asyncio.timeout(WAIT_S):
            while children[0].restarts == restarts or (await engine.bounds("log")).away:
                await asyncio.sleep(0.1)
        await append(engine, acknowledged)
        found = [each.blob for each in await engine.read("log", 1, len(acknowledged))]
        assert found == acknowledged[: len(found)]
        assert (await engine.bounds("log")).last == len(acknowledged)
        await engine.close()
        for child in children:
            await child.stop()
    finally:
        unmount(disk)


def unmount(disk: Path) -> None:
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def mount(disk: Path, size: int, *how: str) -> int:
    """A disk in memory with so much room; 0 if that was done."""
    return subprocess.run(["mount", *how, "-o", f"size={size}", "none", str(disk)], capture_output=True).returncode


async def append(engine: NatsEngine, acknowledged: list[bytes]) -> None:
    """Append one more record, as often as it takes."""
    blob = f"{len(acknowledged)} ".encode() * 1_000
    async with asyncio.timeout(WAIT_S):
        while True:
            last = len(acknowledged)
            try:
                last = await engine.append("log", last, blob)
            except Fenced as error:
                last = error.last  # it was stored, and the answer was lost
            except EngineUnavailable:
                await asyncio.sleep(0.1)
                continue
            acknowledged.append(blob)
            assert last == len(acknowledged)
            return
