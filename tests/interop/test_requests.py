"""Requests and answers of our client and `mqttlite rr` at Mosquitto, and with Mosquitto's clients on the other side."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite import Client, Message
from mqttlite.client import NoResponder, RequestFailed
from mqttlite.client.options import Version
from tests.interop.support import PATIENCE_S, Line, MosquittoSub, mosquitto, mosquitto_broker, published

pytestmark = pytest.mark.slow

REQUESTS = 1_000
REPLY_TO = "answers/upper"


@pytest.fixture
def port(tmp_path: Path, unused_tcp_port: int) -> Iterator[int]:
    """That of Mosquitto."""
    with mosquitto_broker(tmp_path, unused_tcp_port, "max_queued_messages 0") as port:
        yield port


def responder(port: int, version: Version = "5.0") -> Client:
    client = Client("127.0.0.1", port, version=version)

    @client.responder("upper", reply_to=lambda request: REPLY_TO)
    async def upper(request: Message) -> bytes:
        if not request.payload:
            raise RequestFailed("say something")
        return request.payload.upper()

    return client


async def run(*command: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


async def test_a_thousand_requests_at_once_get_their_own_answers(port: int) -> None:
    async with responder(port), Client("127.0.0.1", port) as asker:
        payloads = [f"r{number}" for number in range(REQUESTS)]
        answers = await asyncio.gather(*[asker.request("upper", each, qos=1, timeout=PATIENCE_S) for each in payloads])
        assert [each.payload.decode() for each in answers] == [each.upper() for each in payloads]
        with pytest.raises(RequestFailed, match="say something"):
            await asker.request("upper", b"")
        with pytest.raises(NoResponder):
            await asker.request("nobody", b"", qos=1)


async def test_with_3_1_1_both_sides_know_the_topic_of_the_answer(port: int) -> None:
    async with responder(port, "3.1.1"), Client("127.0.0.1", port, version="3.1.1") as asker:
        for number in range(3):
            answer = await asker.request("upper", f"r{number}", qos=1, reply_to=REPLY_TO)
            assert answer.payload == b"R%d" % number


@pytest.mark.parametrize("version", ["5", "311"])
async def test_mosquitto_rr_gets_the_answer_of_our_responder(port: int, version: str) -> None:
    async with responder(port, "5.0" if version == "5" else "3.1.1"):
        words = ["-p", str(port), "-V", version, "-t", "upper", "-e", REPLY_TO, "-m", "hello", "-q", "1"]
        asked = await run(mosquitto("mosquitto_rr"), *words)
    assert (asked.stdout, asked.returncode) == ("HELLO\n", 0)


async def test_rr_gets_the_answer_of_mosquitto_s_own_clients(port: int) -> None:
    line = Line(port)
    published(line, "-t", "ready", "-m", "now", "-r")
    with MosquittoSub(line, "svc/echo", "-V", "5", format="%R %D %p") as requests:
        words = ["-h", "127.0.0.1", "-p", str(port), "-t", "svc/echo", "-m", "hello"]
        asking = asyncio.create_task(run(sys.executable, "-m", "mqttlite", "rr", *words))
        reply, correlation, text = (await asyncio.to_thread(requests.next)).split()
        published(line, "-V", "5", "-t", reply, "-D", "publish", "correlation-data", correlation, "-m", text.upper())
        asked = await asking
    assert (asked.stdout, asked.returncode) == ("HELLO\n", 0)
