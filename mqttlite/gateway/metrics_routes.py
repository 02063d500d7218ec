"""The routes of the metrics port: `/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors, `/status`,
`/clients`, `/client` and `/why` for the commands.

Invariant: none of them changes the broker, and their errors are sentences.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mqttlite.config.metrics import NO_LIBRARY
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes, ServedOn
from mqttlite.operations.admin import MAX_PAGE, ClientDetails, ClientEntry, Page
from mqttlite.telemetry.following import MAX_FOLLOWED, TooManyFollowed
from mqttlite.telemetry.report import Report
from mqttlite.telemetry.status import status
from mqttlite.wire.errors import TopicFilterInvalid

JSON: Final = "application/json"

MAX_DIGITS: Final = 20
"""Of a number: message identifiers have 19."""


def as_sentence(problem: Problem) -> Response:
    """The answer to a problem, in a line of text."""
    text = f"{problem.detail[:1].upper()}{problem.detail[1:].removesuffix('.')}.\n"
    return PlainTextResponse(text, problem.status_code, problem.headers)


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes(served_on=ServedOn.METRICS_PORT)
    reports = context.reports
    latest: tuple[Report, bytes] | None = None
    """The latest report as metrics."""

    @route.get("/metrics", Role.VIEWER)
    async def metrics() -> Response:
        nonlocal latest
        try:
            from mqttlite.telemetry.metrics import CONTENT_TYPE, exposition  # imported by the metrics port
        except ImportError:
            raise Problem(Code.NOT_AVAILABLE, f"there are no metrics: {NO_LIBRARY}") from None
        report = await reports.latest()
        if latest is None or latest[0] is not report:
            pieces: list[bytes] = []
            for piece in exposition(report):
                pieces.append(piece)
                await asyncio.sleep(0)
            latest = report, b"".join(pieces)
        return Response(latest[1], headers={"Content-Type": CONTENT_TYPE})

    @route.get("/status", Role.VIEWER)
    async def show_status() -> Response:
        return Response(status(await reports.latest()), media_type=JSON)

    @route.get("/healthz", Role.VIEWER)
    async def alive() -> Response:
        return PlainTextResponse("The broker is alive.\n")

    @route.get("/readyz", Role.VIEWER)
    async def ready() -> Response:
        reason = reports.not_ready()
        if reason:
            return PlainTextResponse(f"Not ready: {reason}.\n", 503)
        return PlainTextResponse("The broker is ready.\n")

    @route.get("/why", Role.VIEWER)
    async def why(request: Request) -> dict[str, Any]:
        query = request.query_params
        target, client = query.get("target", ""), query.get("client") or None
        if "follow" in query:
            return _follow(context, query["follow"], query.get("after", ""))
        answers = reports.answers()
        if answers is None:
            raise Problem(
                Code.NOT_FOUND,
                "no delivery log is kept. Trace a topic from now on with 'mqttlite why --follow FILTER', or put a "
                'section [delivery_log] into the configuration, such as topics = ["plant/#"], and start again',
            )
        if not target and client is None:
            raise Problem(
                Code.BAD_REQUEST, "of what? Name a message's id or a topic: /why?target=plant/7/temp&client=c7"
            )
        return answers.why(target, client)

    @route.get("/clients", Role.VIEWER)
    async def clients(limit: str = "100", cursor: str = "", contains: str = "") -> Page[ClientEntry]:
        """Clients with a session, in the order of their identifiers, a page at a time."""
        return await context.admin.clients(cursor, _number("limit", limit, f"{MAX_PAGE} at most"), contains)

    @route.get("/client", Role.VIEWER)
    async def client(id: str = "") -> ClientDetails:
        details = context.admin.client(id)
        if details is None:
            raise Problem(Code.NOT_FOUND, f"there is no client {id!r}")
        return details

    return route.made


def _follow(context: OperatorContext, topic_filter: str, after: str) -> dict[str, Any]:
    """Trace a filter for a while, and return the outcomes of its messages."""
    later_than = _number("after", after, "that an answer had as latest") if after else None
    try:
        context.reports.following.follow(topic_filter.encode())
    except TopicFilterInvalid as error:
        raise Problem(Code.BAD_REQUEST, f"{topic_filter!r} is no topic filter: {error}") from None
    except TooManyFollowed:
        raise Problem(Code.BUSY, f"{MAX_FOLLOWED} filters are followed already: end one of them first") from None
    answers = context.reports.answers()
    assert answers is not None, "something is followed"
    return answers.follow(topic_filter, later_than)


def _number(name: str, text: str, what: str) -> int:
    """Raises `Problem`."""
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise Problem(Code.BAD_REQUEST, f"the parameter {name} is {text[:100]!r}: it is a number, {what}")
    return int(text)
