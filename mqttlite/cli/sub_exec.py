"""`mqttlite sub '$queue/NAME' --ack after-exec COMMAND`: a command for each message of a queue, which decides about it.

Subscribing and printing to plain topics is in `sub`. Invariant: a message is acknowledged after its command has ended
with 0, and a command does not outlive us.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mqttlite.cli.options import EXIT_FAILED, EXIT_OK, Shared
from mqttlite.cli.output_format import NotJson, Piece
from mqttlite.client import Client, Queue, QueueMessage

QUEUE: Final = "$queue/"

DEFAULT_TIMEOUT_S: Final = 600.0
"""How long a command may run: as long as the longest deadline of a queue."""

_NOT_RUN: Final = (126, 127)
"""The exit code of a shell without such a command: none of the messages could be handled."""


@dataclass(frozen=True, slots=True)
class Work:
    """The command for each message, and its limits."""

    topic: str
    """`$queue/NAME` or `$queue/NAME/FILTER`."""
    words: Sequence[str]
    """A command with its arguments; one word alone is for the shell."""
    options: dict[str, str]
    """User properties of SUBSCRIBE."""
    timeout_s: float
    count: int | None
    output: Piece | None
    """The format in which to print a message once its command has ended; None: print nothing."""
    as_json: bool
    """Whether that is JSON, to which we add what became of the message."""


async def work(client: Client, what: Work, shared: Shared) -> int:
    """Until the count is reached, or for good. Raises what ended the connection."""
    name, _, topic_filter = what.topic.removeprefix(QUEUE).partition("/")
    worker = _Worker(client.queue(name, topic_filter, options=what.options), what, shared)
    return await worker.run()


class _Worker:
    def __init__(self, queue: Queue, what: Work, shared: Shared) -> None:
        self._queue: Final = queue
        self._what: Final = what
        self._shared: Final = shared
        self._done = 0
        self._exit_code = EXIT_OK

    async def run(self) -> int:
        await self._queue.run(self._handle)
        return self._exit_code

    async def _handle(self, message: QueueMessage) -> None:
        try:
            code = await self._execute(message)
        except OSError as error:
            self._shared.complain(f"Error: {self._what.words[0]!r} cannot be run: {error.strerror}.")
            code = None
        if code is None or (code in _NOT_RUN and len(self._what.words) == 1):
            self._exit_code = EXIT_FAILED
            self._queue.stop()
            self._queue.give_back([message])  # for others, who may have the command
            return
        self._done += 1
        if self._done == self._what.count:
            self._queue.stop()  # first, so that a message that is refused does not come here again
        if code == 0:
            message.ack()
        else:
            message.nack()
        self._print(message, code)

    async def _execute(self, message: QueueMessage) -> int:
        """The exit code of the command: 128 and more for one that a signal ended, as shells have it."""
        words = self._what.words if len(self._what.words) > 1 else ("/bin/sh", "-c", self._what.words[0])
        with tempfile.TemporaryFile() as payload:  # and no pipe: a command need not read what it gets
            payload.write(message.payload)
            payload.seek(0)
            process = await asyncio.create_subprocess_exec(
                *words, stdin=payload, env=os.environ | _environment(message), start_new_session=True
            )
        try:
            async with asyncio.timeout(self._what.timeout_s):
                await process.wait()
        except TimeoutError:
            self._shared.complain(f"Warning: A command took longer than {self._what.timeout_s:g} s, and was ended.")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        code = process.returncode
        assert code is not None, "it was waited for"
        return code if code >= 0 else 128 - code

    def _print(self, message: QueueMessage, code: int) -> None:
        if self._what.output is None:
            return
        try:
            line = self._what.output(message, time.time())
        except NotJson as error:
            self._shared.complain(f"Error: {error}")
            return
        if self._what.as_json:
            row = json.loads(line)
            row |= {"attempt": message.attempt, "exit_code": code, "acknowledged": code == 0}
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def _environment(message: QueueMessage) -> dict[str, str]:
    """The environment variables that describe a message to its command, which reads the payload from standard input."""
    return {
        "MQTT_TOPIC": message.topic,
        "MQTT_MESSAGE_ID": message.message_id,
        "MQTT_ATTEMPT": str(message.attempt),
        "MQTT_ORDERING_KEY": message.ordering_key,
        "MQTT_PUBLISH_TIME": "" if message.publish_time is None else message.publish_time.isoformat(),
    }
