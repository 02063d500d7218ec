"""`/api/v1/queues` and `/dead-letters`: list, make, change, look at, purge, pause and delete queues; and dead letters.

What is done is in `api`, which queue commands use, too. Invariant: payloads are shown to operators
only, whatever the rules say of their topics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.queues.api import Refused
from mqttlite.extensions.queues.managed import QueueState
from mqttlite.extensions.queues.push_state import PushState
from mqttlite.extensions.queues.push_target import shown_url
from mqttlite.gateway.caller import Caller, Role, check_role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import MAX_TEXT, Cursor, Limit, Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done

_CODES: Final = {
    400: Code.BAD_REQUEST,
    404: Code.NOT_FOUND,
    409: Code.CONFLICT,
    422: Code.INVALID_VALUE,
    503: Code.BUSY,
}

Filter = Annotated[
    str, Meta(max_length=MAX_TEXT, description="Only those that pass this filter, such as payload.total > 1000")
]
DryRun = Annotated[bool, Meta(description="Only say how many it would be.")]
Number = Annotated[int, Meta(ge=0, description="Of one dead letter; without it all, or those that match.")] | None
Rate = Annotated[int, Meta(ge=0, le=10_000, description="So many in a second at most; 0: as fast as it goes.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDetails(QueueState):
    """What is in a queue, what became of its messages since the start, and its options."""

    options: dict[str, Any]
    push: PushState | None = None
    """How its messages are pushed, if they are."""
    push_secret: str | None = None
    """Signs the requests, where it was made now: told once."""


class PushSecret(msgspec.Struct):
    """Signs the requests that push messages."""

    secret: str


class QueuedMessage(msgspec.Struct):
    """A message of a queue, or the beginning of it."""

    message_id: str
    published_at: str
    topic: str
    payload_bytes: int
    payload: str
    payload_encoding: str
    """`utf-8` or `base64`."""
    user_properties: list[tuple[str, str]]


class Peeked(msgspec.Struct):
    """The first messages of a queue that are in memory."""

    messages: list[QueuedMessage]
    depth: int


class Messages(msgspec.Struct):
    """How many messages it was, or would be."""

    messages: int


class DeadLetterCount(msgspec.Struct):
    """How many dead letters a queue has, and how many came since the start."""

    name: str
    dead_letters: int
    dead_letters_total: int


class DeadLetterEntry(msgspec.Struct):
    """A dead letter in a list."""

    number: int
    message_id: str
    topic: str
    cause: str
    attempts: int
    first_delivery_time: str | None
    last_delivery_time: str | None
    payload_bytes: int


class WholeDeadLetter(DeadLetterEntry):
    """A dead letter with its payload."""

    payload: str
    payload_encoding: str
    user_properties: list[tuple[str, str]]


_QUEUE: Final = "/api/v1/queues/{name}"
"""A node has the dead letters of the queues that it has."""

_OPTIONS: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string"},
                        "filters": {"type": "array", "items": {"type": "string"}},
                    },
                    "description": "The options of a queue, as in the configuration",
                }
            }
        },
    }
}


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    queueing = context.queueing
    assert queueing is not None, "the routes belong to it"
    route = Routes("/api/v1", "queues", served_on=OPERATORS, reach=Reach.THING)

    async def ask(method: str, *segments: str, body: bytes = b"", **query: str | int | bool | None) -> Any:
        given = {name: _text(value) for name, value in query.items() if value is not None}
        try:
            return await queueing.api.ask(method, segments, given, body)
        except Refused as error:
            raise problem_of(error) from None

    @route.get("/queues", Role.VIEWER, "List queues", answer=Listed[QueueState], reach=Reach.LIST)
    async def list_queues(cursor: Cursor = "", limit: Limit = 100) -> Response:
        """By name, with what is in them and what became of their messages since the broker started."""
        return _listed(await ask("GET", "queues", cursor=cursor, limit=limit))

    @route.post(
        "/queues", Role.ADMIN, "Make a queue", answer=QueueDetails, status=201, operation=_OPTIONS, reach=Reach.HERE
    )
    async def create(request: Request) -> Response:
        """Of the messages that its filters match, from now on."""
        return answered(await ask("POST", "queues", body=await request.body()), 201)

    @route.get("/queues/{name}", Role.VIEWER, "Show a queue", answer=QueueDetails)
    async def show(caller: Caller, name: str) -> Response:
        """What is in it, what became of its messages, and its options. A query in the address of an endpoint, which may
        be secret, is for admins."""
        found = await ask("GET", "queues", name)
        return answered(found if caller.may(Role.ADMIN) else without_query(found))

    @route.put("/queues/{name}", Role.ADMIN, "Give a queue other options", answer=QueueDetails, operation=_OPTIONS)
    async def change(name: str, request: Request) -> Response:
        """The body has all of them: what it does not name gets its default."""
        return answered(await ask("PUT", "queues", name, body=await request.body()))

    @route.delete("/queues/{name}", Role.ADMIN, "Delete a queue")
    async def delete(name: str) -> Done:
        """With its messages and dead letters."""
        await ask("DELETE", "queues", name)
        return Done(success=True)

    @route.get("/queues/{name}/messages", Role.OPERATOR, "Look at the messages of a queue", answer=Peeked)
    async def peek(name: str, limit: Limit = 10) -> Response:
        """The first ones; they stay where they are."""
        return answered(await ask("GET", "queues", name, "messages", limit=limit))

    @route.delete("/queues/{name}/messages", Role.OPERATOR, "Drop the messages of a queue")
    async def purge(name: str, dry_run: DryRun = False) -> Messages:
        """All of them, also those that consumers have; dead letters stay."""
        return Messages(**await ask("DELETE", "queues", name, "messages", dry_run=dry_run))

    @route.post("/queues/{name}/pause", Role.OPERATOR, "Deliver nothing of a queue", answer=QueueDetails)
    async def pause(name: str) -> Response:
        """It takes messages meanwhile."""
        return answered(without_query(await ask("POST", "queues", name, "pause")))

    @route.post("/queues/{name}/resume", Role.OPERATOR, "Deliver the messages of a paused queue", answer=QueueDetails)
    async def resume(name: str) -> Response:
        """From the first on; also one whose push was stopped, because its endpoint was gone."""
        return answered(without_query(await ask("POST", "queues", name, "resume")))

    @route.post("/queues/{name}/push-secret", Role.ADMIN, "Sign pushed messages with a new secret")
    async def rotate_secret(name: str) -> PushSecret:
        """They are signed with the one before, too, until the next."""
        return PushSecret(**await ask("POST", "queues", name, "push-secret"))

    @route.get("/dead-letters", Role.VIEWER, "Count dead letters", answer=Listed[DeadLetterCount], reach=Reach.LIST)
    async def count_dead_letters(cursor: Cursor = "", limit: Limit = 100) -> Response:
        """Of each queue."""
        return _listed(await ask("GET", "dead-letters", cursor=cursor, limit=limit))

    @route.get(
        "/dead-letters/{name}",
        Role.VIEWER,
        "List the dead letters of a queue",
        answer=Listed[DeadLetterEntry],
        thing=_QUEUE,
    )
    async def list_dead_letters(
        caller: Caller, name: str, cursor: Cursor = "", limit: Limit = 100, filter: Filter = ""
    ) -> Response:
        """The oldest first. A filter looks into payloads, so it takes an operator."""
        if filter:
            check_role(caller, Role.OPERATOR)
        return _listed(await ask("GET", "dead-letters", name, cursor=cursor, limit=limit, filter=filter))

    @route.get(
        "/dead-letters/{name}/{number}", Role.OPERATOR, "Show a dead letter", answer=WholeDeadLetter, thing=_QUEUE
    )
    async def show_dead_letter(name: str, number: int) -> Response:
        """With its payload and user properties."""
        return answered(await ask("GET", "dead-letters", name, str(number)))

    @route.post("/dead-letters/{name}/replay", Role.OPERATOR, "Replay dead letters", thing=_QUEUE)
    async def replay(
        name: str, number: Number = None, filter: Filter = "", rate: Rate = 0, dry_run: DryRun = False
    ) -> Messages:
        """They go back into their queue with a new first attempt, and keep their message id."""
        found = await ask(
            "POST", "dead-letters", name, "replay", number=number, filter=filter, rate=rate, dry_run=dry_run
        )
        return Messages(**found)

    @route.delete("/dead-letters/{name}", Role.OPERATOR, "Drop dead letters", thing=_QUEUE)
    async def drop(name: str, number: Number = None, filter: Filter = "", dry_run: DryRun = False) -> Messages:
        """Nobody gets them any more."""
        return Messages(**await ask("DELETE", "dead-letters", name, number=number, filter=filter, dry_run=dry_run))

    return route.made


def problem_of(refused: Refused) -> Problem:
    """The same as a problem."""
    text = str(refused)
    return Problem(_CODES[refused.status], text[:1].lower() + text[1:].removesuffix("."))


def without_query(details: dict[str, Any]) -> dict[str, Any]:
    """The details of a queue without the query in the address of its endpoint."""
    for each in (details["options"]["push"], details.get("push")):
        if each is not None:
            each["url"] = shown_url(each["url"])
    return details


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def answered(found: Any, status: int = 200) -> Response:
    """What `api` found as an answer."""
    return Response(msgspec.json.encode(found), status, media_type="application/json")


def _listed(found: dict[str, Any]) -> Response:
    return answered({"items": found["entries"], "cursor": found["cursor"] or None})
