"""`mqttlite rr` against a broker with responders."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli import rr
from mqttlite.client import Client, Message, RequestFailed
from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),))) as broker:
        us = Client("127.0.0.1", broker.port)

        @us.responder("upper", reply_to=lambda request: "answers/upper")
        async def upper(request: Message) -> bytes:
            if not request.payload:
                raise RequestFailed("say something")
            return request.payload.upper()

        us.responder("silent")(lambda request: asyncio.Event().wait())
        async with us:
            yield broker.port


async def invoke(port: int, *args: str, stdin: bytes = b"") -> Result:
    words = [*args, "-h", "127.0.0.1", "-p", str(port)]
    return await asyncio.to_thread(CliRunner().invoke, rr.command, words, input=stdin)


@pytest.mark.parametrize("version", ["5", "311", "31"])
async def test_an_answer_is_printed(port: int, version: str, tmp_path: Path) -> None:
    reply = ["-V", version, "-e", "answers/upper"]
    asked = await invoke(port, "-t", "upper", "-m", "hello", "-q", "1", *reply)
    assert (asked.exit_code, asked.output) == (0, "HELLO\n")
    (tmp_path / "f").write_bytes(b"of a file")
    asked = await invoke(port, "-t", "upper", "-f", str(tmp_path / "f"), "-v", "-N", *reply)
    assert (asked.exit_code, asked.output) == (0, "answers/upper OF A FILE")


async def test_with_5_0_a_topic_for_the_answer_is_made(port: int) -> None:
    asked = await invoke(port, "-R", "-t", "upper", "-s", "--json", stdin=b"x")
    assert asked.exit_code == 0
    shown = json.loads(asked.output)
    assert shown["payload"] == "X"
    assert shown["topic"].startswith("reply/")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-t", "nobody", "-m", "x", "-q", "1"], 1, "Nobody is subscribed to 'nobody'"),
        (["-t", "upper", "-n"], 1, "Error: say something"),
        (["-t", "silent", "-m", "x", "-W", "0.1"], 27, "was not answered within 0.1 s"),
        (["-t", "upper", "-m", "x", "-F", "%J"], 1, "is not JSON"),
        (["-m", "x"], 2, "Where to? Name a topic with -t."),
        (["-t", "upper"], 2, "What? Give one of -m, -f, -s and -n."),
        (["-t", "upper", "-n", "-V", "311"], 2, "MQTT 3.1.1 cannot say where the answer goes: name the topic with -e."),
        (["-t", "upper", "-n", "-e", "a/#"], 2, "has a wildcard"),
        (["-t", "upper", "-n", "-F", "%"], 2, "the format"),
        (["-t", "upper", "-n", "-F", "%p", "--json"], 2, "--json is a format"),
        (["-t", "upper", "-n", "-D", "publish", "response-topic", "a"], 2, "reply_to names another"),
    ],
)
async def test_each_failure_is_said(port: int, arguments: list[str], code: int, said: str) -> None:
    asked = await invoke(port, *arguments)
    assert asked.exit_code == code, asked.stderr
    assert said.lower() in asked.stderr.lower()
    assert not asked.stdout
