"""`/api/v1/catalogue` and `/api/v1/asyncapi.json`: the purpose, owner and schema of topics.

Invariant: many topics are put together in a thread, and the loop goes on.
"""

import asyncio
from bisect import bisect_left
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from mqttlite.build import version
from mqttlite.catalogue.asyncapi import document, servers_of
from mqttlite.catalogue.entries import Entry, catalogue
from mqttlite.gateway.caller import Viewer
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.lazy_route import LazyRoute

ASYNCAPI = "application/vnd.aai.asyncapi+json;version=3.0.0"

MAX_PAGE = 1_000
"""Entries of one page."""


class CatalogueSchema(BaseModel):
    """The schema with which messages are read that name none."""

    subject: str
    version: int
    id: int
    type: str


class CatalogueEntry(BaseModel):
    """Topics with one policy."""

    topics: str = Field(description="As a topic filter")
    description: str
    owner: str | None
    access: str
    topic_class: str = Field(alias="class")
    min_qos: int
    max_qos: int
    max_payload_bytes: int
    ttl_s: int
    schema_reference: str | None = Field(alias="schema")
    schema_in_use: CatalogueSchema | None
    topic_id: str | None


class CataloguePage(BaseModel):
    """Some of the entries, in the order of their topics."""

    items: list[CatalogueEntry]
    cursor: str | None


def router(context: GatewayContext) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/api/v1", tags=["catalogue"], route_class=LazyRoute)

    async def entries() -> list[Entry]:
        policies, topics = context.live_rules.policies, list(context.topics.from_name(""))
        return await asyncio.to_thread(catalogue, policies, topics, context.schemas.registry)

    @routes.get("/catalogue", summary="What topics are for, whose they are, and what their messages hold")
    async def show(
        caller: Viewer,
        cursor: Annotated[str, Query(max_length=65_535)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    ) -> CataloguePage:
        found = await entries()
        start = bisect_left(found, cursor, key=lambda entry: entry.topics)
        items = [CatalogueEntry(**msgspec.to_builtins(each)) for each in found[start : start + limit]]
        rest = found[start + limit : start + limit + 1]
        return CataloguePage(items=items, cursor=rest[0].topics if rest else None)

    @routes.get(
        "/asyncapi.json",
        summary="The catalogue as an AsyncAPI document",
        response_class=Response,
        responses={200: {"content": {ASYNCAPI: {"schema": {"type": "object"}}}}},
    )
    async def asyncapi(caller: Viewer) -> Response:
        found = await entries()

        def write() -> bytes:
            return msgspec.json.encode(
                document(
                    *(found, context.schemas.registry, servers_of(context.config)),
                    title="mqttlite",
                    version=version(),
                )
            )

        return Response(await asyncio.to_thread(write), media_type=ASYNCAPI)

    return routes
