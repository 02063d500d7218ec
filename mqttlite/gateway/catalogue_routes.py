"""`/api/v1/catalogue` and `/api/v1/asyncapi.json`: the purpose, owner and schema of topics.

Invariant: many topics are put together in a thread, and the loop goes on.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from mqttlite.build import VERSION
from mqttlite.catalogue.asyncapi import document, servers_of
from mqttlite.catalogue.entries import Entry, catalogue
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Route, Routes

ASYNCAPI = "application/vnd.aai.asyncapi+json;version=3.0.0"

MAX_PAGE = 1_000
"""Entries of one page."""


class CataloguePage(msgspec.Struct):
    """Some of the entries, in the order of their topics."""

    items: list[Entry]
    cursor: str | None


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "catalogue")

    async def entries() -> list[Entry]:
        policies, topics = context.live_rules.policies, list(context.topics.from_name(""))
        return await asyncio.to_thread(catalogue, policies, topics, context.lookup())

    @route.get("/catalogue", Role.VIEWER, "The purpose of topics, their owners, and the contents of their messages")
    async def show(
        caller: Caller,
        cursor: Annotated[str, Meta(max_length=65_535)] = "",
        limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100,
    ) -> CataloguePage:
        found = await entries()
        start = bisect_left(found, cursor, key=lambda entry: entry.topics)
        rest = found[start + limit : start + limit + 1]
        return CataloguePage(items=found[start : start + limit], cursor=rest[0].topics if rest else None)

    @route.get(
        "/asyncapi.json",
        Role.VIEWER,
        "The catalogue as an AsyncAPI document",
        operation={"responses": {"200": {"content": {ASYNCAPI: {"schema": {"type": "object"}}}}}},
    )
    async def asyncapi(caller: Caller) -> Response:
        found = await entries()

        def write() -> bytes:
            return msgspec.json.encode(
                document(
                    *(found, context.lookup(), servers_of(context.config)),
                    title="mqttlite",
                    version=VERSION,
                )
            )

        return Response(await asyncio.to_thread(write), media_type=ASYNCAPI)

    return route.made
