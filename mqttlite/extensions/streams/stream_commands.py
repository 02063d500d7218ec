"""What operators and programs publish to look after a stream: `$stream/<name>/$create`, `/$delete`, `/$seek`,
`/$offsets`, `/$snapshot`.

The same as over HTTP; `command_sink` takes them. Invariant: what an answer says is on disk.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Any, Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.source import Source
from mqttlite.extensions.command_sink import Command, CommandSink, Tell
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.extensions.streams.history import ReadEntries
from mqttlite.extensions.streams.limits import MAX_COMMAND_BYTES
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.places import offsets_at, text_of
from mqttlite.extensions.streams.position import parse_position
from mqttlite.extensions.streams.service import Streams

CREATE: Final = "$create"
DELETE: Final = "$delete"
SEEK: Final = "$seek"
OFFSETS: Final = "$offsets"
SNAPSHOT: Final = "$snapshot"
COMMANDS: Final = (CREATE, DELETE, SEEK, OFFSETS, SNAPSHOT)

SERVED: Final = tuple(f"$stream/+/{each}/#".encode() for each in COMMANDS)
"""The filters of the topics to which commands are published."""

Json = dict[str, Any]


class _Seek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    to: str


class _Offsets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: str = ""
    group: str = ""


class StreamCommands:
    """`sink` takes them. `entries` reads the store, and `commit` carries out changes and waits until they are
    committed."""

    def __init__(
        self,
        streams: Streams,
        entries: ReadEntries,
        commit: Callable[[], Awaitable[None]],
        core: Broker,
        clock: Callable[[], float],
        wake: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._streams: Final = streams
        self._entries: Final = entries
        self._commit: Final = commit
        self._permissions: Final = core.permissions
        self.sink: Final = CommandSink(
            *("$stream", COMMANDS, self._serves, self._carry_out, core, clock, wake, tell), max_bytes=MAX_COMMAND_BYTES
        )

    def _serves(self, name: str, action: str, source: Source) -> bool:
        streams = self._streams
        return (action == CREATE and name not in streams.names) or streams.serves(name, source)

    async def _carry_out(self, command: Command) -> None:
        try:
            answer = await self._answer(command)
        except (ValueError, LookupError, PermissionError) as error:
            self.sink.end(command, False, msgspec.json.encode({"error": str(error)}))
            return
        await self._commit()
        self.sink.end(command, True, msgspec.json.encode(answer))

    async def _answer(self, command: Command) -> Json:
        """Raises `ValueError`, `LookupError` and `PermissionError` with a sentence."""
        streams, name = self._streams, command.name
        match command.action:
            case "$create":
                streams.create(self._wanted(command))
                return self._shown(command)
            case "$delete":
                streams.delete(name)
                return {"deleted": True}
            case "$seek":
                wanted = _decoded(command.payload, _Seek, '{"group": "…", "to": "earliest"}')
                streams.seek(name, wanted.group, parse_position(wanted.to))
                return {"group": wanted.group, "positions": self._positions(name, wanted.group)}
            case "$snapshot":
                return {"stream": name, "positions": text_of([each.end for each in streams.partitions(name)])}
        return await self._offsets(name, command.payload)

    async def _offsets(self, name: str, payload: bytes) -> Json:
        wanted = _decoded(payload or b"{}", _Offsets, '{"at": "…"} or {"group": "…"}, or empty')
        if wanted.group:
            return {"group": wanted.group, "positions": self._positions(name, wanted.group)}
        if wanted.at:
            offsets = await offsets_at(self._streams, name, wanted.at, self._entries)
            return {"at": wanted.at, "positions": text_of(offsets)}
        partitions = [asdict(each) for each in self._streams.state(name).partitions]
        groups = [
            {"name": each.name, "positions": text_of(each.positions), "lag": each.lag}
            for each in self._streams.groups(name)
        ]
        return {"partitions": partitions, "groups": groups}

    def _positions(self, name: str, group: str) -> str:
        return text_of(self._streams.group(name, group).positions)

    def _shown(self, command: Command) -> Json:
        """The stream as its publisher may see it: topics below a mount point without that."""
        state = self._streams.state(command.name)
        mount_point = command.mount_point.decode()
        return asdict(replace(state, filters=tuple(each.removeprefix(mount_point) for each in state.filters)))

    def _wanted(self, command: Command) -> StreamOptions:
        """The stream that a publisher wants: it has no messages that the publisher may not have."""
        fields = _decoded(command.payload or b"{}", dict[str, Any], "the options of a stream")
        if fields.setdefault("name", command.name) != command.name:
            raise ValueError(f"name is {fields['name']!r}, and the topic says {command.name!r}")
        try:
            options = msgspec.convert(fields, StreamOptions)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
        mounted = [NAMESPACES.mounted_filter(command.mount_point, each.encode()) for each in options.filters]
        for given, each in zip(options.filters, mounted, strict=True):
            if not self._permissions.may_subscribe(command.source, each):
                raise PermissionError(f"To bind a stream to {given} takes the permission to subscribe to that.")
        return msgspec.structs.replace(options, filters=tuple(each.decode() for each in mounted))


def _decoded(payload: bytes, kind: Any, form: str) -> Any:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the payload is no JSON of the form {form}: {error}") from None
