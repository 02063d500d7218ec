"""The catalogue page: the purpose, owner and schema of topics; and the schemas.

Invariant: it shows what `/api/v1/catalogue` and `/registry` answer, and changes nothing.
"""

import asyncio
import json
from bisect import bisect_left
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.catalogue.entries import Entry, catalogue
from mqttlite.delivery.schemas.registry import LATEST, RegistryError
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dashboard.pages import Pages
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Routes

PAGE: Final = 100
"""Entries of one page of the catalogue."""

SHOWN: Final = 200
"""Subjects that the page lists."""


def add(route: Routes, context: GatewayContext, pages: Pages) -> None:
    """The routes of this module."""

    @route.get("/ui/catalogue", Role.VIEWER)
    async def show(request: Request, caller: Caller, contains: str = "", cursor: str = "") -> Response:
        registry = context.schemas.registry
        policies, topics = context.live_rules.policies, list(context.topics.from_name(""))
        entries = [
            each for each in await asyncio.to_thread(catalogue, policies, topics, registry) if _has(each, contains)
        ]
        start = bisect_left(entries, cursor, key=lambda each: each.topics)
        following = entries[start + PAGE : start + PAGE + 1]
        names = sorted(name for name, subject in registry.subjects.items() if subject.live())
        return pages.render(
            "catalogue.html",
            request,
            caller,
            entries=entries[start : start + PAGE],
            count=len(entries),
            contains=contains,
            cursor=cursor,
            next_cursor=following[0].topics if following else "",
            subjects=[(name, registry.subjects[name].live()[-1], registry.level(name)) for name in names[:SHOWN]],
            subject_count=len(names),
            type_of=lambda version: registry.schema(version.schema_id).type,
        )

    @route.get("/ui/schema", Role.VIEWER)
    async def schema(request: Request, caller: Caller, subject: str, version: int = LATEST) -> Response:
        registry = context.schemas.registry
        try:
            found = registry.version(subject, version)
            versions = registry.subject(subject).live()
            level = registry.level(subject)
            text = registry.schema(found.schema_id)
        except RegistryError as error:
            raise Problem(Code.NOT_FOUND, str(error)) from None
        return pages.render(
            "schema.html",
            request,
            caller,
            subject=subject,
            version=found,
            versions=versions,
            level=level,
            schema_type=text.type,
            text=_indented(text.text),
        )


def _has(entry: Entry, text: str) -> bool:
    """Whether a search for the text finds the entry."""
    wanted = text.casefold()
    said = (entry.topics, entry.description, entry.owner or "", entry.topic_class, entry.schema or "")
    return any(wanted in each.casefold() for each in said)


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
