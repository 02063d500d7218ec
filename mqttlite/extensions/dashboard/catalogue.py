"""The catalogue page: the purpose, owner and schema of topics; and the schemas.

Invariant: it shows what `/api/v1/catalogue` and `/registry` answer, and changes nothing.
"""

import asyncio
from bisect import bisect_left
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.catalogue.entries import Entry, catalogue
from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Routes

PAGE: Final = 100
"""Entries of one page of the catalogue."""

SHOWN: Final = 200
"""Subjects that the page lists."""


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""

    @route.get("/ui/catalogue", Role.VIEWER)
    async def show(request: Request, caller: Caller, contains: str = "", cursor: str = "") -> Response:
        registry = None if context.schemas is None else context.schemas.registry
        policies, topics = context.live_rules.policies, list(context.topics.from_name(""))
        found = await asyncio.to_thread(catalogue, policies, topics, context.lookup())
        entries = [each for each in found if _has(each, contains)]
        start = bisect_left(entries, cursor, key=lambda each: each.topics)
        following = entries[start + PAGE : start + PAGE + 1]
        live = {} if registry is None else {name: each.live() for name, each in registry.subjects.items()}
        names = sorted(name for name, versions in live.items() if versions)
        return pages.render(
            "catalogue.html",
            request,
            caller,
            entries=entries[start : start + PAGE],
            count=len(entries),
            contains=contains,
            cursor=cursor,
            next_cursor=following[0].topics if following else "",
            subjects=[(name, live[name][-1], registry.level(name)) for name in names[:SHOWN]] if registry else [],
            subject_count=len(names),
            type_of=lambda version: registry.schema(version.schema_id).type if registry else "",
        )


def _has(entry: Entry, text: str) -> bool:
    """Whether a search for the text finds the entry."""
    wanted = text.casefold()
    said = (entry.topics, entry.description, entry.owner or "", entry.topic_class, entry.schema or "")
    return any(wanted in each.casefold() for each in said)
