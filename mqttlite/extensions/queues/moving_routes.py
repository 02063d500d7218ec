"""`/api/v1/queues/{name}/move`: a queue goes to another node; and how that node takes it over.

Invariant: the node that has the queue gives nothing up before the other one has it on disk, and all nodes send what is
published for it to that one, too: until then a message is in both, and the first one's come after it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.queues.api import Refused
from mqttlite.extensions.queues.errors import NoSuchQueue, QueueStays
from mqttlite.extensions.queues.routes import QueueDetails, answered, problem_of
from mqttlite.gateway.asking import checked
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import NodeCaller, Question, Reach
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes

ALONE: Final = "this broker is alone: a queue moves from one of several nodes to another"

HEARD_S: Final = 5.0
"""How long an answer waits until this node has heard from the other one that the queue is there."""

LOOK_S: Final = 0.01

Known = Annotated[str, Meta(description="The nodes that must know its new place, with commas.")]


class MoveTo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a queue goes."""

    to: str
    """The node."""


_DEFINITION: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "description": "As that node has stored it"}}},
    }
}


class Moved(msgspec.Struct):
    """A queue goes to another node."""

    name: str
    to: str
    messages: int
    """How many messages follow it."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    queueing, elsewhere = context.queueing, context.elsewhere
    assert queueing is not None, "the routes belong to it"
    queues = queueing.queues
    route = Routes("/api/v1", "queues", served_on=OPERATORS)

    @route.post("/queues/{name}/move", Role.ADMIN, "Move a queue to another node", reach=Reach.THING)
    async def move(request: Request, caller: Caller, name: str, target: MoveTo) -> Moved:
        """Its messages follow, and its consumers go on there. A message that is published in this moment can be in it
        twice, and messages that follow can come after newer ones; attempts are counted anew. A queue with dead letters,
        snapshots, acknowledged messages that it keeps, or `dedup-id`s stays (409)."""
        if elsewhere is None:
            raise Problem(Code.CONFLICT, ALONE)
        to = target.to
        try:
            definition = queues.departing(name)
        except NoSuchQueue as error:
            raise Problem(Code.NOT_FOUND, str(error)) from None
        except QueueStays as error:
            raise Problem(Code.CONFLICT, str(error)) from None
        if to == elsewhere.me:
            raise Problem(Code.CONFLICT, f"the queue {name} is at node {to}")
        messages = queues.state(name).depth
        question = Question(
            *("PUT", f"/api/v1/queues/{quote(name, safe='')}/arrival".encode()),
            urlencode({"nodes": ",".join(elsewhere.connected)}).encode(),
            *("application/json", definition.encode()),
            NodeCaller(caller.username, caller.role, caller.how, request.scope.get("client")),
        )
        queues.departures.add(name)
        try:
            checked(await elsewhere.ask(to, question))
            give_up_at = time.monotonic() + HEARD_S
            while name in queues and not queues.state(name).leaving and time.monotonic() < give_up_at:
                await asyncio.sleep(LOOK_S)
        finally:
            queues.departures.discard(name)
        return Moved(name, to, messages)

    @route.put(
        "/queues/{name}/arrival",
        Role.ADMIN,
        "Take a queue over from another node",
        answer=QueueDetails,
        operation=_DEFINITION,
    )
    async def arrive(name: str, request: Request, nodes: Known = "") -> Response:
        """The node that has it asks so, with its definition. Of the two the one that says it is older stays."""
        if elsewhere is None:
            raise Problem(Code.CONFLICT, ALONE)
        try:
            found = await queueing.api.ask("PUT", ("queues", name, "arrival"), {}, await request.body())
            late = await elsewhere.tell_all(filter(None, nodes.split(",")))
            if late:
                await queueing.api.ask("DELETE", ("queues", name), {})
                raise Problem(
                    Code.BUSY, f"the queue {name} stays where it is, for not all nodes know its new place: {late}"
                )
        except Refused as error:
            raise problem_of(error) from None
        queues.announce_change(name)
        return answered(found)

    return route.made
