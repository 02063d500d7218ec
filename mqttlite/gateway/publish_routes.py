"""The publish routes, as bare ASGI: by topic id, in bulk, and by topic name.

Invariant: an answer has the outcome of the message, or is a problem and nothing was published. A bulk answer has the
number of refused messages, and the reasons of the first ones.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from mqttlite.gateway import cloud_events
from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dotted_names import DESCRIPTION, PARAMETER, is_dotted, of_dotted
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publishing import (
    REFUSED,
    Draft,
    MessageBody,
    Publishing,
    check_qos,
    checked,
    draft_of,
    with_acks,
    with_user_properties,
)
from mqttlite.gateway.routing import Route, Routes
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import NONE, Properties

MAX_BULK_MESSAGES: Final = 100_000
"""Of one request: half a second of the broker's time."""

BULK_SLICE: Final = 500
"""Messages of it that are published before others have their turn: some milliseconds."""

MAX_BULK_ERRORS: Final = 100
"""Refused messages that the answer names."""

FORM: Final = "application/x-www-form-urlencoded"
"""The type that curl sends when its user names none."""

_JSON: Final = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class BulkMessage(MessageBody, frozen=True, forbid_unknown_fields=True):
    """One of many messages: its topic by name or by id."""

    topic: str | None = None
    topic_id: str | None = None


class BulkError(msgspec.Struct, frozen=True):
    """A message that was refused."""

    index: int
    code: str
    detail: str


class BulkOutcome(msgspec.Struct, frozen=True):
    """The outcome of many messages: how many, and the drops by reason."""

    published: int
    delivered_to: int
    queued_for: int
    dropped: int
    reasons: dict[str, int]
    refused: int
    errors: list[BulkError]


class OutcomeBody(msgspec.Struct, frozen=True):
    """The outcome of a message (`Outcome.json`)."""

    message_id: str
    delivered_to: int
    queued_for: int
    dropped: bool | Literal["backpressure"]
    reason: str | None


_BODY: Final = msgspec.json.Decoder(MessageBody)
_BULK: Final = msgspec.json.Decoder(list[BulkMessage])
_BULK_LINE: Final = msgspec.json.Decoder(BulkMessage)


class PublishRoutes:
    """The endpoints of one gateway."""

    def __init__(self, context: GatewayContext, bodies: Bodies) -> None:
        self._context: Final = context
        self._bodies: Final = bodies
        self._publishing: Final = Publishing(context)
        self._topics: Final = context.topics

    async def by_id(self, caller: Caller, topic_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/v1/topics/{topic_id}/publish`."""
        topic = self._topics.find(topic_id)
        name = topic.name.encode()
        body = await self._bodies.read(scope, receive)
        try:
            headers = headers_of(scope)
            if cloud_events.is_event(headers):
                draft = Draft(name, body, 1, False, checked(cloud_events.properties_of(headers, body)))
            else:
                draft = draft_of(name, _decoded(_BODY, body))
            outcome = await self._publishing.publish(caller, draft)
        finally:
            self._bodies.release(body)
        await answer_with(send, outcome.json())

    async def by_name(self, caller: Caller, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`PUT` and `POST /topics/{topic}`: the body is the payload."""
        topic = self._publishing.topic_of(named_in(scope, name))
        qos, retain, expiry_s = _query(scope)
        body = await self._bodies.read(scope, receive)
        try:
            headers = headers_of(scope)
            if cloud_events.is_event(headers):
                properties = cloud_events.properties_of(headers, body)
            else:
                content_type = headers.get("content-type")
                is_named = content_type is not None and content_type != FORM
                properties = Properties(content_type=content_type) if is_named else NONE
            if expiry_s is not None:
                properties = Properties(
                    content_type=properties.content_type,
                    user_properties=properties.user_properties,
                    message_expiry_interval=expiry_s,
                )
            given = query_of(scope) if scope["query_string"] else {}
            if "dedup_id" in given:
                properties = with_user_properties(properties, [("dedup-id", given["dedup_id"][0])])
            if "acks" in given:
                properties = with_acks(properties, given["acks"])
                qos = max(qos, 1)  # the caller hears what became of them
            if properties is not NONE:
                checked(properties)
            draft = Draft(topic, body, qos, retain, properties, "acks" in given)
            outcome = await self._publishing.publish(caller, draft)
        finally:
            self._bodies.release(body)
        await answer_with(send, outcome.json())

    async def retained(self, caller: Caller, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /topics/{topic}`: the retained message."""
        topic = self._publishing.topic_of(named_in(scope, name))
        try:
            check_name(topic)
        except TopicNameInvalid as error:
            raise Problem(Code.INVALID_TOPIC, str(error)) from None
        core = self._context.core
        if not core.permissions.may_subscribe(caller.source, topic) or not core.permissions.may_receive(
            caller.source, topic
        ):
            why = core.permissions.told(caller.source, "receive", topic)
            raise Problem(Code.NOT_AUTHORIZED, f"the caller may not read {name[:200]!r}: {why or 'denied'}")
        found = core.router.retained.search(topic).take(1)
        if (
            not found
            or 0.0 < found[0].expires_at <= self._context.clock()
            or not core.permissions.may_still_write(found[0])
        ):
            raise Problem(Code.NOT_FOUND, f"no message is retained of {name[:200]!r}")
        message = found[0]
        properties = message.properties
        headers = [*payload_headers(properties.content_type), (b"x-message-id", b"%d" % message.number)]
        headers += [(name.encode(), value.encode()) for name, value in cloud_events.headers_of(properties)]
        await answer_with(send, message.payload, headers)

    async def bulk(self, caller: Caller, _: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/v1/publish/bulk`: an array in JSON, or lines of JSON (NDJSON)."""
        body = await self._bodies.read(scope, receive)
        try:
            if headers_of(scope).get("content-type", "").partition(";")[0].strip() == "application/x-ndjson":
                messages = _decoded_lines(body)
            else:
                messages = _decoded(_BULK, body)
            if len(messages) > MAX_BULK_MESSAGES:
                raise Problem(Code.TOO_LARGE, f"{len(messages)} messages: {MAX_BULK_MESSAGES} at most")
            answer = await self._publish_all(self._publishing.admit(caller, len(messages), len(body)), messages)
        finally:
            self._bodies.release(body)
        await answer_with(send, answer)

    async def _publish_all(self, caller: Caller, messages: list[BulkMessage]) -> bytes:
        publishing = self._publishing
        loop_driver = self._context.loop_driver
        waits = False
        published = delivered = queued = dropped = 0
        reasons: dict[str, int] = {}
        errors: list[BulkError] = []
        refused = 0
        names: dict[str, bytes] = {}
        for index, message in enumerate(messages):
            try:
                draft = draft_of(self._name_of(message, names), message)
                ticket = publishing.offer(caller, draft)
                if not ticket.done:
                    await loop_driver.finish(ticket)
                waits = waits or ticket.tally.is_durable
                tally = ticket.tally
                if tally.code >= REFUSED and (draft.has_acks or not tally.reached):
                    publishing.outcome(caller, draft, ticket)  # raises
            except Problem as problem:
                refused += 1
                if len(errors) < MAX_BULK_ERRORS:
                    errors.append(BulkError(index, str(problem.code), problem.detail))
                continue
            published += 1
            delivered += tally.sent
            queued += tally.queued
            if not tally.reached:
                dropped += 1
                reasons["no_subscribers"] = reasons.get("no_subscribers", 0) + 1
            elif tally.dropped:
                dropped += 1
                for reason, count in tally.dropped.items():
                    reasons[reason] = reasons.get(reason, 0) + count
            if index % BULK_SLICE == BULK_SLICE - 1:
                loop_driver.run()
                await asyncio.sleep(0)
        if waits:
            await loop_driver.settled()
        else:
            loop_driver.wake()
        return msgspec.json.encode(BulkOutcome(published, delivered, queued, dropped, reasons, refused, errors))

    def _name_of(self, message: BulkMessage, names: dict[str, bytes]) -> bytes:
        if (message.topic is None) == (message.topic_id is None):
            raise Problem(Code.INVALID_VALUE, "topic and topic_id: one of them names the topic")
        if message.topic_id is not None:
            return self._topics.find(message.topic_id).name.encode()
        assert message.topic is not None, "one of them is there"
        found = names.get(message.topic)
        if found is None:
            found = names[message.topic] = self._publishing.topic_of(message.topic)
        return found


def routes(context: GatewayContext, bodies: Bodies) -> Sequence[Route]:
    """The routes of this module."""
    made = PublishRoutes(context, bodies)
    by_id, bulk, by_name = "/api/v1/topics/{topic_id}/publish", "/api/v1/publish/bulk", "/topics/{topic:path}"
    publishes = Routes(tag="publish", is_bare=True, is_counted=False, answer=OutcomeBody)
    publishes.put(by_name, Role.USER, "Publish the body as payload", operation=_PUBLISH)(made.by_name)
    publishes.post(by_name, Role.USER, "The same as PUT", operation=_PUBLISH)(made.by_name)
    publishes.post(by_id, Role.USER, "Publish a message to a topic", body=MessageBody)(made.by_id)
    publishes.post(bulk, Role.USER, "Publish many messages", **_MANY)(made.bulk)
    reads = Routes(tag="publish", is_bare=True)
    reads.get(by_name, Role.USER, "The retained message of a topic", operation=_RETAINED)(made.retained)
    return [*publishes.made, *reads.made]


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request by their names in lower case; the last one of a name counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def named_in(scope: Scope, name: str) -> str:
    """The topic in the path of a request, which may be dotted. Raises `Problem`."""
    if scope["query_string"] and is_dotted(query_of(scope)):
        return of_dotted(name)
    return name


def _query(scope: Scope) -> tuple[int, bool, int | None]:
    """QoS, retain and expiry of a query. Raises `Problem`."""
    if not scope["query_string"]:
        return 0, False, None
    query = {name: values[-1] for name, values in query_of(scope).items()}
    qos = number_of(query.get("qos", "0"), "qos")
    check_qos(qos)
    retain = query.get("retain", "false").lower()
    if retain not in ("true", "false", "1", "0"):
        raise Problem(Code.INVALID_VALUE, f"retain is {retain[:20]!r}: write true or false")
    expiry = query.get("expiry_s")
    return qos, retain in ("true", "1"), None if expiry is None else number_of(expiry, "expiry_s")


def number_of(text: str, name: str) -> int:
    """A whole number of a query. Raises `Problem`."""
    if not text.isdecimal() or len(text) > 10:
        raise Problem(Code.INVALID_VALUE, f"{name} is {text[:20]!r}: a whole number is meant")
    return int(text)


def _decoded(decoder: Any, body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(Code.INVALID_VALUE, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(Code.BAD_REQUEST, f"the body is no JSON: {error}") from None


def _decoded_lines(body: bytes) -> list[BulkMessage]:
    try:
        return _BULK_LINE.decode_lines(body)
    except msgspec.ValidationError as error:
        raise Problem(Code.INVALID_VALUE, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(Code.BAD_REQUEST, f"the body is no NDJSON: {error}") from None


def payload_headers(content_type: str | None) -> list[tuple[bytes, bytes]]:
    """Of an answer that is a payload, which may be anything: a browser must not run it."""
    is_header = content_type is not None and content_type.isascii() and content_type.isprintable()
    shown = str(content_type) if is_header else "application/octet-stream"
    return [
        (b"content-type", shown.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
        (b"cache-control", b"no-store"),
    ]


async def answer_with(send: Send, body: bytes, headers: list[tuple[bytes, bytes]] = _JSON) -> None:
    """Answer 200 with that body."""
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


# ── OpenAPI ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parameter(name: str, where: str, schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    """A parameter in OpenAPI."""
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": description}


_TOPIC: Final = parameter("topic", "path", {"type": "string"}, "A topic's name; its slashes are part of the path")

DOTTED: Final = parameter(PARAMETER, "query", {"type": "boolean", "default": False}, DESCRIPTION)

_PUBLISH: Final[dict[str, Any]] = {
    "parameters": [
        _TOPIC,
        DOTTED,
        parameter("qos", "query", {"type": "integer", "minimum": 0, "maximum": 2}),
        parameter("retain", "query", {"type": "boolean"}),
        parameter("expiry_s", "query", {"type": "integer", "minimum": 0, "maximum": 4_294_967_295}),
        parameter("dedup_id", "query", {"type": "string"}, "An id: a queue or stream takes the message once"),
        parameter(
            *("acks", "query", {"type": "array", "items": {"type": "string"}}),
            "What the caller has finished in a group of a stream, in the commit of the message",
        ),
    ],
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}


_MANY: Final[dict[str, Any]] = {
    "body": list[BulkMessage],
    "answer": BulkOutcome,
    "operation": {"requestBody": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
}

_RETAINED: Final[dict[str, Any]] = {
    "parameters": [_TOPIC, DOTTED],
    "responses": {"200": {"description": "Its payload, with its content type", "content": {"*/*": {"schema": {}}}}},
}
