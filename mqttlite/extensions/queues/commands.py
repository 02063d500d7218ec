"""What operators publish to look after a queue: `$queue/<name>/$create`, `/$delete`, `/$seek`, `/$purge`, `/$pause`,
`/$resume`, `/$snapshot`, `/$replay`.

The same as over HTTP, with the same bodies and answers. The rules were asked before whether the publisher may publish
to the topic. The answer goes to the Response Topic, or for clients without properties to the topic behind the command
(`$queue/<name>/$purge/<topic>`), where the publisher may publish. Invariant: what an answer says is on disk, and
commands are carried out one after the other; only a replay at a rate, which may take hours, goes on beside the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.tally import (
    DROPPED,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED_CODE,
    POLICY_REFUSES,
    QUOTA_EXCEEDED,
    SENT,
    Tally,
)
from mqttlite.core.source import Source
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.extensions.queues.api import Answer, QueuesApi, Refused, decode_body, options_of
from mqttlite.extensions.queues.control import ACTIONS
from mqttlite.extensions.queues.namespace import parts_of
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.service import Queues
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import PeerError

CREATE: Final = "$create"
DELETE: Final = "$delete"
REPLAY: Final = "$replay"
SEEK: Final = "$seek"
PURGE: Final = "$purge"
PAUSE: Final = "$pause"
RESUME: Final = "$resume"
SNAPSHOT: Final = "$snapshot"
COMMANDS: Final = (CREATE, DELETE, SEEK, PURGE, PAUSE, RESUME, SNAPSHOT, REPLAY)

SERVED: Final = (
    *(f"$queue/+/{each}".encode() for each in ACTIONS),
    *(f"$queue/+/{each}/#".encode() for each in COMMANDS),
)
"""The filters of the topics that consumers and operators publish to."""

MAX_WAITING: Final = 100
"""Commands that wait. One more is refused with Quota exceeded (0x97)."""

MAX_COMMAND_BYTES: Final = 4_096
"""The payload of one: the options of a queue, a time, a filter, or the name of a snapshot."""

_log = logging.getLogger("mqttlite.queues")

Respond = Callable[[str, bytes, bytes | None], None]
"""Publishes an answer: its topic, payload and Correlation Data."""

Tell = Callable[[str, str, str, bool], None]
"""Reports a change: the actor, the action, its subject, and whether it succeeded."""


class _Command(NamedTuple):
    source: Source
    mount_point: bytes
    queue: str
    action: str
    payload: bytes
    response_topic: str
    correlation: bytes | None


class _Request(NamedTuple):
    """What a command means to the interface of queues."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


class _Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: str = ""
    number: int | None = None
    rate: int = 0
    dry_run: bool = False


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
        self._replays: Final[dict[str, asyncio.Task[None]]] = {}
        """Those at a rate, by the name of the queue."""

    @property
    def topic_filters(self) -> list[bytes]:
        """What it is bound to."""
        return [f"$queue/+/{each}/#".encode() for each in COMMANDS]

    # ------------------------------------------------------------------ the sink

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # a request beyond the limit gets its own error

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        name = f"$queue/{parts_of(message.topic)[0].decode()}"
        if len(self._waiting) >= MAX_WAITING:
            return [planned_sink(name, DROPPED, QUEUE_FULL)]
        return [planned_sink(name, SENT, "", "it looks after the queue")]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        raw_name, rest = parts_of(message.topic)
        action, _, response = rest.partition(b"/")
        name = raw_name.decode()
        mount_point = source.identity.mount_point
        makes = action == CREATE.encode() and name not in self._queues
        if not makes and not self._queues.serves(name, source):
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        if len(message.payload) > MAX_COMMAND_BYTES:
            tally.code = POLICY_REFUSES
            tally.refusal = f"the payload of a command has {MAX_COMMAND_BYTES} bytes at most"
            return
        properties = message.properties
        wanted = properties.response_topic.encode() if properties.response_topic else response
        if wanted:
            wanted = NAMESPACES.mounted_name(mount_point, wanted)
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
                source,
                mount_point,
                name,
                action.decode(),
                message.payload,
                wanted.decode(),
                properties.correlation_data,
            )
        )
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)

    async def stop(self) -> None:
        """End when the command under way is done; forget the others, and leave the rest of replays."""
        self._waiting.clear()
        replays = list(self._replays.values())
        for each in replays:
            each.cancel()
        await asyncio.gather(*replays, return_exceptions=True)
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
                except Exception:  # a defect in one command must not stop the others
                    _log.exception("a command of %s to queue %s failed", _who(command), command.queue)
        finally:
            self._task = None

    async def _carry_out(self, command: _Command) -> None:
        try:
            request = self._request_of(command)
            if "rate" in request.query:
                self._begin_replay(command, request)
                return
        except Refused as error:
            self._end(command, error.answer())
            return
        await self._ask(command, request)

    async def _ask(self, command: _Command, request: _Request) -> None:
        answer = await self._api.answer(*request, who=_who(command), mount_point=command.mount_point)
        self._end(command, answer)

    def _begin_replay(self, command: _Command, request: _Request) -> None:
        name = command.queue
        if name in self._replays:
            raise Refused(409, f"Dead letters of {name} are being replayed at a rate already.")
        task = asyncio.get_running_loop().create_task(self._ask(command, request))
        self._replays[name] = task
        task.add_done_callback(lambda _task: self._replays.pop(name))

    def _end(self, command: _Command, answer: Answer) -> None:
        who = _who(command)
        is_done = answer.status == 200
        self._tell(who, "PUBLISH", f"$queue/{command.queue}/{command.action}", is_done)
        if not is_done:
            _log.info("%s: %s of queue %s: %s", who, command.action, command.queue, answer.body.decode())
        if command.response_topic:
            self._respond(command.response_topic, answer.body, command.correlation)

    # ------------------------------------------------------------------ what a command means

    def _request_of(self, command: _Command) -> _Request:
        """Raises `Refused`."""
        queue = ("queues", command.queue)
        match command.action:
            case "$create":
                return _Request("POST", ("queues",), body=msgspec.json.encode(self._wanted(command)))
            case "$delete":
                return _Request("DELETE", queue)
            case "$purge":
                return _Request("DELETE", (*queue, "messages"))
            case "$snapshot":
                return _Request("POST", (*queue, "snapshots", command.payload.decode(errors="replace").strip()))
            case "$replay":
                return _Request("POST", ("dead-letters", command.queue, "replay"), _replay_query(command.payload))
        return _Request("POST", (*queue, command.action.removeprefix("$")), body=command.payload)

    def _wanted(self, command: _Command) -> QueueOptions:
        """The queue that a publisher wants: it takes no messages that the publisher may not have, and publishes none
        where the publisher may not. Raises `Refused`."""
        options = options_of(command.payload, command.queue)
        if options.push is not None:
            raise Refused(422, "A queue gets its push target over HTTP or by the command line: it has a secret.")
        source, mount_point, topic = command.source, command.mount_point, options.dead_letter_topic
        filters = [NAMESPACES.mounted_filter(mount_point, each.encode()) for each in options.filters]
        for given, each in zip(options.filters, filters, strict=True):
            if not self._permissions.may_subscribe(source, each):
                raise Refused(403, f"To bind a queue to {given} takes the permission to subscribe to that.")
        topic = NAMESPACES.mounted_name(mount_point, topic.encode()).decode() if topic else ""
        if topic and not self._permissions.may_publish(source, topic.encode()):
            raise Refused(403, f"dead_letter_topic takes the permission to publish to {options.dead_letter_topic}.")
        return msgspec.structs.replace(
            options, filters=tuple(each.decode() for each in filters), dead_letter_topic=topic
        )


def _who(command: _Command) -> str:
    return f"client {command.source.client_id!r}"


def _replay_query(payload: bytes) -> dict[str, str]:
    """What a replay is asked over HTTP. Raises `Refused`."""
    wanted = decode_body(payload or b"{}", _Replay, "what to replay")
    query = {"filter": wanted.filter, "dry_run": "true" if wanted.dry_run else "false"}
    if wanted.number is not None:
        query["number"] = str(wanted.number)
    if wanted.rate:
        query["rate"] = str(wanted.rate)
    return query


def _is_ordinary(topic: bytes) -> bool:
    try:
        check_name(topic)
    except PeerError:
        return False
    return not topic.startswith(b"$")
