"""`/api/v1/retained`: list, get and remove retained messages.

`admin` carries out the actions. Invariant: as in `clients`, only operators see payloads.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import MAX_TEXT, Cursor, Limit, Listed, listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.operations.admin import Removal, RetainedEntry, payload_as_text
from mqttlite.wire.errors import TopicFilterInvalid

Filter = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="A topic filter.")]


class RetainedMessage(msgspec.Struct):
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


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "messages", served_on=OPERATORS)
    admin = context.admin

    @route.get("/retained", Role.VIEWER, "List retained messages")
    async def list_retained(filter: Filter = "#", cursor: Cursor = "", limit: Limit = 100) -> Listed[RetainedEntry]:
        """By topic, without payloads."""
        try:
            return listed(await admin.retained(filter, cursor, limit))
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"filter: {error}") from None

    @route.get("/retained/message", Role.OPERATOR, "Get a retained message")
    async def get_retained(topic: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]) -> RetainedMessage:
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

    @route.delete("/retained", Role.OPERATOR, "Remove retained messages")
    async def remove_retained(filter: Filter, dry_run: bool = False) -> Removal:
        """Those that a filter matches; call again until it is `complete`."""
        try:
            return await admin.remove_retained(filter, dry_run=dry_run)
        except TopicFilterInvalid as error:
            raise Problem(Code.INVALID_TOPIC, f"filter: {error}") from None

    return route.made
