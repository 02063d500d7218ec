"""What operators publish to look after a queue: `$queue/<name>/$seek`, `/$purge`, `/$pause`, `/$resume`, `/$snapshot`.

The same as over HTTP, with the same bodies and answers. The rules were asked before whether the publisher may publish
to the topic. The answer goes to the Response Topic, or for clients without properties to the topic behind the command
(`$queue/<name>/$purge/<topic>`), where the publisher may publish. Invariant: commands are carried out one after the
other, and what an answer says is on disk.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.outlook import PlannedReceiver, planned_sink
from mqttlite.core.permissions import Permissions
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.session import Session
from mqttlite.core.source import Source
from mqttlite.core.tally import (
    DROPPED,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED_CODE,
    POLICY_REFUSES,
    QUOTA_EXCEEDED,
    SENT,
    Tally,
)
from mqttlite.delivery.queues.api import QueuesApi
from mqttlite.delivery.queues.service import Queues
from mqttlite.topics.names import check_name
from mqttlite.topics.namespaces import ORDINARY, mounted_name, parse_name
from mqttlite.wire.errors import PeerError

SEEK: Final = "$seek"
PURGE: Final = "$purge"
PAUSE: Final = "$pause"
RESUME: Final = "$resume"
SNAPSHOT: Final = "$snapshot"
COMMANDS: Final = (SEEK, PURGE, PAUSE, RESUME, SNAPSHOT)

MAX_WAITING: Final = 100
"""Commands that wait for those before them; one more is refused with Quota exceeded (0x97)."""

MAX_COMMAND_BYTES: Final = 4_096
"""The payload of one: a time or the name of a snapshot."""

_log = logging.getLogger("mqttlite.queues")

Respond = Callable[[str, bytes, bytes | None], None]
"""Publishes an answer: its topic, payload and Correlation Data."""

Tell = Callable[[str, str, str, bool], None]
"""Hears what somebody changed: who, which action, of what, and whether it was done."""


class _Command(NamedTuple):
    client_id: str
    queue: str
    action: str
    payload: bytes
    response_topic: str
    correlation: bytes | None


class QueueCommands:
    """A `Sink` for all commands, with one task behind it."""

    def __init__(self, queues: Queues, api: QueuesApi, permissions: Permissions, respond: Respond, tell: Tell) -> None:
        self._queues: Final = queues
        self._api: Final = api
        self._permissions: Final = permissions
        self._respond: Final = respond
        self._tell: Final = tell
        self._waiting: Final[deque[_Command]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def topic_filters(self) -> list[bytes]:
        """What it is bound to."""
        return [f"$queue/+/{each}/#".encode() for each in COMMANDS]

    # ------------------------------------------------------------------ the sink

    def prepare(self, messages: int) -> bool:
        """As `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # one command too many is refused by itself

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """As `Sink`."""
        name = f"$queue/{parse_name(message.topic).name.decode()}"
        if len(self._waiting) >= MAX_WAITING:
            return [planned_sink(name, DROPPED, QUEUE_FULL)]
        return [planned_sink(name, SENT, "", "it looks after the queue")]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """As `Sink`."""
        parsed = parse_name(message.topic)
        action, _, response = parsed.rest.partition(b"/")
        name = parsed.name.decode()
        if not self._queues.serves(name, source):
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        if len(message.payload) > MAX_COMMAND_BYTES:
            tally.code = POLICY_REFUSES
            tally.refusal = f"the payload of a command has {MAX_COMMAND_BYTES} bytes at most"
            return
        properties = message.properties
        wanted = properties.response_topic.encode() if properties.response_topic else response
        if wanted:
            wanted = mounted_name(source.mount_point if isinstance(source, Session) else b"", wanted)
            if not _is_ordinary(wanted) or not self._permissions.may_publish(source, wanted):
                tally.code = NOT_AUTHORIZED_CODE
                tally.refusal = "an answer goes to a plain topic to which the publisher of the command may publish"
                return
        if len(self._waiting) >= MAX_WAITING:
            tally.drop(QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED
            return
        tally.sent += 1
        self._waiting.append(
            _Command(
                *(source.client_id, name, action.decode(), message.payload, wanted.decode()),
                properties.correlation_data,
            )
        )
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """As `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)

    async def stop(self) -> None:
        """End when the command under way is done; forget the others."""
        self._waiting.clear()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    # ------------------------------------------------------------------ carry out

    async def _run(self) -> None:
        try:
            while self._waiting:
                command = self._waiting.popleft()
                try:
                    await self._carry_out(command)
                except Exception:  # a fault of ours in one command must not end the others
                    _log.exception("a command of client %r to queue %s failed", command.client_id, command.queue)
        finally:
            self._task = None

    async def _carry_out(self, command: _Command) -> None:
        method, segments, body = _request_of(command)
        who = f"client {command.client_id!r}"
        answer = await self._api.answer(method, segments, {}, body, who=who)
        is_done = answer.status == 200
        self._tell(who, "PUBLISH", f"$queue/{command.queue}/{command.action}", is_done)
        if not is_done:
            _log.info(
                *("client %r: %s of queue %s: %s", command.client_id, command.action, command.queue),
                answer.body.decode(),
            )
        if command.response_topic:
            self._respond(command.response_topic, answer.body, command.correlation)


def _request_of(command: _Command) -> tuple[str, list[str], bytes]:
    """The request to the interface of queues that a command means."""
    queue = ["queues", command.queue]
    if command.action == PURGE:
        return "DELETE", [*queue, "messages"], b""
    if command.action == SNAPSHOT:
        return "POST", [*queue, "snapshots", command.payload.decode(errors="replace").strip()], b""
    return "POST", [*queue, command.action.removeprefix("$")], command.payload


def _is_ordinary(topic: bytes) -> bool:
    try:
        check_name(topic)
    except PeerError:
        return False
    return not topic.startswith(b"$") and parse_name(topic).namespace == ORDINARY
