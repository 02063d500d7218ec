"""The dashboard's pages of streams: a list, and a page for each, at whatever node it is, with its partitions, groups
and messages, and the history of a topic as a chart.

Invariant: they change nothing, and payloads are shown to operators only.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.api import ask_api, at_node, payload_of
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.extensions.dashboard.other_nodes import at_other_nodes
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.problems import Code, Problem

STREAMS: Final = "/ui/streams"
STREAM: Final = "/ui/stream"
HISTORY: Final = "/ui/stream/topic"

PAGE: Final = 100
"""Streams of one page of the list, and groups of the page of a stream."""

SHOWN: Final = 20
"""Messages that are shown at a time."""

HOURS: Final = (1, 6, 24, 168)
"""How many hours a chart may show."""

WIDTH: Final = 1_000
HEIGHT: Final = 240
"""Of a chart, in its own units."""


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
        state = await ask_api(request, "GET", "streams", name)
        groups = (await ask_api(request, "GET", "streams", name, "groups"))["items"]
        readers = (await ask_api(request, "GET", "streams", name, "readers"))["items"]
        messages: list[dict[str, Any]] = []
        following, too_large = 0, ""
        if caller.may(Role.OPERATOR):
            fields = {"partition": str(partition), "since": since, "limit": str(SHOWN)}
            try:
                found = await ask_api(request, "GET", "streams", name, "messages", fields=fields)
            except Problem as problem:
                if problem.code != Code.TOO_LARGE:
                    raise
                too_large = problem.detail
            else:
                messages = [{**each, "payload": payload_of(each)} for each in found["messages"]]
                following = found["next"] if found["next"] < found["end"] else 0
        groups.sort(key=lambda each: -each["lag"])
        return pages.render(
            "stream.html",
            request,
            caller,
            at_node=at_node(request),
            stream=state,
            node=state.get("node", ""),
            lag=max((each["lag"] for each in [*groups, *readers]), default=0),
            groups=groups[:PAGE],
            hidden=max(0, len(groups) - PAGE),
            partition=partition,
            since=since,
            messages=messages,
            following=following,
            too_large=too_large,
        )

    @shown.get(HISTORY, Role.OPERATOR)
    async def topic_history(
        request: Request,
        caller: Caller,
        name: str,
        topic: str = "",
        field: str = "",
        hours: int = 6,
        partition: str = "",
    ) -> Response:
        hours = hours if hours in HOURS else HOURS[1]
        found: dict[str, Any] = {}
        if topic:
            since = datetime.now(UTC) - timedelta(hours=hours)
            fields = {"topic": topic, "field": field, "since": since.isoformat().replace("+00:00", "Z")}
            if partition:
                fields["partition"] = partition
            found = await ask_api(request, "GET", "streams", name, "history", fields=fields)
        return pages.render(
            "topic_history.html",
            request,
            caller,
            at_node=at_node(request),
            node=request.query_params.get("node", ""),
            name=name,
            topic=topic,
            field=field,
            hours=hours,
            partition=partition,
            choices=HOURS,
            found=found,
            chart=chart_of(found),
            width=WIDTH,
            height=HEIGHT,
        )


def chart_of(found: dict[str, Any]) -> dict[str, Any]:
    """The line of the means and the band between the lowest and highest values, as points of SVG."""
    points = found.get("points", [])
    if not points:
        return {}
    since, until = (datetime.fromisoformat(found[each]) for each in ("since", "until"))
    took = max((until - since).total_seconds(), 1e-6)
    low, high = min(each["low"] for each in points), max(each["high"] for each in points)
    room = high / 2 - low / 2 or 1.0  # of halves: the whole may be infinite

    def place(at: str, value: float) -> str:
        across = (datetime.fromisoformat(at) - since).total_seconds() / took
        return f"{WIDTH * min(max(across, 0.0), 1.0):.1f},{HEIGHT * (1.0 - (value / 2 - low / 2) / room):.1f}"

    return {
        "line": " ".join(place(each["at"], each["mean"]) for each in points),
        "band": " ".join(
            [place(each["at"], each["high"]) for each in points]
            + [place(each["at"], each["low"]) for each in reversed(points)]
        ),
        "low": low,
        "high": high,
    }
