"""`mqttlite pub`: publish messages, with mosquitto_pub's flags and meanings.

How it connects lives in `options`. Invariant: it exits with 0 only after every message of QoS 1 and 2 was acknowledged.
"""

import asyncio
import math
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from mqttlite.cli.options import EXIT_FAILED, EXIT_OK, MqttCommand, Shared, WrongUsage, run, sentence, shared_options
from mqttlite.client import Client, MqttError, Properties, PublishOutcome
from mqttlite.client.topics import check_name

_CHUNK_BYTES: Final = 65_536
_CHUNKS_AHEAD: Final = 4
"""Standard input is read no further ahead of the broker than this."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The options of `pub`: what to publish, where, how and how often."""

    topic: str
    qos: int
    retain: bool
    properties: Properties
    repeat: int
    repeat_delay_s: float


@click.command(
    cls=MqttCommand,
    name="pub",
    epilog="Exit codes: 0, published, and acknowledged at QoS 1 and 2; 1, no connection, or refused by the broker; "
    "2, wrong usage; 130, interrupted.",
)
@shared_options
@click.option("-t", "--topic", metavar="TOPIC", help="Where to publish.")
@click.option("-m", "--message", metavar="TEXT", help="The payload to publish.")
@click.option("-f", "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Publish a file.")
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Publish each line of standard input.")
@click.option("-s", "--stdin-file", "whole", is_flag=True, help="Publish all of standard input as one message.")
@click.option("-n", "--null-message", "null", is_flag=True, help="Publish an empty message.")
@click.option("-r", "--retain", is_flag=True, help="Have the broker keep the message for later subscribers.")
@click.option("-M", "--max-inflight", type=click.IntRange(1, 60_000), default=1000, show_default=True, help="With -l.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Publish the message N times.")
@click.option("--repeat-delay", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="Wait between them.")
def command(
    topic: str | None,
    message: str | None,
    file: Path | None,
    lines: bool,
    whole: bool,
    null: bool,
    retain: bool,
    max_inflight: int,
    repeat: int,
    repeat_delay: float,
    **shared_values: Any,
) -> None:
    """Publish messages.

    One of -m, -f, -l, -s and -n says what.
    """
    shared = Shared(**shared_values)
    topic = topic if topic is not None else shared.url_topic()
    if topic is None:
        raise click.UsageError("Where to? Name a topic with -t.")
    if sum((message is not None, file is not None, lines, whole, null)) != 1:
        raise click.UsageError("What? Give one of -m, -f, -l, -s and -n.")
    if lines and repeat > 1:
        raise click.UsageError("--repeat repeats one message: it does not go with -l.")
    given = shared.given_properties(("connect", "publish", "disconnect", "will"))
    try:
        check_name(topic)
    except ValueError as error:
        raise WrongUsage(sentence(error)) from None
    publication = Publication(topic, shared.qos, retain, given["publish"], repeat, repeat_delay)
    client = shared.client(given, max_inflight=max_inflight, reconnect=lines)
    if lines:
        work = _publish_lines(client, publication, shared, given["disconnect"])
    else:
        payload = message.encode(errors="surrogateescape") if message is not None else read_payload(file, whole)
        work = _publish(client, publication, payload, given["disconnect"])
    run(shared, work)


def read_payload(file: Path | None, whole: bool) -> bytes:
    """The one payload that is not an argument: of a file, of standard input, or empty."""
    if file is not None:
        return file.read_bytes()
    return sys.stdin.buffer.read() if whole else b""


async def _publish(client: Client, what: Publication, payload: bytes, disconnect_properties: Properties) -> int:
    async with client:
        for count in range(what.repeat):
            if count and what.repeat_delay_s:
                await asyncio.sleep(what.repeat_delay_s)
            await client.publish(what.topic, payload, what.qos, what.retain, what.properties)
        await client.disconnect(properties=disconnect_properties)
    return EXIT_OK


async def _publish_lines(client: Client, what: Publication, shared: Shared, disconnect_properties: Properties) -> int:
    """Publish while reading, without waiting for each acknowledgement, and wait for the last ones at the end."""
    outcomes = Outcomes(shared)
    async with client:
        async for line in split_lines(_stdin_chunks()):
            if what.qos:
                outcomes.add(await client.submit(what.topic, line, what.qos, what.retain, what.properties))
            else:
                await client.publish(what.topic, line, 0, what.retain, what.properties, timeout=math.inf)
        await outcomes.all()
        await client.disconnect(properties=disconnect_properties)
    return EXIT_FAILED if outcomes.failed else EXIT_OK


class Outcomes:
    """The acknowledgements to come; at most as many as the client has in flight."""

    def __init__(self, shared: Shared) -> None:
        self.failed: int = 0
        self._shared = shared
        self._waiting: set[asyncio.Future[PublishOutcome]] = set()

    def add(self, outcome: asyncio.Future[PublishOutcome]) -> None:
        self._waiting.add(outcome)
        outcome.add_done_callback(self._on_done)

    async def all(self) -> None:
        """Wait until each is known."""
        while self._waiting:
            await asyncio.wait(self._waiting)

    def _on_done(self, outcome: asyncio.Future[PublishOutcome]) -> None:
        self._waiting.discard(outcome)
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, MqttError):
            self.failed += 1
            self._shared.complain(f"Error: {error}")


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream without their ends; the last may lack its own."""
    rest: list[bytes] = []
    async for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        rest.append(first)
        for line in lines:
            yield b"".join(rest)
            rest = [line]
    if last := b"".join(rest):
        yield last


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """Standard input as it comes.

    A daemon thread reads, and not asyncio: a file cannot be polled, and a thread that a terminal holds in its read must
    not keep the program from ending. It reads the descriptor, whose lock is not needed at exit.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_AHEAD)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        data = b"begin"
        while data:
            data = os.read(descriptor, _CHUNK_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
            except RuntimeError:  # the loop is closed: no more is wanted
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
