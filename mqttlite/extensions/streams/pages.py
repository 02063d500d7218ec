"""The dashboard's pages of streams: a list, and a page for each with its partitions, groups and messages.

Invariant: they change nothing, and payloads are shown to operators only.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.core.message import Message
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.dashboard.other_nodes import at_other_nodes
from mqttlite.extensions.streams.history import read
from mqttlite.extensions.streams.routes import finding, first_offset
from mqttlite.gateway.caller import Caller, Role

STREAMS: Final = "/ui/streams"
STREAM: Final = "/ui/stream"

PAGE: Final = 100
"""Streams of one page of the list, and groups of the page of a stream."""

SHOWN: Final = 20
"""Messages that are shown at a time."""


def add(dashboard: Dashboard) -> None:
    """The routes of this module."""
    context, pages, shown = dashboard.context, dashboard.pages, dashboard.shown
    streams = context.streams
    assert streams is not None, "the pages belong to them"

    @shown.get(STREAMS, Role.VIEWER)
    async def listed(request: Request, caller: Caller, after: str = "") -> Response:
        names = sorted(each for each in streams.names if each > after)
        found = [(streams.state(name), streams.lag(name)) for name in names[:PAGE]]
        following = names[PAGE - 1] if len(names) > PAGE else ""
        return pages.render(
            "streams.html",
            request,
            caller,
            streams=found,
            following=following,
            count=len(streams.names),
            others=await at_other_nodes(context, request, "/api/v1/streams"),
        )

    @shown.get(STREAM, Role.VIEWER)
    async def stream(
        request: Request, caller: Caller, name: str, partition: int = 0, since: str = "earliest"
    ) -> Response:
        with finding():
            state, groups, log = streams.state(name), streams.groups(name), streams.partition(name, partition)
        messages: list[tuple[int, Message]] = []
        following = 0
        if caller.may(Role.OPERATOR):
            first = await first_offset(log, since, context.read_entries)
            messages, following = await read(log, first, SHOWN, context.read_entries)
        groups.sort(key=lambda each: -each.lag)
        return pages.render(
            "stream.html",
            request,
            caller,
            stream=state,
            lag=streams.lag(name),
            groups=groups[:PAGE],
            hidden=max(0, len(groups) - PAGE),
            partition=partition,
            since=since,
            messages=messages,
            following=following if following < log.end else 0,
        )
