"""What operators publish to look after a queue: `$queue/<name>/$create`, `/$delete`, `/$seek`, `/$purge`, `/$pause`,
`/$resume`, `/$snapshot`, `/$replay`.

The same as over HTTP, with the same bodies and answers; `command_sink` takes them. Invariant: what an answer says is on
disk; a replay at a rate, which may take hours, goes on beside other commands.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.source import Source
from mqttlite.extensions.command_sink import Command, CommandSink, Tell
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.extensions.queues.api import Answer, QueuesApi, Refused, decode_body, options_of
from mqttlite.extensions.queues.control import ACTIONS
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.service import Queues

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
    """`sink` takes them."""

    def __init__(
        self,
        queues: Queues,
        api: QueuesApi,
        core: Broker,
        clock: Callable[[], float],
        wake: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._queues: Final = queues
        self._api: Final = api
        self._permissions: Final = core.permissions
        self._replays: Final[dict[str, asyncio.Task[None]]] = {}
        """Those at a rate, by the name of the queue."""
        self.sink: Final = CommandSink("$queue", COMMANDS, self._serves, self._carry_out, core, clock, wake, tell)

    async def stop(self) -> None:
        """End when the command under way is done; forget the others, and leave the rest of replays."""
        await self.sink.stop()
        replays = list(self._replays.values())
        for each in replays:
            each.cancel()
        await asyncio.gather(*replays, return_exceptions=True)

    def _serves(self, name: str, action: str, source: Source) -> bool:
        return (action == CREATE and name not in self._queues) or self._queues.serves(name, source)

    async def _carry_out(self, command: Command) -> None:
        try:
            request = self._request_of(command)
            if "rate" in request.query:
                self._begin_replay(command, request)
                return
        except Refused as error:
            self._end(command, error.answer())
            return
        await self._ask(command, request)

    async def _ask(self, command: Command, request: _Request) -> None:
        self._end(command, await self._api.answer(*request, who=command.who, mount_point=command.mount_point))

    def _begin_replay(self, command: Command, request: _Request) -> None:
        name = command.name
        if name in self._replays:
            raise Refused(409, f"Dead letters of {name} are being replayed at a rate already.")
        task = asyncio.get_running_loop().create_task(self._ask(command, request))
        self._replays[name] = task
        task.add_done_callback(lambda _task: self._replays.pop(name))

    def _end(self, command: Command, answer: Answer) -> None:
        self.sink.end(command, answer.status == 200, answer.body)

    # ------------------------------------------------------------------ what a command means

    def _request_of(self, command: Command) -> _Request:
        """Raises `Refused`."""
        queue = ("queues", command.name)
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
                return _Request("POST", ("dead-letters", command.name, "replay"), _replay_query(command.payload))
        return _Request("POST", (*queue, command.action.removeprefix("$")), body=command.payload)

    def _wanted(self, command: Command) -> QueueOptions:
        """The queue that a publisher wants: it takes no messages that the publisher may not have, and publishes none
        where the publisher may not. Raises `Refused`."""
        options = options_of(command.payload, command.name)
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


def _replay_query(payload: bytes) -> dict[str, str]:
    """What a replay is asked over HTTP. Raises `Refused`."""
    wanted = decode_body(payload or b"{}", _Replay, "what to replay")
    query = {"filter": wanted.filter, "dry_run": "true" if wanted.dry_run else "false"}
    if wanted.number is not None:
        query["number"] = str(wanted.number)
    if wanted.rate:
        query["rate"] = str(wanted.rate)
    return query
