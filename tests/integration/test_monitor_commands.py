"""`mqttlite top`, `health` and `why` beside a real broker: what they print, and how they end."""

import asyncio
import json
import os
import pty
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import top, why
from mqttlite.cli.ask import WrongUsage, place
from mqttlite.cli.main import main
from mqttlite.cli.top_words import duration, size
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.operations import reports
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.wire.packets import Ack
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import loop_driver_of

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])


async def run(*arguments: str) -> Result:
    """In a thread, while the broker's loop goes on."""
    return await asyncio.to_thread(CliRunner().invoke, main, arguments, catch_exceptions=False)


def url(broker: Broker) -> str:
    assert broker.monitor is not None
    return f"http://127.0.0.1:{broker.monitor.port}"


async def watched(rig: Rig, **options: Any) -> Broker:
    options.setdefault("listeners", (ListenerOptions(port=0, name="front"),))
    return await rig.broker(Config(metrics=MetricsOptions(port=0), **options))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "LOOK_S", 0.0)
    monkeypatch.setattr(reports, "FRESH_S", 0.0)


@pytest.fixture
def unused() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where everybody gets the same bytes, whatever they say."""

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.recv(4_096)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


# ── health ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_broker_that_is_ready_is_well(rig: Rig) -> None:
    broker = await watched(rig)
    result = await run("health", "--url", url(broker))
    assert (result.exit_code, result.output) == (0, "The broker is ready.\n")


async def test_one_that_is_not_ready_is_not_well(rig: Rig) -> None:
    broker = await watched(rig)
    broker._not_ready = "the broker stops"
    result = await run("health", "--url", url(broker))
    assert (result.exit_code, result.stderr) == (1, "Not ready: the broker stops.\n")


@pytest.mark.parametrize("command", [("health",), ("top", "--once"), ("why", "t")])
async def test_where_nothing_listens_they_say_what_to_do(command: tuple[str, ...], unused: int) -> None:
    result = await run(*command, "--url", f"127.0.0.1:{unused}")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"Nothing listens at http://127.0.0.1:{unused}." in result.stderr
    assert "[metrics]" in result.stderr
    assert "--metrics-port" in result.stderr


@pytest.mark.parametrize("command", [("health",), ("top", "--once"), ("why", "t")])
async def test_a_port_that_is_another_one_is_said(rig: Rig, command: tuple[str, ...]) -> None:
    broker = await watched(rig)
    result = await run(*command, "--url", f"http://127.0.0.1:{broker.port}")
    assert result.exit_code == 1
    assert "does not speak HTTP; is that the MQTT port?" in result.stderr
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi") as port:
        result = await run(*command, "--url", f"http://127.0.0.1:{port}")
    assert (result.exit_code, "is that the metrics port or the gateway of a broker?" in result.stderr) == (
        (0, False) if command == ("health",) else (1, True)
    )


async def test_one_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = await run("health", "--url", f"http://127.0.0.1:{port}", "--timeout", "0.1")
        assert (result.exit_code, result.stderr) == (1, f"http://127.0.0.1:{port} does not answer within 0.1 s.\n")
        result = await run("health", "--mqtt", f"mqtt://127.0.0.1:{port}", "--timeout", "0.1")
        assert (result.exit_code, result.stderr) == (1, f"127.0.0.1:{port} does not answer within 0.1 s.\n")


async def test_by_mqtt_it_comes_in_as_clients_do(rig: Rig) -> None:
    broker = await watched(rig)
    result = await run("health", "--mqtt", f"mqtt://127.0.0.1:{broker.port}")
    assert (result.exit_code, result.output) == (
        0,
        "The broker is well: it accepted this client and answered a ping.\n",
    )
    await until(lambda: not loop_driver_of(broker).links)


@pytest.mark.long
async def test_by_mqtt_over_tls(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    broker = await watched(rig, listeners=(ListenerOptions(port=0, tls=tls),))
    where = f"mqtts://localhost:{broker.port}"
    assert (await run("health", "--mqtt", where, "--cafile", str(certs / "ca.crt"))).exit_code == 0
    assert (await run("health", "--mqtt", where, "--insecure")).exit_code == 0
    result = await run("health", "--mqtt", where)
    assert (result.exit_code, "name its CA with --cafile" in result.stderr) == (1, True)
    result = await run("health", "--mqtt", where, "--cafile", str(certs / "nothing.crt"))
    assert (result.exit_code, "no such file" in result.stderr) == (2, True)


async def test_a_broker_that_lets_no_strangers_in_is_well(rig: Rig, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    set_user(passwords, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    broker = await watched(rig, password_file=str(passwords))
    where = f"127.0.0.1:{broker.port}"
    result = await run("health", "--mqtt", f"mqtt://{where}")
    assert (result.exit_code, "refuses this client" in result.output) == (0, True)
    result = await run("health", "--mqtt", f"mqtt://ann:secret@{where}")
    assert (result.exit_code, "it accepted this client" in result.output) == (0, True)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "closed the connection; does it expect TLS"),
        (b"\x20\x03\x00\x88\x00", "The broker refuses clients: server unavailable (0x88)."),
        (b"\xd0\x00", "answers CONNECT with PINGRESP."),
        (b"HTTP/1.1 400 Bad Request\r\n" + b"x: y\r\n" * 20 + b"\r\n", "does not answer as MQTT does: "),
        (b"\x20\x03\x00\x00\x00", "closed the connection"),
        (b"\x20", "closed the connection"),
    ],
)
async def test_an_unhealthy_broker_is_reported(answer: bytes, expected: str) -> None:
    with answering(answer) as port:
        result = await run("health", "--mqtt", f"mqtt://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert expected in result.stderr


async def test_a_plain_port_does_not_speak_tls(rig: Rig, unused: int) -> None:
    broker = await watched(rig)
    result = await run("health", "--mqtt", f"mqtts://127.0.0.1:{broker.port}", "--insecure")
    assert (result.exit_code, "does it speak TLS there?" in result.stderr) == (1, True)
    result = await run("health", "--mqtt", f"mqtt://127.0.0.1:{unused}")
    assert (result.exit_code, f"Nobody listens on 127.0.0.1:{unused}" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("health", "--url", "ftp://x"), "'ftp://x' is no URL like http://127.0.0.1:9883."),
        (("health", "--url", "http://x:99999"), "'http://x:99999' is no URL"),
        (("top", "--url", "x", "-c", "broker.toml"), "-c, --data-dir and --url each name a broker: give one of them."),
        (("why", "t", "-c", "nothing.toml"), "nothing.toml: cannot be read: No such file or directory"),
        (("why",), "Of what? Name a message id or a topic"),
        (("why", "t", "--follow", "t"), "--follow FILTER stands alone."),
        (("health", "--mqtt", "http://x"), "'http://x' is no URL like mqtt://localhost:1883."),
        (("health", "--mqtt", "mqtt://x:99999"), "'mqtt://x:99999' is no URL"),
        (("health", "--mqtt", "mqtt://x", "--url", "x"), "--mqtt goes with none of --url, --config and --data-dir."),
        (("health", "--insecure"), "--insecure belongs to --mqtt."),
        (("health", "--mqtt", "--insecure"), "--cafile and --insecure belong to mqtts://."),
    ],
)
async def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], expected: str) -> None:
    result = await run(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr


# ── where to ask ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[metrics]", "http://127.0.0.1:9883"),
        ('[metrics]\nhost = "0.0.0.0"\nport = 5', "http://127.0.0.1:5"),
        ('[metrics]\nhost = "::"', "http://[::1]:9883"),
        ('[metrics]\nhost = "broker.example"', "http://broker.example:9883"),
    ],
)
async def test_the_config_says_where_the_broker_is(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    assert str(place(None, str(file))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "STATE/admin.sock"), ('data_dir = "d"\n[metrics]\nport = 0', "d/admin.sock")],
)
async def test_without_a_port_of_metrics_the_config_names_the_admin_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "STATE")
    file = tmp_path / "broker.toml"
    file.write_text(text)
    assert str(place(None, str(file))) == expected


async def test_a_config_without_port_and_data_directory_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('data_dir = ""\n')
    with pytest.raises(WrongUsage, match=r"neither a section \[metrics\] with a port nor a data directory"):
        place(None, str(file))


@pytest.mark.slow
async def test_they_start_without_the_broker() -> None:
    """A container asks every few seconds."""
    program = (
        "import mqttlite.cli.main, mqttlite.cli.health, mqttlite.cli.top, mqttlite.cli.why, sys; print(*sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    loaded = output.decode().split()
    assert "mqttlite.cli.health" in loaded
    integration = {name.split(".")[1] for name in loaded if name.startswith("mqttlite.")}
    assert integration <= {"build", "cli", "extensions", "telemetry", "wire"}
    assert not {"asyncio", "rich", "cryptography"} & set(loaded)


# ── why ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Said:
    """Answers with the question, and more."""

    def __init__(self, **answers: object) -> None:
        self._answers = answers

    def why(self, target: str, client: str | None) -> dict[str, Any]:
        return {"known": True, "sentences": [f"{target} for {client}"], **self._answers}


def says(broker: Broker, **answers: object) -> None:
    assert broker.monitor is not None
    broker.monitor.reports.answers = lambda: Said(**answers)  # type: ignore[assignment, return-value]


async def test_why_prints_the_delivery_log_s_sentences(rig: Rig) -> None:
    broker = await watched(rig)
    says(broker)
    result = await run("why", "plant/ü/#", "--client", "c 7", "--url", url(broker))
    assert (result.exit_code, result.stdout) == (0, "plant/ü/# for c 7\n")
    result = await run("why", "t", "--url", url(broker), "--json")
    assert json.loads(result.stdout) == {"known": True, "sentences": ["t for None"]}


async def test_why_asks_a_real_delivery_log(rig: Rig) -> None:
    broker = await watched(rig, delivery_log=DeliveryLogOptions(topics=("plant/#",)))
    subscriber = await rig.device(broker.port, "c7")
    await subscriber.subscribe("plant/#", 0)
    publisher = await rig.device(broker.port, "c3")
    publisher.publish("plant/7", b"x", 1)
    await publisher.ping()
    result = await run("why", "plant/7", "--client", "c7", "--url", url(broker))
    assert result.exit_code == 0
    assert re.search(r"plant/7 from c3 .* c7", result.stdout), result.stdout
    named = re.search(r"\b\d{16}\b", result.stdout)
    assert named is not None
    by_id = await run("why", named[0], "--url", url(broker))
    assert (by_id.exit_code, by_id.stdout) == (0, result.stdout)
    unknown = await run("why", "office/1", "--url", url(broker))
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "plant/#" in unknown.stderr


async def test_why_of_what_nobody_knows_is_exit_code_1(rig: Rig) -> None:
    broker = await watched(rig)
    says(broker, known=False, sentences=["Nothing is known.", "Trace it."])
    result = await run("why", "t", "--url", url(broker))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Nothing is known.\nTrace it.\n")


async def test_why_without_a_delivery_log_says_how_to_keep_one(rig: Rig) -> None:
    result = await run("why", "t", "--url", url(await watched(rig)))
    assert (result.exit_code, "[delivery_log]" in result.stderr) == (1, True)


async def test_why_follows_a_filter_without_a_delivery_log(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await watched(rig)
    loop = asyncio.get_running_loop()
    looks = 0

    def sleep(_seconds: float) -> None:  # in the command's thread, between its questions
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt
        for _ in range(20):
            asyncio.run_coroutine_threadsafe(broker.publish("plant/7", "x"), loop).result()

    monkeypatch.setattr(why, "time", SimpleNamespace(sleep=sleep))  # other threads sleep as ever
    result = await run("why", "--follow", "plant/#", "--url", url(broker))
    assert result.exit_code == 130
    assert result.stderr == "Every message on plant/# is traced from now on, until Ctrl-C.\n"
    first, second = result.stdout.splitlines()
    assert re.match(r"20 messages on plant/7 from the broker itself, .* \(\d{16} to \d{16}\): reached nobody: ", first)
    assert re.match(r"20 messages on plant/7 from the broker itself, .* \(\d{16} to \d{16}\): reached nobody: ", second)
    looks = 1
    result = await run("why", "--follow", "plant/#", "--url", url(broker), "--json")
    assert [json.loads(line)["reason"] for line in result.stdout.splitlines()] == ["no_subscribers"] * 20


async def test_why_takes_the_id_that_an_acknowledgement_has(rig: Rig) -> None:
    listener = ListenerOptions(port=0, capabilities=Capabilities(tell_delivery=True))
    broker = await watched(rig, listeners=(listener,), delivery_log=DeliveryLogOptions())
    device = await rig.device(broker.port, "c3")
    device.publish("plant/7", b"x", 1)
    answer = await device.expect(Ack)
    name, message_id = answer.properties.user_properties[0]
    assert name == "message-id"
    result = await run("why", message_id, "--url", url(broker))
    assert (result.exit_code, "on plant/7 from c3 at " in result.stdout) == (0, True)
    result = await run("why", "--client", "c3", "--url", url(broker))
    assert (result.exit_code, "on plant/7 from c3 at " in result.stdout) == (0, True)
    result = await run("why", "plant/7", "--client", "nobody", "--url", url(broker))
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


# ── top ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_top_prints_who_is_there_and_who_is_slow(rig: Rig) -> None:
    broker = await watched(rig)
    publisher = await rig.device(broker.port, "publisher")
    away = await rig.device(broker.port, "away\x1b[2J", expiry=100)
    await away.subscribe("t", 1)
    await away.disconnect()
    for _ in range(1_234):
        publisher.publish("t", b"x", 1)
    publisher.publish("nobody", b"x")
    await publisher.ping()
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    result = await run("top", "--once", "--url", url(broker))
    assert result.exit_code == 0
    assert re.search(r"^mqttlite \S+ \((pure Python|compiled), Python [\d.]+\), up ", result.stdout)
    assert "clients    1 connected, 0 blocked, 2 sessions, 1 subscriptions\n" in result.stdout
    assert "in all 1 235, " in result.stdout
    assert "waiting    1 234 messages in queues (" in result.stdout
    assert "drops      1 no_subscribers\n" in result.stdout
    assert re.search(r"Greediest: .*\n.*\n  publisher +\S+ \S+ .* on front\n", result.stdout)
    assert re.search(r"Longest queues: .*\n.*\n  away\\x1b\[2J +- +0 B +1 234 +0 +0  away\n", result.stdout)
    assert "\x1b" not in result.stdout


async def test_top_says_that_a_broker_is_not_ready(rig: Rig) -> None:
    broker = await watched(rig)
    broker._not_ready = "the broker stops"
    result = await run("top", "--url", url(broker))
    assert "NOT READY: the broker stops\n" in result.stdout


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 KiB"),
        (150_000, "146 KiB"),
        (2_000_000, "1.9 MiB"),
        (4e15, "3638.0 TiB"),
    ],
)
async def test_sizes_are_short(value: float, expected: str) -> None:
    assert size(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 µs"),
        (0.00025, "250 µs"),
        (0.0123, "12.3 ms"),
        (4.1, "4.1 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_260, "2 h 1 min"),
        (180_000, "2 d 2 h"),
    ],
)
async def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("q", 0), ("Ctrl-C", 130)])
async def test_on_a_terminal_top_goes_on_until_it_is_ended(rig: Rig, end: str, code: int) -> None:
    broker = await watched(rig)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", "top", "--url", url(broker), "--interval", "0.5"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(theirs)
    shown = b""

    async def until_shown(text: bytes) -> None:
        nonlocal shown
        async with asyncio.timeout(60):
            while text not in shown:
                shown += await asyncio.to_thread(os.read, ours, 65_536)
                if text not in shown:
                    os.write(ours, b"\x0c")  # Ctrl-L: curses draws only what changed
                    await asyncio.sleep(0.05)
        shown = b""

    try:
        await until_shown(b"0 connected")
        await until_shown(b"5 all")
        device = await rig.device(broker.port, "newcomer")
        os.write(ours, b"5")
        await until_shown(b"All clients, page 1")
        await until_shown(b"newcomer")
        os.write(ours, b"\r")
        await until_shown(f"{device.address} on front".encode())
        os.write(ours, b"\x1b")
        await until_shown(b"All clients, page 1")
        await broker.stop()
        await until_shown(b"Nothing listens at")
        if end == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(2)
        async with asyncio.timeout(60):
            reading = asyncio.create_task(asyncio.to_thread(_drain, ours))
            assert await process.wait() == code
            await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


def _drain(terminal: int) -> None:
    """Read until the other end is closed."""
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:  # how Linux says it
        pass


async def test_without_curses_the_live_view_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqttlite.cli.top_live", None)
    with pytest.raises(top.Unreachable, match="--once works without"):
        top._live("http://127.0.0.1:1", 5.0, 1.0)


async def test_top_prints_the_status_as_json(rig: Rig) -> None:
    broker = await watched(rig)
    result = await run("top", "--json", "--url", url(broker))
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)["top"]) == {"bytes", "outbox", "queue", "inflight", "drops"}


# ── where a broker is found ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def everywhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, tuple[str, ...]]]:
    """The options that name one broker, each in another way."""
    monkeypatch.delenv("MQTTLITE_URL", raising=False)
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as folder:
        data_dir, file = f"{folder}/mqttlite", Path(folder, "broker.toml")
        file.write_text(f'data_dir = "{data_dir}"\n')  # noqa: ASYNC240 a test
        monkeypatch.setenv("STATE_DIRECTORY", data_dir)
        broker = await watched(rig, data_dir=data_dir, http=HttpOptions(port=0), delivery_log=DeliveryLogOptions())
        assert broker.gateway is not None
        gateway = f"http://127.0.0.1:{broker.gateway.port}"
        yield {
            "by default": (),
            "data directory": ("--data-dir", data_dir),
            "configuration": ("-c", str(file)),
            "metrics port": ("--url", url(broker)),
            "gateway": ("--url", gateway),
        }


@pytest.mark.long
async def test_a_broker_is_found_by_each_of_its_names(everywhere: dict[str, tuple[str, ...]]) -> None:
    for name, where in everywhere.items():
        health = await run("health", *where)
        assert (health.exit_code, health.stdout.strip()) == (0, "The broker is ready."), name
        top = await run("top", "--json", *where)
        assert (top.exit_code, json.loads(top.stdout)["clients"]["connected"]) == (0, 0), name
        why = await run("why", "plant/7", *where)
        assert (why.exit_code, "Nothing is known of any message on plant/7" in why.stderr) == (1, True), why.stderr
        assert (await run("token", "list", *where)).exit_code == (1 if "--url" in where else 0), name


async def test_two_names_of_a_broker_are_refused(everywhere: dict[str, tuple[str, ...]]) -> None:
    two = (*everywhere["data directory"], *everywhere["configuration"])
    for command in (("health",), ("top", "--once"), ("why", "t"), ("token", "list"), ("backup", "b.sqlite")):
        result = await run(*command, *two)
        assert (result.exit_code, "each name a" in result.stderr) == (2, True), command


@pytest.mark.long
async def test_a_running_broker_is_asked_for_its_rules(everywhere: dict[str, tuple[str, ...]]) -> None:
    for name in ("data directory", "gateway"):
        result = await run("acl", "test", *everywhere[name], "--json", "write", "$SYS/x")
        found = json.loads(result.stdout)
        assert (result.exit_code, found["allowed"], "$SYS" in found["reason"]) == (1, False, True), name
        assert (await run("acl", "test", *everywhere[name], "read", "plant/1")).exit_code == 0
        assert (await run("acl", "test", *everywhere[name], "subscribe", "a#")).exit_code == 2
