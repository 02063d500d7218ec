"""`mqttlite sessions`, `retained` and `delayed` beside a real broker: what they print, and how they end."""

import asyncio
import json
import os
import pty
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import asker, session_queue
from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.data_dir import default_data_dir
from mqttlite.core.limits import Limits
from mqttlite.operations import admin, admin_messages
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.support.device import until

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

NAME = "line 1/pump ü"
COMMANDS = [
    ("sessions", "ls"),
    ("sessions", "show", "c"),
    ("sessions", "rm", "c"),
    ("sessions", "peek", "c"),
    ("sessions", "purge", "c"),
    ("retained", "ls"),
    ("retained", "rm", "#"),
    ("delayed", "ls"),
    ("delayed", "cancel", "1"),
]

assert session_queue.PAGE == asker.PAGE, "it is read when the module is loaded: before a test changes it"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


@pytest.fixture
async def broker(rig: Rig, directory: Path) -> Broker:
    listeners = (ListenerOptions(port=0, name="front"),)
    return await rig.broker(Config(listeners=listeners, data_dir=str(directory), limits=Limits(max_inflight=1)))


async def run(directory: Path, *arguments: str) -> Result:
    """In a thread, while the broker's loop goes on."""
    words = (*arguments[:2], "--data-dir", str(directory), *arguments[2:])
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


async def printed(directory: Path, *arguments: str) -> str:
    result = await run(directory, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


async def offline(rig: Rig, broker: Broker, client_id: str, *payloads: bytes) -> None:
    device = await rig.device(broker.port, client_id, expiry=0xFFFF_FFFF)
    await device.subscribe("plant/#", 1)
    await device.disconnect()
    await until(lambda: (found := broker.admin.client(client_id)) is not None and not found.entry.connected)
    for payload in payloads:
        await broker.publish("plant/7", payload, qos=1)


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_sessions_are_lines_with_tabs_in_a_pipe(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, NAME, b"1")
    await rig.device(broker.port, "near")
    assert await printed(directory, "sessions", "ls") == f"{NAME}\toffline\t1\t1\t0\t-\nnear\tconnected\t0\t0\t0\t-\n"
    assert await printed(directory, "sessions", "ls", "--offline") == f"{NAME}\toffline\t1\t1\t0\t-\n"
    assert (await printed(directory, "sessions", "ls", "--connected")).startswith("near\t")
    assert (await printed(directory, "sessions", "ls", "--contains", "pump ü")).startswith(NAME)
    found = json.loads(await printed(directory, "sessions", "ls", "--json"))
    assert ([each["client_id"] for each in found["entries"]], found["cursor"]) == ([NAME, "near"], "")


@pytest.mark.parametrize(("limit", "listed"), [("1", 1), ("4", 4), ("5", 5), ("6", 5), ("0", 5)])
async def test_a_list_has_as_many_lines_as_wanted_and_says_when_there_are_more(
    rig: Rig, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch, limit: str, listed: int
) -> None:
    monkeypatch.setattr(asker, "PAGE", 2)
    for client_id in "abcde":
        await rig.device(broker.port, client_id)
    result = await run(directory, "sessions", "ls", "--limit", limit)
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == list("abcde")[:listed]
    assert result.stderr == (
        "" if listed == 5 else f"There are more than these {limit}: --limit N lists as many, --limit 0 all.\n"
    )


async def test_one_session_is_shown(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, NAME, b"1", b"2")
    lines = (await printed(directory, "sessions", "show", NAME)).splitlines()
    assert lines[:4] == [
        f"client            {NAME}",
        "state             offline",
        "expiry interval   never expires",
        "ends              -",
    ]
    assert lines[4].startswith("queued            2 messages, ")
    assert re.fullmatch(r"subscription      plant/# \(QoS 1, since 20[-0-9T:]+Z\)", lines[-1])
    assert json.loads(await printed(directory, "sessions", "show", NAME, "--json"))["entry"]["queued"] == 2


async def test_a_connected_session_says_from_where(
    rig: Rig, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_SUBSCRIPTIONS", 1)
    device = await rig.device(broker.port, "c", username="ann", expiry=100)
    await device.subscribe("a")
    await device.subscribe("b")
    shown = await printed(directory, "sessions", "show", "c")
    assert f"from              {device.address} on front\n" in shown
    assert "protocol          MQTT 5.0, no TLS\n" in shown
    assert "user              ann\n" in shown
    assert "expiry interval   100 s\n" in shown
    assert re.search(r"subscription      a \(QoS 0, since 20[-0-9T:]+Z\)\nsubscription      … and 1 more\n\Z", shown)


async def test_sessions_end_also_when_one_of_them_is_not_there(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, NAME)
    device = await rig.device(broker.port, "b")
    result = await run(directory, "sessions", "rm", NAME, "nobody", "b")
    assert (result.exit_code, result.stdout) == (3, "2 sessions ended.\n")
    assert result.stderr == "Error: The client 'nobody' has no session.\n"
    assert broker.admin.client(NAME) is None
    assert await device.goodbye() == 0x98
    result = await run(directory, "sessions", "rm", "b", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (3, {"ended": [], "not_found": ["b"]})


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_first_messages_of_a_queue_are_shown(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, NAME, b"21.5", b"\xff", b"with\ttab", b"last")
    result = await run(directory, "sessions", "peek", NAME, "--limit", "3")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(row[0], *row[3:]) for row in rows] == [
        ("0", "1", "4", "-", "plant/7", "21.5"),
        ("1", "1", "1", "-", "plant/7", "base64:/w=="),
        ("2", "1", "8", "-", "plant/7", "with\\ttab"),
    ]
    ids = [int(row[1]) for row in rows]
    assert ids == sorted(set(ids))
    published = datetime.strptime(rows[0][2], "%Y-%m-%dT%H:%M:%S%z")
    assert published == datetime.fromtimestamp(ids[0] // 1_000_000, UTC)
    assert (result.exit_code, result.stderr) == (0, "1 more message waits.\n")
    assert json.loads(await printed(directory, "sessions", "peek", NAME, "--json"))["waiting"] == 4


async def test_a_queue_is_purged(rig: Rig, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "MAX_PURGED", 2)
    await offline(rig, broker, NAME, b"1", b"2", b"3", b"4", b"5")
    assert await printed(directory, "sessions", "purge", "--dry-run", NAME) == "Would drop at least 2 messages.\n"
    assert await printed(directory, "sessions", "purge", NAME) == "5 messages dropped.\n"
    assert await printed(directory, "sessions", "purge", "--dry-run", NAME) == "Would drop 0 messages.\n"
    assert json.loads(await printed(directory, "sessions", "purge", NAME, "--json")) == {
        "messages": 0,
        "complete": True,
    }


async def test_a_purge_ends_where_messages_come_as_fast_as_they_are_dropped(
    rig: Rig, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MAX_PURGED", 1)
    monkeypatch.setattr(asker, "MAX_CALLS", 2)
    await offline(rig, broker, NAME, b"1", b"2", b"3")
    result = await run(directory, "sessions", "purge", NAME)
    assert (result.stdout, result.stderr) == ("2 messages dropped.\n", "More messages came meanwhile.\n")


# ── retained messages ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_retained_messages_are_listed_and_removed(broker: Broker, directory: Path) -> None:
    for topic in ("a/1", "a/ü 2", "b"):
        await broker.publish(topic, "xyz", qos=1, retain=True)
    rows = [line.split("\t") for line in (await printed(directory, "retained", "ls")).splitlines()]
    assert [(row[0], *row[2:]) for row in rows] == [("a/1", "1", "3"), ("a/ü 2", "1", "3"), ("b", "1", "3")]
    assert (await printed(directory, "retained", "ls", "a/ü 2")).startswith("a/ü 2\t20")
    assert await printed(directory, "retained", "rm", "a/#", "--dry-run") == "Would remove 2 retained messages.\n"
    assert await printed(directory, "retained", "rm", "a/#") == "2 retained messages removed.\n"
    assert await printed(directory, "retained", "rm", "a/#") == "0 retained messages removed.\n"
    found = json.loads(await printed(directory, "retained", "ls", "--json"))
    assert [each["topic"] for each in found["entries"]] == ["b"]
    assert json.loads(await printed(directory, "retained", "rm", "b", "--json"))["messages"] == 1


async def test_more_retained_messages_than_one_call_removes_are_removed(
    broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_messages, "MAX_REMOVED", 2)
    for number in range(5):
        await broker.publish(f"a/{number}", "x", qos=1, retain=True)
    assert (
        await printed(directory, "retained", "rm", "--dry-run", "#") == "Would remove at least 2 retained messages.\n"
    )
    monkeypatch.setattr(asker, "MAX_CALLS", 1)
    result = await run(directory, "retained", "rm", "#")
    assert (result.stdout, result.stderr) == ("2 retained messages removed.\n", "More were retained meanwhile.\n")
    monkeypatch.setattr(asker, "MAX_CALLS", 10)
    assert await printed(directory, "retained", "rm", "#") == "3 retained messages removed.\n"


# ── delayed messages ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_delayed_messages_are_listed_and_cancelled(broker: Broker, directory: Path) -> None:
    for topic in ("a", "b"):
        await broker.publish(f"$delayed/100/{topic}", "xyz", qos=1)
    lines = [line.split("\t") for line in (await printed(directory, "delayed", "ls")).splitlines()]
    assert [line[2:] for line in lines] == [["1", "3", "a"], ["1", "3", "b"]]
    numbers = [line[0] for line in lines]
    found = json.loads(await printed(directory, "delayed", "ls", "--json"))
    assert [str(each["number"]) for each in found["entries"]] == numbers
    result = await run(directory, "delayed", "cancel", numbers[0], "4711")
    assert (result.exit_code, result.stdout) == (3, "1 message cancelled.\n")
    assert result.stderr == "Error: There is no delayed message 4711, or it is due.\n"
    found = json.loads(await printed(directory, "delayed", "cancel", numbers[1], "--json"))
    assert found == {"cancelled": [int(numbers[1])], "not_found": []}
    assert await printed(directory, "delayed", "ls") == ""


# ── a terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_on_a_terminal_there_is_a_table(rig: Rig, broker: Broker, directory: Path) -> None:
    await offline(rig, broker, "c", b"p" * 100)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", "sessions", "peek", "c", "--data-dir", str(directory)), stdout=theirs
    )
    os.close(theirs)
    assert await process.wait() == 0
    shown = os.read(ours, 65_536).decode().splitlines()
    os.close(ours)
    assert shown[0] == "SEQUENCE  MESSAGE-ID        PUBLISHED             QOS  BYTES  EXPIRES  TOPIC    PAYLOAD"
    ended = f"1    100    -        plant/7  {'p' * 60}…"
    assert re.fullmatch(rf"0         \d{{16}}  \S{{20}}  {re.escape(ended)}", shown[1])


# ── failures ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_where_no_broker_runs_they_say_what_to_do(directory: Path, command: tuple[str, ...]) -> None:
    for data_dir in (directory, directory / "missing"):
        result = await run(data_dir, *command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"No broker runs with the data directory {data_dir}: nothing listens on " in result.stderr
        assert "--data-dir" in result.stderr
        assert "'mqttlite serve'" in result.stderr


async def test_a_broker_that_was_killed_does_not_run(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / "admin.sock"))
    result = await run(directory, "sessions", "ls")
    assert (result.exit_code, "No broker runs with" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sessions", "show", NAME), f"The client {NAME!r} has no session."),
        (("sessions", "rm", NAME), f"The client {NAME!r} has no session."),
        (("sessions", "peek", NAME), f"The client {NAME!r} has no session."),
        (("sessions", "purge", NAME), f"The client {NAME!r} has no session."),
    ],
)
async def test_a_missing_entry_is_exit_code_3(
    broker: Broker, directory: Path, command: tuple[str, ...], expected: str
) -> None:
    result = await run(directory, *command)
    assert (result.exit_code, result.stderr) == (3, f"Error: {expected}\n")


@pytest.mark.parametrize(
    "command",
    [
        ("retained", "ls", "a/#/b"),
        ("retained", "rm", "a+"),
        ("retained", "rm"),
        ("retained", "rm", "ü" * 30_000),
        ("sessions", "rm"),
        ("sessions", "ls", "--limit", "-1"),
        ("delayed", "cancel", "x"),
        ("sessions", "peek", "c", "--limit", "0"),
        ("sessions", "peek", "c", "--limit", "1001"),
        ("sessions", "show", "\udcff"),
        ("retained", "ls", "\udcff"),
    ],
)
async def test_wrong_usage_is_exit_code_2(broker: Broker, directory: Path, command: tuple[str, ...]) -> None:
    result = await run(directory, *command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


async def test_a_socket_of_another_user_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_self: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(asker.UnixConnection, "connect", connect)
    result = await run(directory, "sessions", "ls")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: This user may not use {directory}/admin.sock: only the user that runs the broker and root may.\n",
    )


async def test_a_path_that_is_too_long_is_said(directory: Path) -> None:
    result = await run(directory / ("d" * 200), "sessions", "ls")
    assert result.exit_code == 1
    assert "admin.sock cannot be reached: AF_UNIX path too long." in result.stderr


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "does not answer within 0.3 s."),
        (b"\x20\x02\x00\x00", "cannot be reached: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "does not answer as a broker does."),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", "does not answer as a broker does."),
        (b'HTTP/1.1 500 No\r\nContent-Length: 17\r\n\r\n{"detail": "why"}', "Error: Why."),
    ],
)
async def test_an_answer_of_something_else_than_a_broker_is_reported(
    directory: Path, answer: bytes, expected: str
) -> None:
    def serve() -> None:
        client, _ = server.accept()
        with client:
            client.recv(4_096)
            client.sendall(answer)
            while not answer and client.recv(1):
                pass

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "admin.sock"))
        server.listen()
        thread = Thread(target=serve)
        thread.start()
        result = await run(directory, "sessions", "ls", "--timeout", "0.3")
        thread.join()
    assert (result.exit_code, result.stdout) == (1, "")
    assert expected in result.stderr


async def test_without_data_dir_they_ask_where_serve_listens(rig: Rig) -> None:
    directory = default_data_dir(os.environ)
    await rig.broker(Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory)))
    result = await asyncio.to_thread(CliRunner().invoke, main, ["sessions", "ls"], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.slow
async def test_they_start_without_the_broker_where_the_directory_is_said() -> None:
    program = (
        "import mqttlite.cli.main, sys; from mqttlite.cli import sessions, retained; "
        "from mqttlite.extensions.delayed import commands; "
        "from mqttlite.extensions.queues import dead_letter_commands, queue_commands; "
        "print(*sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    loaded = {name.split(".")[1] for name in output.decode().split() if name.startswith("mqttlite.")}
    assert loaded == {"build", "cli", "extensions", "telemetry"}


async def test_the_socket_has_one_name() -> None:
    from mqttlite.gateway.admin_socket import SOCKET_NAME

    assert asker.SOCKET_NAME == SOCKET_NAME
