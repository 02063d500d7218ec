"""The trace page: the outcomes of new messages of a topic or client, while the page is open.

It is what `mqttlite why --follow` does. Invariant: nothing is traced any more `LEASE_S` after the page is closed.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes
from mqttlite.telemetry.following import MAX_FOLLOWED, TooManyFollowed
from mqttlite.wire.errors import TopicFilterInvalid


def add(shown: Routes, streams: Routes, context: GatewayContext, pages: Pages, live: Live) -> None:
    """The routes of this module."""
    reports = context.reports

    def follow(topic_filter: str, client: str) -> None:
        try:
            if client:
                reports.following.follow_client(client)
            else:
                reports.following.follow(topic_filter.encode())
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"{topic_filter[:200]!r} is no topic filter: {error}") from None
        except TooManyFollowed:
            raise Problem(Code.BUSY, f"{MAX_FOLLOWED} traces run already, which is the limit; end one") from None

    @shown.get("/ui/trace", Role.OPERATOR)
    async def trace(request: Request, caller: Caller, filter: str = "", client: str = "") -> Response:
        if filter or client:
            follow(filter, client)
        return pages.render("trace.html", request, caller, filter=filter, client=client)

    @streams.get("/ui/trace/live", Role.OPERATOR)
    async def trace_stream(request: Request, filter: str = "", client: str = "") -> Response:
        follow(filter, client)
        latest: int | None = None

        async def look() -> dict[str, Any] | None:
            nonlocal latest
            follow(filter, client)
            answers = reports.answers()
            assert answers is not None, "something is followed"
            found = answers.follow(filter, latest, client=client or None)
            latest = found["latest"]
            return found if found["sentences"] else None

        return live.stream(request, Role.OPERATOR, look)
