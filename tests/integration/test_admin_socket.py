"""The admin socket of a real broker: what it answers, what it refuses, and what becomes of its file."""

import asyncio
import json
import logging
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from mqttlite import admin_socket
from mqttlite.admin import MAX_PAGE
from mqttlite.admin_socket import BODY_BYTES, HEAD_BYTES, SOCKET_NAME
from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.net.http import Options
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
    return Answer(int(head.split()[1]), json.loads(body), head.decode())


async def ask(directory: Path, method: str, target: str, body: bytes = b"") -> Answer:
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return await send(directory, head.encode() + body)


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


async def test_a_stop_removes_the_socket_and_a_start_makes_it_again(directory: Path) -> None:
    broker = Broker(config(directory))
    for _ in range(2):
        await broker.start()
        assert (await ask(directory, "GET", "/sessions")).status == 200
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
    assert (await ask(directory, "GET", "/sessions")).status == 200, "the first goes on"


async def test_the_socket_of_a_broker_that_was_killed_is_replaced(rig: Rig, directory: Path) -> None:
    os.mkdir(directory)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / SOCKET_NAME))
    await rig.broker(config(directory))
    assert (await ask(directory, "GET", "/sessions")).status == 200


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
    assert (await ask(directory, "GET", "/sessions")).status == 200


async def test_a_data_directory_that_cannot_be_made_is_a_wrong_config(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=r"the data directory .*/file/data cannot be made: Not a directory"):
        await Broker(config(file / "data")).start()


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_sessions_are_listed_by_page_also_those_of_offline_clients(
    rig: Rig, broker: Broker, directory: Path
) -> None:
    await offline(rig, broker, "away", b"1", b"2")
    await rig.device(broker.port, "here")
    first = (await ask(directory, "GET", "/sessions?limit=1")).body
    [away] = first["entries"]
    assert (away["client_id"], away["connected"], away["subscriptions"], away["queued"]) == ("away", False, 1, 2)
    assert away["session_ends_at"].endswith("Z")
    second = (await ask(directory, "GET", f"/sessions?limit=1&cursor={first['cursor']}")).body
    assert ([each["client_id"] for each in second["entries"]], second["cursor"]) == (["here"], "")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("contains=way", ["away"]),
        ("connected=true", ["here"]),
        ("connected", ["here"]),
        ("connected=false", ["away"]),
        ("", ["away", "here"]),
        (f"limit={MAX_PAGE}", ["away", "here"]),
    ],
)
async def test_sessions_are_found(rig: Rig, broker: Broker, directory: Path, query: str, expected: list[str]) -> None:
    await offline(rig, broker, "away")
    await rig.device(broker.port, "here")
    found = (await ask(directory, "GET", f"/sessions?{query}")).body["entries"]
    assert [each["client_id"] for each in found] == expected


@pytest.mark.parametrize("client_id", ["c", "a/b", "a b", "a%2Fb", "ü€😀", "..", "sessions", "a?b#c", "😀" * 1_024])
async def test_every_client_identifier_can_be_named(rig: Rig, broker: Broker, directory: Path, client_id: str) -> None:
    await offline(rig, broker, client_id, b"x")
    path = f"/sessions/{quote(client_id, safe='')}"
    found = (await ask(directory, "GET", path)).body
    assert (found["entry"]["client_id"], found["topic_filters"]) == (client_id, {"plant/#": 1})
    assert (await ask(directory, "GET", f"{path}/queue")).body["waiting"] == 1
    assert (await ask(directory, "DELETE", path)).body == {"ended": True}
    assert broker.admin.client(client_id) is None


async def test_a_kick_closes_the_connection_and_keeps_the_session(rig: Rig, broker: Broker, directory: Path) -> None:
    device = await rig.device(broker.port, "c", expiry=100)
    assert (await ask(directory, "POST", "/sessions/c/kick")).body == {"kicked": True}
    assert (await device.expect(Disconnect)).reason_code == 0x98
    await until(lambda: (found := broker.admin.client("c")) is not None and not found.entry.connected)
    answer = await ask(directory, "POST", "/sessions/c/kick", b"{}")
    assert (answer.status, answer.body) == (404, {"error": "The client 'c' is not connected."})


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_is_shown_with_payloads_as_text_or_base64(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, "c", "grün".encode(), b"\xff\x00", b"")
    found = (await ask(directory, "GET", "/sessions/c/queue")).body
    assert found["waiting"] == 3
    assert [(each["sequence"], each["payload"], each["payload_encoding"]) for each in found["messages"]] == [
        (0, "grün", "utf-8"),
        (1, "/wA=", "base64"),
        (2, "", "utf-8"),
    ]
    first = found["messages"][0]
    assert first == {
        "sequence": 0,
        "message_id": first["message_id"],
        "published_at": datetime.fromtimestamp(int(first["message_id"]) / 1e6, UTC).isoformat().replace("+00:00", "Z"),
        "topic": "plant/7",
        "qos": 1,
        "retain": False,
        "payload": "grün",
        "payload_encoding": "utf-8",
        "payload_bytes": 5,
        "expires_at": None,
    }
    assert len((await ask(directory, "GET", "/sessions/c/queue?limit=2")).body["messages"]) == 2


async def test_a_payload_that_is_cut_within_a_character_is_text_all_the_same(
    rig: Rig, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.admin.MAX_PEEK_BYTES", len("plant/7") + 3)
    await offline(rig, broker, "c", "grün".encode())
    [message] = (await ask(directory, "GET", "/sessions/c/queue")).body["messages"]
    assert (message["payload"], message["payload_encoding"], message["payload_bytes"]) == ("gr", "utf-8", 5)


async def test_a_queue_is_purged_and_a_dry_run_only_counts(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, "c", b"1", b"2")
    for query in ("?dry_run", "?dry_run=true"):
        answer = await ask(directory, "DELETE", f"/sessions/c/queue{query}")
        assert answer.body == {"messages": 2, "complete": True}
    assert (await ask(directory, "DELETE", "/sessions/c/queue?dry_run=false")).body["messages"] == 2
    assert (await ask(directory, "GET", "/sessions/c/queue")).body == {"messages": [], "waiting": 0}


# ── retained messages ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_retained_messages_are_listed_and_removed(broker: Broker, directory: Path) -> None:
    for topic in ("a/1", "a/2", "b ü"):
        await broker.publish(topic, "xyz", qos=1, retain=True)
    found = (await ask(directory, "GET", "/retained?filter=a/%2B&limit=1")).body
    [entry] = found["entries"]
    assert int(entry.pop("message_id")) < time.time() * 1e6
    assert datetime.fromisoformat(entry.pop("published_at")) < datetime.now(UTC)
    assert found == {"entries": [{"topic": "a/1", "qos": 1, "payload_bytes": 3}], "cursor": "a/2"}
    found = (await ask(directory, "GET", "/retained?filter=a/%2B&cursor=a/2")).body
    assert [each["topic"] for each in found["entries"]] == ["a/2"]
    assert len((await ask(directory, "GET", "/retained")).body["entries"]) == 3
    assert (await ask(directory, "DELETE", "/retained?filter=%23&dry_run")).body == {"messages": 3, "complete": True}
    assert (await ask(directory, "DELETE", "/retained?filter=a/%23")).body["messages"] == 2
    assert [each["topic"] for each in (await ask(directory, "GET", "/retained")).body["entries"]] == ["b ü"]


async def test_parameters_may_come_as_a_body(broker: Broker, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqttlite.admin")
    topic = "t" * 65_000
    await broker.publish(topic, "x", qos=1, retain=True)
    body = json.dumps({"filter": topic, "dry_run": True}).encode()
    assert (await ask(directory, "DELETE", "/retained", body)).body["messages"] == 1
    assert (await ask(directory, "DELETE", "/retained", body.replace(b"true", b"false"))).body["messages"] == 1
    assert (await broker.admin.retained("#")).entries == []
    logged = [each.getMessage() for each in caplog.records if each.name == "mqttlite.admin"]
    assert [each.startswith("admin socket: DELETE '/retained' {'filter': 'ttt") for each in logged] == [True, True]
    assert max(map(len, logged)) < 600


# ── delayed messages ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_delayed_messages_are_listed_and_cancelled(broker: Broker, directory: Path) -> None:
    for topic in ("a", "b", "c"):
        await broker.publish(f"$delayed/100/{topic}", "xyz", qos=1)
    first = (await ask(directory, "GET", "/delayed?limit=2")).body
    assert [(each["topic"], each["qos"], each["payload_bytes"]) for each in first["entries"]] == [
        ("a", 1, 3),
        ("b", 1, 3),
    ]
    assert first["entries"][0]["due_at"].endswith("Z")
    second = (await ask(directory, "GET", f"/delayed?cursor={first['cursor']}")).body
    assert ([each["topic"] for each in second["entries"]], second["cursor"]) == (["c"], "")
    number = second["entries"][0]["number"]
    assert (await ask(directory, "DELETE", f"/delayed/{number}")).body == {"cancelled": True}
    answer = await ask(directory, "DELETE", f"/delayed/{number}")
    assert (answer.status, answer.body) == (404, {"error": f"There is no delayed message {number}, or it is due."})
    assert len((await ask(directory, "GET", "/delayed")).body["entries"]) == 2


# ── refusals ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "error"),
    [
        ("GET", "/", b"", 404, "There is nothing at /; there are /sessions, /sessions/*,"),
        ("GET", "/sessions/", b"", 404, "There is nothing at /sessions/;"),
        ("GET", "/sessions/a/b/c", b"", 404, "There is nothing at"),
        ("GET", "/sessions/nobody", b"", 404, "The client 'nobody' has no session."),
        ("DELETE", "/sessions/nobody", b"", 404, "The client 'nobody' has no session."),
        ("GET", "/sessions/nobody/queue", b"", 404, "The client 'nobody' has no session."),
        ("DELETE", "/sessions/nobody/queue", b"", 404, "The client 'nobody' has no session."),
        ("POST", "/sessions/nobody/kick", b"", 404, "The client 'nobody' is not connected."),
        ("DELETE", "/sessions", b"", 405, "/sessions takes GET."),
        ("POST", "/retained", b"", 405, "/retained takes GET and DELETE."),
        ("PUT", "/retained", b"", 405, "/retained takes GET and DELETE."),
        ("PATCH", "/retained", b"", 405, "Only GET, HEAD, POST, PUT and DELETE are served here."),
        ("GET", "/sessions?limit=0", b"", 422, "limit is '0': it is a number from 1 to 1000."),
        ("GET", "/sessions?limit=1001", b"", 422, "limit is '1001'"),
        ("GET", f"/sessions?limit={'9' * 5_000}", b"", 422, "limit is '999"),
        ("GET", "/sessions?limit=x", b"", 422, "limit is 'x'"),
        ("GET", "/sessions?limit=%C2%B2", b"", 422, "limit is '²'"),
        ("GET", "/sessions?connected=maybe", b"", 422, "connected is 'maybe': it is true or false."),
        ("DELETE", "/retained", b"", 422, "The parameter filter is missing."),
        ("DELETE", "/retained?filter=kept&dryrun", b"", 422, "There is no parameter 'dryrun' of DELETE /retained;"),
        ("DELETE", "/retained?filter=a/%23/b", b"", 422, "The filter is no topic filter: "),
        ("GET", "/retained?filter=a%2B", b"", 422, "The filter is no topic filter: "),
        ("GET", "/delayed?cursor=x", b"", 422, "cursor is 'x': it is a number."),
        ("DELETE", "/delayed/x", b"", 422, "The name of a delayed message is 'x': it is a number."),
        ("DELETE", f"/delayed/{'9' * 19}", b"", 422, "The name of a delayed message is '999"),
        ("DELETE", f"/delayed/{'9' * 18}", b"", 404, "There is no delayed message 999"),
        ("DELETE", "/retained", b"{", 400, "The body is no JSON object with the parameters: "),
        ("DELETE", "/retained", b"[]", 422, "The parameters in the body are wrong: "),
        ("DELETE", "/retained", b'{"filter": null}', 422, "The parameters in the body are wrong: "),
        ("DELETE", "/retained", b'{"filter": "kept", "dry": 1}', 422, "There is no parameter 'dry'"),
        ("DELETE", "/retained", b'{"filter": "kept", "dry_run": 1}', 422, "dry_run is '1': it is true or false."),
        ("DELETE", "/retained", b"x" * (BODY_BYTES + 1), 413, f"The body is longer than {BODY_BYTES} bytes."),
        ("GET", f"/{'x' * HEAD_BYTES}", b"", 431, f"The request is longer than {HEAD_BYTES} bytes."),
        ("GET", "/sessions/%FF", b"", 400, "The URL cannot be read."),
    ],
)
async def test_what_cannot_be_done_is_said_as_json_and_changes_nothing(
    broker: Broker, directory: Path, method: str, target: str, body: bytes, status: int, error: str
) -> None:
    await broker.publish("kept", "x", qos=1, retain=True)
    answer = await ask(directory, method, target, body)
    assert (answer.status, list(answer.body)) == (status, ["error"])
    assert answer.body["error"].startswith(error)
    assert ("Allow: " in answer.head) is (status == 405)
    assert len((await broker.admin.retained("#")).entries) == 1


async def test_a_body_at_its_limit_is_read(broker: Broker, directory: Path) -> None:
    body = b'{"filter": "a", "dry_run": true}'.ljust(BODY_BYTES)
    assert (await ask(directory, "DELETE", "/retained", body)).status == 200


async def test_an_answer_that_fails_is_an_error_as_json(
    broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_socket, "_no_session", None)
    answer = await ask(directory, "GET", "/sessions/nobody")
    assert (answer.status, list(answer.body)) == (500, ["error"])


async def test_head_is_answered_without_a_body(broker: Broker, directory: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(directory / SOCKET_NAME))
    writer.write(b"HEAD /sessions HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_the_port_of_metrics_changes_nothing(rig: Rig, directory: Path) -> None:
    broker = await rig.broker(config(directory, metrics=Options(port=0)))
    await rig.device(broker.port, "c")
    assert broker.monitor is not None
    for request in (b"DELETE /sessions/c", b"POST /sessions/c/kick", b"GET /sessions/c"):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.monitor.port)
        writer.write(request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).split()[1] in (b"404", b"405")
        writer.close()
    assert broker.admin.client("c") is not None
