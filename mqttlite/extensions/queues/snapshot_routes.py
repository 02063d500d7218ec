"""`/api/v1/queues/{name}/seek` and `/snapshots`: going back or on in a queue, and marking where it is.

What is done is in `api`, which queue commands use, too. Invariant: when a seek is answered,
nothing older is delivered.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from mqttlite.extensions.queues.api import Refused
from mqttlite.extensions.queues.routes import QueueDetails, answered, problem_of
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done

Time = Annotated[str, Meta(max_length=64, description="RFC 3339, such as 2026-11-24T08:30:00Z")]
Name = Annotated[str, Meta(max_length=256, description="The name of a snapshot")]


class SeekTo(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One of the two."""

    time: Time = ""
    snapshot: Name = ""


class SnapshotEntry(msgspec.Struct):
    """A snapshot, and how many messages of the queue had not ended."""

    name: str
    queue: str
    messages: int
    created_at: str
    expires_at: str


class SnapshotList(msgspec.Struct):
    """By name."""

    items: list[SnapshotEntry]
    cursor: None = None
    """There are no more: a broker has 1,000 at most."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    queueing = context.queueing
    assert queueing is not None, "the routes belong to it"
    route = Routes("/api/v1", "queues", served_on=OPERATORS, reach=Reach.THING)

    async def ask(method: str, *segments: str, body: bytes = b"") -> Any:
        try:
            return await queueing.api.ask(method, segments, {}, body)
        except Refused as error:
            raise problem_of(error) from None

    @route.post("/queues/{name}/seek", Role.ADMIN, "Go to a time or a snapshot", answer=QueueDetails)
    async def seek(name: str, to: SeekTo) -> Response:
        """What is older is delivered no more; what is newer is delivered, again if it is retained."""
        body = msgspec.json.encode(to)
        return answered(await ask("POST", "queues", name, "seek", body=body))

    @route.get("/snapshots", Role.VIEWER, "List snapshots", reach=Reach.LIST)
    async def list_snapshots() -> SnapshotList:
        """Of all queues."""
        return SnapshotList(items=(await ask("GET", "snapshots"))["entries"])

    @route.get("/snapshots/{snapshot}", Role.VIEWER, "Show a snapshot")
    async def show(snapshot: str) -> SnapshotEntry:
        """Of whatever queue."""
        for each in (await ask("GET", "snapshots"))["entries"]:
            if each["name"] == snapshot:
                return SnapshotEntry(**each)
        raise Problem(Code.NOT_FOUND, f"there is no snapshot {snapshot!r}")

    @route.get("/queues/{name}/snapshots", Role.VIEWER, "List the snapshots of a queue")
    async def list_of_queue(name: str) -> SnapshotList:
        """By name."""
        return SnapshotList(items=(await ask("GET", "queues", name, "snapshots"))["entries"])

    @route.post("/queues/{name}/snapshots/{snapshot}", Role.ADMIN, "Make a snapshot", status=201)
    async def create(name: str, snapshot: str) -> SnapshotEntry:
        """Of what has not ended in the queue. It is kept for a week."""
        return SnapshotEntry(**await ask("POST", "queues", name, "snapshots", snapshot))

    @route.delete("/snapshots/{snapshot}", Role.ADMIN, "Delete a snapshot")
    async def delete(snapshot: str) -> Done:
        """What it alone kept is dropped."""
        await ask("DELETE", "snapshots", snapshot)
        return Done(success=True)

    return route.made
