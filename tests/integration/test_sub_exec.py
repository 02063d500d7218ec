"""`mqttlite sub '$queue/…' --ack after-exec`: a command's end decides about its message."""

import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.server import Broker

pytestmark = pytest.mark.slow  # each starts processes

PATIENCE_S = 60.0
QUEUE = QueueOptions(name="jobs", filters=("work/#",), retry=RetryOptions(min_s=0, max_s=0), max_attempts=2)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),), queues=(QUEUE,))) as running:
        yield running


async def begin(broker: Broker, *words: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "mqttlite", "sub", "-p", str(broker.port), *words)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)


async def ran(broker: Broker, *words: str) -> tuple[int | None, str, str]:
    process = await begin(broker, *words)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, output.decode(), errors.decode()


def ends(broker: Broker) -> dict[str, int]:
    return {end: count for end, count in broker.queues.state("jobs").ends.items() if count}


async def until(broker: Broker, wanted: dict[str, int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while ends(broker) != wanted:
            await asyncio.sleep(0.01)


async def test_a_command_that_ends_with_0_acknowledges(broker: Broker) -> None:
    for payload in ("good", "bad"):
        await broker.publish("work/a", payload.encode(), qos=1)
    command = 'test "$(cat)" = good && echo "$MQTT_TOPIC $MQTT_ATTEMPT"'
    code, output, errors = await ran(broker, "$queue/jobs", "--ack", "after-exec", "-C", "3", "--json", command)
    assert (code, errors) == (0, "")
    first, *lines = output.splitlines()
    assert first == "work/a 1"
    rows = [json.loads(line) for line in lines]
    assert [(row["payload"], row["attempt"], row["exit_code"], row["acknowledged"]) for row in rows] == [
        ("good", 1, 0, True),
        ("bad", 1, 1, False),
        ("bad", 2, 1, False),
    ]
    await until(broker, {"acknowledged": 1, "dead_lettered": 1})


async def test_a_command_need_not_read_its_message(broker: Broker) -> None:
    for _ in range(20):
        await broker.publish("work/a", b"x" * 100_000, qos=1)
    words = ("$queue/jobs", "--ack", "after-exec", "-C", "20", "true")
    assert await ran(broker, *words) == (0, "", "")
    await until(broker, {"acknowledged": 20})
    assert broker.queues.state("jobs").attempts == 20


async def test_a_command_that_takes_too_long_is_killed_with_its_children(broker: Broker, tmp_path: Path) -> None:
    await broker.publish("work/a", b"x", qos=1)
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = f"exec 3>{alive}; sleep 600 & sleep 600"  # both have the pipe open as long as they live
        words = ("$queue/jobs", "--ack", "after-exec", "--exec-timeout", "0.2", "-C", "1", command)
        code, output, errors = await ran(broker, *words)
        assert (code, output) == (0, "")
        assert "took longer than 0.2 s" in errors
        await asyncio.to_thread(select.select, [reader], [], [], PATIENCE_S)
        assert os.read(reader, 1) == b"", "nobody has it open"
    finally:
        os.close(reader)
    assert broker.queues.state("jobs").failures["nacked"] == 1


@pytest.mark.parametrize("command", [("no-such-command-anywhere",), ("/nowhere/at-all", "x")])
async def test_a_command_that_is_not_there_ends_it_and_gives_the_message_back(
    broker: Broker, command: tuple[str, ...]
) -> None:
    await broker.publish("work/a", b"x", qos=1)
    code, _output, errors = await ran(broker, "$queue/jobs", "--ack", "after-exec", *command)
    assert code == 1
    assert "not found" in errors or "cannot be run" in errors
    state = broker.queues.state("jobs")
    assert (state.depth, state.ends["dead_lettered"]) == (1, 0)


async def test_when_it_is_ended_its_command_ends_and_the_message_goes_back(broker: Broker, tmp_path: Path) -> None:
    await broker.publish("work/a", b"x", qos=1)
    pid = tmp_path / "pid"
    process = await begin(
        broker, "-t", "$queue/jobs", "--ack", "after-exec", "--", "sh", "-c", f"echo $$ > {pid}; sleep 60"
    )
    async with asyncio.timeout(PATIENCE_S):
        while not (pid.exists() and pid.read_text().strip()):
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    async with asyncio.timeout(PATIENCE_S):
        while broker.queues.state("jobs").leased:
            await asyncio.sleep(0.01)
    assert broker.queues.state("jobs").depth == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("$queue/jobs", "--ack", "after-exec"), "go together"),
        (("$queue/jobs", "true"), "go together"),
        (("work/#", "--ack", "after-exec", "true"), "for one queue"),
        (("$queue/jobs", "--ack", "after-exec", "-V", "311", "true"), "needs MQTT 5.0"),
        (("$queue/jobs", "--ack", "after-exec", "-E", "true"), "do not go with a queue"),
        (("a", "--json", "-F", "%t"), "--json is a format"),
    ],
)
def test_contradictory_options_are_reported(words: tuple[str, ...], text: str) -> None:
    result = CliRunner().invoke(main, ["sub", *words])
    assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


async def test_the_broker_s_reason_is_printed(broker: Broker) -> None:
    code, _output, errors = await ran(broker, "-t", "$queue/none", "-q", "1")
    assert (code, errors) == (
        1,
        "Error: The subscription to '$queue/none' was refused: topic filter invalid (0x8F), "
        "$queue/…: there is no queue 'none'.\n",
    )
