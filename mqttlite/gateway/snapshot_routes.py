"""`/api/v1/queues/{name}/seek` and `/snapshots`: going back or on in a queue, and marking where it is.

What is done is in `delivery.queues.api`, which the admin socket serves, too. Invariant: when a seek is answered,
nothing older is delivered.
"""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from mqttlite.delivery.queues.api import Refused
from mqttlite.gateway.caller import Role, require
from mqttlite.gateway.clients import VIEWER
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.lazy_route import LazyRoute
from mqttlite.gateway.queue_routes import QueueDetails, problem_of
from mqttlite.gateway.topic_routes import Done

ADMIN = [require(Role.ADMIN)]

Time = Annotated[str, Field(max_length=64, description="RFC 3339, such as 2026-11-24T08:30:00Z")]
Name = Annotated[str, Field(max_length=256, description="The name of a snapshot")]


class SeekTo(BaseModel, extra="forbid"):
    """One of the two."""

    time: Time = ""
    snapshot: Name = ""


class SnapshotEntry(BaseModel):
    """A snapshot, and how many messages of the queue had not ended."""

    name: str
    queue: str
    messages: int
    created_at: str
    expires_at: str


class SnapshotList(BaseModel):
    """By name."""

    items: list[SnapshotEntry]
    cursor: None = Field(default=None, description="There are no more: a broker has 1,000 at most.")


def router(context: GatewayContext) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/api/v1", tags=["queues"], route_class=LazyRoute)

    async def ask(method: str, *segments: str, body: bytes = b"") -> Any:
        try:
            return await context.queues_api.ask(method, segments, {}, body)
        except Refused as error:
            raise problem_of(error) from None

    @routes.post("/queues/{name}/seek", summary="Go to a time or a snapshot", dependencies=ADMIN)
    async def seek(name: str, to: SeekTo) -> QueueDetails:
        """What is older is delivered no more; what is newer is delivered, again if it is retained."""
        body = to.model_dump_json(exclude_defaults=True).encode()
        return QueueDetails(**await ask("POST", "queues", name, "seek", body=body))

    @routes.get("/snapshots", summary="List snapshots", dependencies=VIEWER)
    async def list_snapshots() -> SnapshotList:
        """Of all queues."""
        return SnapshotList(items=(await ask("GET", "snapshots"))["entries"])

    @routes.get("/queues/{name}/snapshots", summary="List the snapshots of a queue", dependencies=VIEWER)
    async def list_of_queue(name: str) -> SnapshotList:
        """By name."""
        return SnapshotList(items=(await ask("GET", "queues", name, "snapshots"))["entries"])

    @routes.post("/queues/{name}/snapshots/{snapshot}", summary="Make a snapshot", dependencies=ADMIN, status_code=201)
    async def create(name: str, snapshot: str) -> SnapshotEntry:
        """Of what has not ended in the queue. It is kept for a week."""
        return SnapshotEntry(**await ask("POST", "queues", name, "snapshots", snapshot))

    @routes.delete("/snapshots/{snapshot}", summary="Delete a snapshot", dependencies=ADMIN)
    async def delete(snapshot: str) -> Done:
        """What it alone kept is dropped."""
        await ask("DELETE", "snapshots", snapshot)
        return Done(success=True)

    return routes
