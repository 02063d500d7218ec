"""The admin socket of a real broker: what it answers, what it refuses, and what becomes of its file."""

import asyncio
import json
import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.core.limits import Limits
from mqttlite.gateway.admin_socket import SOCKET_NAME
from mqttlite.gateway.operator_servers import HEAD_BYTES, LIMITS
from mqttlite.server import Broker
from mqttlite.store.sqlite.files import StoreError
from mqttlite.wire.packets import Disconnect
from tests.integration.conftest import Rig
from tests.support.device import until


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory that is not there yet, with a short path."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as parent:
        yield Path(parent) / "data"


def config(directory: Path | str, **options: Any) -> Config:
    return Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory), **options)


@pytest.fixture
async def broker(rig: Rig, directory: Path) -> Broker:
    return await rig.broker(config(directory, limits=Limits(max_inflight=1)))


class Answer(NamedTuple):
    status: int
    body: Any
    head: str


async def send(directory: Path, request: bytes) -> Answer:
    reader, writer = await asyncio.open_unix_connection(str(directory / SOCKET_NAME))
    writer.write(request)
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return Answer(int(head.split()[1]), json.loads(body) if body else None, head.decode())


async def ask(directory: Path, method: str, target: str, body: bytes = b"") -> Answer:
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    kind = "Content-Type: application/json\r\n" if body else ""
    return await send(directory, f"{head}{kind}\r\n".encode() + body)


async def offline(rig: Rig, broker: Broker, client_id: str, *payloads: bytes, expiry: int = 100) -> None:
    """A client with a subscription, that went offline, and messages that wait for it."""
    device = await rig.device(broker.port, client_id, expiry=expiry)
    await device.subscribe("plant/#", 1)
    await device.disconnect()
    await until(lambda: (found := broker.admin.client(client_id)) is not None and not found.entry.connected)
    for payload in payloads:
        await broker.publish("plant/7", payload, qos=1)


# ── the file ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_only_the_user_of_the_broker_may_connect(broker: Broker, directory: Path) -> None:
    found = os.stat(directory / SOCKET_NAME)
    assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


@pytest.mark.long
async def test_a_stop_removes_the_socket_and_a_start_makes_it_again(directory: Path) -> None:
    broker = Broker(config(directory))
    for _ in range(2):
        await broker.start()
        assert (await ask(directory, "GET", "/api/v1/clients")).status == 200
        await broker.stop()
        assert SOCKET_NAME not in os.listdir(directory)


@pytest.mark.parametrize("data_dir", [None, ""])
async def test_without_a_data_directory_there_is_no_socket(
    rig: Rig, data_dir: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await rig.broker(Config(listeners=(ListenerOptions(port=0),), data_dir=data_dir))
    assert os.listdir(tmp_path) == []


async def test_a_second_broker_of_a_data_directory_does_not_start(broker: Broker, directory: Path) -> None:
    second = Broker(config(directory))
    with pytest.raises(StoreError, match=r"is in use by process \d+: give this broker another"):
        await second.start()
    assert (await ask(directory, "GET", "/api/v1/clients")).status == 200, "the first goes on"


async def test_the_socket_of_a_broker_that_was_killed_is_replaced(rig: Rig, directory: Path) -> None:
    os.mkdir(directory)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / SOCKET_NAME))
    await rig.broker(config(directory))
    assert (await ask(directory, "GET", "/api/v1/clients")).status == 200


@pytest.mark.parametrize("why", ["the path is too long", "there is a file"])
async def test_a_broker_runs_without_admin_socket_where_there_can_be_none(
    rig: Rig, directory: Path, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    if why == "the path is too long":
        directory = directory / ("d" * (108 - len(SOCKET_NAME) - len(str(directory)) - 2))
        assert len(str(directory / SOCKET_NAME)) == 108
    else:
        os.mkdir(directory, 0o700)
        (directory / SOCKET_NAME).write_text("mine")
    broker = await rig.broker(config(directory))
    await rig.device(broker.port, "c")
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "the broker runs without admin socket, and 'mqttlite sessions', 'queue', 'dlq', 'retained'," in warning
    assert "a data directory with a short path" in warning
    await broker.stop()
    assert (directory / SOCKET_NAME).exists() is (why == "there is a file")


async def test_the_longest_path_that_the_system_takes_is_served(rig: Rig, directory: Path) -> None:
    directory = directory / ("d" * (107 - len(SOCKET_NAME) - len(str(directory)) - 2))
    await rig.broker(config(directory))
    assert (await ask(directory, "GET", "/api/v1/clients")).status == 200


async def test_a_data_directory_that_cannot_be_made_is_a_wrong_config(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=r"the data directory .*/file/data cannot be made: Not a directory"):
        await Broker(config(file / "data")).start()


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_route_for_operators_is_served_and_no_other(broker: Broker, directory: Path) -> None:
    for path in ("clients", "bans", "retained", "delayed", "queues", "dead-letters", "snapshots", "status", "readyz"):
        assert (await ask(directory, "HEAD", f"/api/v1/{path}")).status == 200, path
    assert (await ask(directory, "GET", "/registry/subjects")).body == []
    assert (await ask(directory, "GET", "/registry/subjects/none/versions")).body["error_code"] == 40401
    for method, path in (("PUT", "/topics/a"), ("GET", "/api/v1/api-keys"), ("GET", "/docs"), ("GET", "/events")):
        answer = await ask(directory, method, path)
        assert (answer.status, answer.body["code"]) == (404, "not_found"), path


@pytest.mark.long
async def test_the_first_connections_are_all_answered_and_their_libraries_are_loaded_once(directory: Path) -> None:
    """In a process of its own, in which nothing is loaded yet."""
    program = f"""
import asyncio, sys
from mqttlite import Broker, Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
async def ask():
    reader, writer = await asyncio.open_unix_connection({str(directory / SOCKET_NAME)!r})
    writer.write(b"GET /api/v1/readyz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    return await reader.read()
async def main():
    metrics = MetricsOptions(port=0)
    async with Broker(Config(listeners=(ListenerOptions(port=0),), data_dir={str(directory)!r}, metrics=metrics)):
        assert not {{"starlette", "uvicorn", "prometheus_client"}} & set(sys.modules)
        for answer in await asyncio.gather(*(ask() for _ in range(10))):
            assert answer.startswith(b"HTTP/1.1 200 "), answer
    async with Broker(Config(listeners=(ListenerOptions(port=0),), data_dir={str(directory)!r})):
        waiting = asyncio.create_task(ask())
        await asyncio.sleep(0)
    await asyncio.gather(waiting, return_exceptions=True)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    async with asyncio.timeout(60):
        assert await process.wait() == 0


@pytest.mark.parametrize("client_id", ["c", "a/b", "a%2Fb", "ü€😀", "..", "a?b#c", "😀" * 1_024])
async def test_every_client_identifier_can_be_named(rig: Rig, broker: Broker, directory: Path, client_id: str) -> None:
    await offline(rig, broker, client_id, b"x")
    path = f"/api/v1/clients/{quote(client_id, safe='')}"
    found = (await ask(directory, "GET", path)).body
    assert (found["entry"]["client_id"], found["topic_filters"]) == (client_id, {"plant/#": 1})
    assert (await ask(directory, "DELETE", f"{path}/session")).body == {"success": True}
    assert broker.admin.client(client_id) is None


async def test_a_change_is_in_the_audit_log_as_of_the_socket(
    rig: Rig, broker: Broker, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqttlite.audit")
    device = await rig.device(broker.port, "c", expiry=100)
    assert (await ask(directory, "POST", "/api/v1/clients/c/disconnect")).status == 200
    assert (await device.expect(Disconnect)).reason_code == 0x98
    body = json.dumps({"kind": "client", "value": "c", "duration_s": 60}).encode()
    made = await ask(directory, "POST", "/api/v1/bans", body)
    assert (made.status, made.body["ban"]["by"]) == (201, "admin socket")
    assert [each.getMessage() for each in caplog.records] == [
        "POST /api/v1/clients/c/disconnect by admin socket: 200",
        "POST /api/v1/bans by admin socket: 201",
    ]


async def test_requests_are_limited_in_size(broker: Broker, directory: Path) -> None:
    topic = "t" * 60_000
    await broker.publish(topic, "x", qos=1, retain=True)
    assert (await ask(directory, "DELETE", f"/api/v1/retained?filter={quote(topic)}")).body["messages"] == 1
    assert (await ask(directory, "GET", f"/{'x' * HEAD_BYTES}")).status == 431
    limit = LIMITS.max_body_bytes
    assert (await ask(directory, "POST", "/api/v1/bans", b"{}".ljust(limit))).status == 422
    too_long = f"POST /api/v1/bans HTTP/1.1\r\nHost: x\r\nContent-Length: {limit + 1}\r\n\r\n"
    assert (await send(directory, too_long.encode())).status == 413


async def test_the_port_of_metrics_changes_nothing(rig: Rig, directory: Path) -> None:
    broker = await rig.broker(config(directory, metrics=MetricsOptions(port=0)))
    await rig.device(broker.port, "c")
    assert broker.monitor is not None
    for request in (b"DELETE /sessions/c", b"POST /sessions/c/kick", b"GET /sessions/c"):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.monitor.port)
        writer.write(request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).split()[1] in (b"404", b"405")
        writer.close()
    assert broker.admin.client("c") is not None
