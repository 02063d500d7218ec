"""`GET /api/v1/streams/{name}/subscribe`: the messages of a stream by Server-Sent Events.

The id of an event is the offset to go on from in each partition that is not at its beginning. A client that comes back
with it in Last-Event-ID goes on there, whatever became of its connection or the broker. Invariant: the caller may
subscribe to the stream.
"""

from collections.abc import Sequence
from typing import Any, Final

from mqttlite.core.authorizer import SUBSCRIBE
from mqttlite.extensions.streams.entry import OFFSET, PARTITION
from mqttlite.extensions.streams.history import ReadEntries
from mqttlite.extensions.streams.places import offsets_at, text_of
from mqttlite.extensions.streams.position import Start, parse_position
from mqttlite.extensions.streams.routes import finding
from mqttlite.extensions.streams.service import Streams
from mqttlite.gateway.bodies import Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes
from mqttlite.gateway.sessions import RETAINED_NEVER, filters_of
from mqttlite.gateway.sse import ANSWER, Asked, SseRoutes, last_event_id, parameter, qos_of
from mqttlite.wire.packets import Publish

MAX_ID: Final = 32_768
"""The most characters of a Last-Event-ID: a stream may have 1,000 partitions."""


class _Places:
    """The `EventIds` of one reader: where it goes on in each partition."""

    def __init__(self, offsets: list[int]) -> None:
        self._texts: Final = {at: f"{at}:{offset}" for at, offset in enumerate(offsets) if offset}
        """By partition, without those that begin at their first message: an id of 1,000 partitions is made for each
        event."""

    def of(self, packet: Publish) -> str:
        """Implements `EventIds`. A message that is too large for its place leaves it where it was."""
        told = dict(packet.properties.user_properties)  # what the broker says is behind what the publisher said
        if PARTITION in told and OFFSET in told:
            partition = int(told[PARTITION])
            self._texts[partition] = f"{partition}:{int(told[OFFSET]) + 1}"
        return ",".join(self._texts.values()) or "0:0"


class _StreamEvents:
    """The endpoint of one gateway."""

    def __init__(self, context: GatewayContext, streams: Streams, entries: ReadEntries) -> None:
        self._sse: Final = SseRoutes(context)
        self._permissions: Final = context.core.permissions
        self._namespaces: Final = context.core.namespaces
        self._streams: Final = streams
        self._entries: Final = entries

    async def open(self, caller: Caller, name: str, scope: Scope, _: Receive, send: Send) -> None:
        """Begin where Last-Event-ID or `since` says. Raises `Problem`."""
        topic = f"$stream/{name}"
        if not self._permissions.may_subscribe(caller.source, topic.encode()):
            why = self._permissions.told(caller.source, SUBSCRIBE, topic.encode())
            raise Problem(Code.NOT_AUTHORIZED, f"the caller may not subscribe to {topic[:200]!r}: {why or 'denied'}")
        query = query_of(scope)
        since = query.get("since", ["latest"])[0]
        came_with = last_event_id(scope, query, MAX_ID)
        offsets, is_kept = await self._begins(name, came_with, since)
        topic_filter = f"$stream/{name}@{text_of(offsets)}"
        if "filter" in query:
            topic_filter += f"/{query['filter'][0]}"
        key = (qos_of(query), query.get("where", [""])[0])
        asked = Asked({key: filters_of([topic_filter], self._namespaces)}, RETAINED_NEVER)
        await self._sse.begin(caller, scope, send, asked, "" if is_kept else came_with, _Places(offsets))

    async def _begins(self, name: str, came_with: str, since: str) -> tuple[list[int], bool]:
        """The offset of each partition to begin with, and whether the stream has had these."""
        with finding():
            try:
                if not came_with:
                    return await offsets_at(self._streams, name, since, self._entries), True
                given = dict(parse_position(came_with).offsets)
                if parse_position(came_with).start is not Start.LATEST or not given:
                    raise ValueError(f"{came_with[:64]!r} is no id of an event of this stream")
                partitions = self._streams.partitions(name)
                is_kept = all(at < len(partitions) and offset <= partitions[at].end for at, offset in given.items())
                if not is_kept:  # another stream has that name now
                    return [each.first for each in partitions], False
                return [given.get(each.number, each.first) for each in partitions], True
            except ValueError as error:
                raise Problem(Code.INVALID_VALUE, f"{'Last-Event-ID' if came_with else 'since'}: {error}") from None


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    assert context.streams is not None, "the routes belong to them"
    made = _StreamEvents(context, context.streams, context.read_entries)
    route = Routes(tag="streams", is_bare=True, takes_token=True)
    path, summary = "/api/v1/streams/{name}/subscribe", "Read a stream by Server-Sent Events"
    route.get(path, Role.USER, summary, operation=_OPERATION)(made.open)
    return route.made


_TEXT: Final = {"type": "string"}

_OPERATION: Final[dict[str, Any]] = {
    "parameters": [
        parameter("since", _TEXT, "`latest` (the default), `earliest`, a time, or `<partition>:<offset>,…`"),
        parameter("filter", _TEXT, "A topic filter: only messages of these topics"),
        parameter("qos", {"type": "integer", "enum": [0, 1]}, "1 by default"),
        parameter("where", _TEXT, "A filter on the content of messages, as of MQTT subscriptions"),
        parameter("last_event_id", _TEXT, "In place of the header Last-Event-ID"),
        parameter("token", _TEXT, "An API key or token, for EventSource, which sends no header"),
    ],
    "responses": ANSWER,
}
