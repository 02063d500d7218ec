"""`/api/v1/why`, `/config`, `/reload`: requests about neither a client nor a message.

Invariant: the configuration is shown without secrets.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta
from starlette.responses import PlainTextResponse

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import MAX_TEXT, Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.telemetry.alarms import name_of
from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.following import MAX_FOLLOWED, TooManyFollowed
from mqttlite.telemetry.status import status
from mqttlite.wire.errors import TopicFilterInvalid

HIDDEN: Final = "(hidden)"

_SECRET: Final = re.compile(r"password$|secret$|token$|_key$|^headers$")
"""Options whose values are secrets; those that name files are not."""


class Answer(msgspec.Struct):
    """The outcomes of messages, in sentences and as data."""

    sentences: list[str]
    entries: list[dict[str, Any]]


class Found(Answer):
    """The outcomes of messages that the log knows."""

    known: bool
    """Whether it does; if not, the sentences say why."""


class Followed(Answer):
    """The same of messages since the last answer."""

    latest: int
    """The `after` of the next request."""
    node: str
    """The node that has answered; empty for a broker alone."""


class Follow(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages to trace for the next ten seconds."""

    filter: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
    after: Annotated[int, Meta(ge=0)] | None = None


class ActiveAlarm(msgspec.Struct, frozen=True):
    """An alarm that is active."""

    alarm: str
    """The last level of its topic below `$SYS/broker/alarms/`."""
    since: datetime
    detail: str


class Accepted(msgspec.Struct):
    """It was begun; the log says what came of it."""

    accepted: bool = True


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "operation", served_on=OPERATORS)

    @route.get("/alarms", Role.VIEWER, "List the alarms that are active", reach=Reach.LIST)
    async def list_alarms() -> Listed[ActiveAlarm]:
        """What `$SYS/broker/alarms/…` tells, of all nodes."""
        reports = context.reports
        items = [
            ActiveAlarm(name_of(alarm), reports.alarms_since[alarm], detail)
            for alarm, detail in sorted(reports.alarms.items())
        ]
        return Listed(items=items, cursor=None)

    @route.get("/status", Role.VIEWER, "Show what the broker does and who keeps it busy", reach=Reach.EACH)
    async def show_status() -> dict[str, Any]:
        """What the metrics port answers at `/status`; of several nodes with that of the `others`."""
        found: dict[str, Any] = msgspec.json.decode(status(await context.reports.latest()))
        return found

    @route.get(
        "/readyz",
        Role.VIEWER,
        "Say whether the broker is ready",
        operation={"responses": {"503": {"description": "It is not ready", "content": {"text/plain": {}}}}},
    )
    async def ready() -> PlainTextResponse:
        """In a sentence, with status 503 if it is not."""
        reason = context.reports.not_ready()
        return PlainTextResponse(f"Not ready: {reason}.", 503) if reason else PlainTextResponse("The broker is ready.")

    @route.get("/why", Role.VIEWER, "Say what became of messages", reach=Reach.EACH)
    async def why(
        target: Annotated[str, Meta(max_length=MAX_TEXT, description="A message id, a topic or a client.")] = "",
        client: Annotated[str, Meta(max_length=MAX_TEXT)] | None = None,
    ) -> Found:
        """From the delivery log, of the messages that were traced."""
        if not target and client is None:
            raise Problem(Code.INVALID_VALUE, "of what? Name a target, such as a message id or a topic, or a client")
        found = _answers(context).why(target, client)
        return Found(sentences=found["sentences"], entries=found["entries"], known=found["known"])

    @route.post("/why/follow", Role.OPERATOR, "Trace messages from now on")
    async def follow(request: Follow) -> Followed:
        """Ask again within ten seconds to go on."""
        try:
            context.reports.following.follow(request.filter.encode())
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"filter: {error}") from None
        except TooManyFollowed:
            raise Problem(Code.QUOTA_EXCEEDED, f"{MAX_FOLLOWED} filters are traced already: end one first") from None
        found = _answers(context).follow(request.filter, request.after)
        node = "" if context.nodes is None else context.nodes.node
        return Followed(sentences=found["sentences"], entries=found["entries"], latest=found["latest"], node=node)

    @route.get("/config", Role.ADMIN, "Show the configuration")
    async def config() -> dict[str, Any]:
        """With defaults, and without secrets."""
        found = _without_secrets(msgspec.to_builtins(context.config))
        assert isinstance(found, dict)
        return found

    @route.post("/reload", Role.ADMIN, "Read files again", status=202)
    async def reload() -> Accepted:
        """What SIGHUP does: passwords, rules, tokens and TLS files; the log says what came of each."""
        context.reload()
        return Accepted()

    return route.made


def _answers(context: OperatorContext) -> Answers:
    answers = context.reports.answers()
    if answers is None:
        raise Problem(
            Code.NOT_AVAILABLE,
            "no delivery log is kept: trace a topic from now on with 'mqttlite why --follow FILTER' (POST "
            "/api/v1/why/follow), or put a section [delivery_log] into the configuration, such as topics = "
            '["plant/#"], and start again',
        )
    return answers


# ── the configuration ──────────────────────────────────────────────────────────────────────────────────────────────


def _without_secrets(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        if name == "headers":
            return dict.fromkeys(value, HIDDEN)
        return {key: _without_secrets(each, key) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(each, name) for each in value]
    if isinstance(value, str) and value:
        if _SECRET.search(name):
            return HIDDEN
        return _without_credentials(value) if "://" in value else value
    return value


def _without_credentials(url: str) -> str:
    """An address without user, password and query, which may hold a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    _, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{HIDDEN}@{host}" if at else host, query=HIDDEN if parts.query else ""))
