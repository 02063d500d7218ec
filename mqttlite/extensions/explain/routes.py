"""`/api/v1/explain`: what would become of a message or a subscription, and what the rules decide."""

import base64
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from mqttlite.extensions.explain.explanations import PublishExplanation, SubscribeExplanation, properties_of
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.lists import MAX_TEXT
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.security.rulings import Answer as Ruling
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

MAX_EXPLAINED_BYTES: Final = 16 * 1_048_576
"""The payload of a message to explain, which is made in memory."""

Name = Annotated[str, Meta(max_length=MAX_TEXT)]
Groups = Annotated[Sequence[str], Meta(max_length=100, description="Groups that the credentials name.")]
Qos = Annotated[int, Meta(ge=0, le=2)]


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    explanations = context.explanations
    assert explanations is not None, "this extension is there"
    route = Routes("/api/v1", "operation", served_on=OPERATORS)

    @route.get("/explain/publish", Role.VIEWER, "Say what would become of a message")
    async def explain_publish(
        topic: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)],
        client_id: Name = "",
        user: Name | None = None,
        groups: Groups = (),
        qos: Qos = 0,
        retain: bool = False,
        payload_bytes: Annotated[int, Meta(ge=0, le=MAX_EXPLAINED_BYTES)] = 0,
        payload: Annotated[str, Meta(max_length=MAX_TEXT, description="Schemas and filters look at it.")] | None = None,
        payload_encoding: Literal["utf-8", "base64"] = "utf-8",
        properties: Annotated[Sequence[str], Meta(max_length=100, description="User properties: NAME=VALUE.")] = (),
        content_type: Name | None = None,
    ) -> PublishExplanation:
        """Nothing is published; a name that may not be is explained, too."""
        return explanations.publish(
            *(client_id, user, topic, payload_bytes),
            payload=None if payload is None else _payload(payload, payload_encoding),
            properties=properties_of(properties, content_type),
            qos=qos,
            retain=retain,
            groups=groups,
        )

    @route.get("/explain/subscribe", Role.VIEWER, "Say what would become of a subscription")
    async def explain_subscribe(
        filter: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)],
        client_id: Name = "",
        user: Name | None = None,
        groups: Groups = (),
        qos: Qos = 0,
    ) -> SubscribeExplanation:
        """Explain a subscription without making it, even one that would be refused."""
        return explanations.subscribe(client_id, user, filter, qos=qos, groups=groups)

    @route.get("/explain/permission", Role.VIEWER, "Say what the rules decide")
    async def explain_permission(
        action: Literal["publish", "receive", "subscribe"],
        topic: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)],
        client_id: Name = "",
        user: Name | None = None,
        groups: Groups = (),
    ) -> Ruling:
        """Whether the rules in force let a client do it, and which of them decides."""
        try:
            return explanations.permission(action, topic, user, client_id, groups)
        except (TopicFilterInvalid, TopicNameInvalid) as error:
            raise Problem(Code.INVALID_TOPIC, f"topic: {error}") from None

    return route.made


def _payload(text: str, encoding: str) -> bytes:
    if encoding == "utf-8":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Problem(Code.INVALID_VALUE, "payload is no base64") from None
