"""`/api/v1/retained` and `/api/v1/delayed`: messages that the broker keeps for later: list, get, remove, cancel.

`admin` carries out the actions. Invariant: as in `clients`, only operators see payloads.
"""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from mqttlite.admin import DelayedEntry, Removal, RetainedEntry, payload_as_text
from mqttlite.gateway.clients import OPERATOR, VIEWER
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.lazy_route import LazyRoute
from mqttlite.gateway.lists import MAX_TEXT, Cursor, Limit, Listed, listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.topic_routes import Done
from mqttlite.wire.errors import TopicFilterInvalid

Filter = Annotated[str, Query(min_length=1, max_length=MAX_TEXT, description="A topic filter.")]


class RetainedMessage(BaseModel):
    """A retained message with its payload."""

    topic: str
    message_id: str | None
    published_at: datetime | None
    qos: int
    payload: str
    """Text, or base64."""
    payload_encoding: Literal["utf-8", "base64"]
    payload_bytes: int
    content_type: str | None
    user_properties: list[tuple[str, str]]
    expires_at: datetime | None


def router(context: GatewayContext) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/api/v1", tags=["messages"], route_class=LazyRoute)
    admin = context.admin

    @routes.get("/retained", summary="List retained messages", dependencies=VIEWER)
    async def list_retained(filter: Filter = "#", cursor: Cursor = "", limit: Limit = 100) -> Listed[RetainedEntry]:
        """By topic, without payloads."""
        try:
            return listed(await admin.retained(filter, cursor, limit))
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"filter: {error}") from None

    @routes.get("/retained/message", summary="Get a retained message", dependencies=OPERATOR)
    async def get_retained(topic: Annotated[str, Query(min_length=1, max_length=MAX_TEXT)]) -> RetainedMessage:
        """With its payload."""
        found = admin.retained_message(topic)
        if found is None:
            raise Problem(Code.NOT_FOUND, f"no message is retained on {topic[:200]!r}")
        text, encoding = payload_as_text(found.payload)
        properties = found.properties
        return RetainedMessage(
            topic=found.entry.topic,
            message_id=found.entry.message_id,
            published_at=found.entry.published_at,
            qos=found.entry.qos,
            payload=text,
            payload_encoding=encoding,
            payload_bytes=len(found.payload),
            content_type=properties.content_type,
            user_properties=list(properties.user_properties),
            expires_at=found.expires_at,
        )

    @routes.delete("/retained", summary="Remove retained messages", dependencies=OPERATOR)
    async def remove_retained(filter: Filter, dry_run: bool = False) -> Removal:
        """Those that a filter matches; call again until it is `complete`."""
        try:
            return await admin.remove_retained(filter, dry_run=dry_run)
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"filter: {error}") from None

    @routes.get("/delayed", summary="List delayed messages", dependencies=VIEWER)
    async def list_delayed(
        cursor: Annotated[str, Query(pattern="^[0-9]{0,18}$")] = "", limit: Limit = 100
    ) -> Listed[DelayedEntry]:
        """Messages to `$delayed/…` that are not due yet."""
        return listed(admin.delayed(cursor, limit))

    @routes.delete("/delayed/{number}", summary="Cancel a delayed message", dependencies=OPERATOR)
    async def cancel_delayed(number: int) -> Done:
        """It is dropped, with the reason `purged`."""
        if not admin.cancel_delayed(number):
            raise Problem(Code.NOT_FOUND, f"there is no delayed message {number}, or it is due")
        return Done(success=True)

    return routes
